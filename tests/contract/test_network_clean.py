"""What a killed run leaves of its network, and how it is removed. Root's alone: without root a network
dies with the processes that hold it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from nearmetal.host.leftovers import LeftoverKind, find, remove

LABEL = f"nearmetal-netclean{os.getpid()}"

pytestmark = [
    pytest.mark.more,
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="named network namespaces need root"),
]


CODE = """
import sys, time
from pathlib import Path
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Attachment
from nearmetal.network.build import build_networks
from nearmetal.network.plan import NetworkRequest
want = NetworkRequest(attachment=Attachment(sys.argv[1]), settings=NetworkSettings(), instances=2)
with build_networks(sys.argv[2], [want], Path(sys.argv[3])):
    print("up", flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("attachment", ["veth", "veth-bridge", "veth-routed", "macvlan", "vxlan", "ovs"])
def test_clean_removes_what_a_killed_run_left(attachment: str, tmp_path: Path) -> None:
    label = f"{LABEL}-{attachment}"
    argv = [sys.executable, "-c", CODE, attachment, label, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd="/") as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == "up\n"
        tool.kill()
    found = find(label)
    assert [left.kind for left in found if left.kind is not LeftoverKind.PROCESS] == [LeftoverKind.NETNS] * (
        2 if attachment == "veth" else 3
    )
    for left in found:
        remove(left)
    assert find(label) == ()


def test_clean_finds_a_link_by_its_alias() -> None:
    name = f"nmt{os.getpid() % 100000}"
    with IPRoute() as ip:
        ip.link("add", ifname=name, kind="bridge")
        ip.link("set", index=ip.link_lookup(ifname=name)[0], ifalias=f"{LABEL}-link")
    found = find(f"{LABEL}-link")
    assert [(left.kind, left.detail) for left in found] == [(LeftoverKind.LINK, name)]
    remove(found[0])
    assert not Path("/sys/class/net", name).exists()
    remove(found[0])
