"""Devices of the machine for real: a pair of virtual ones stands for two network cards with a cable."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from nearmetal.errors import UnavailableError
from nearmetal.host import LocalHost
from nearmetal.host.cards import offloads
from nearmetal.host.leftovers import LeftoverKind, find, remove
from nearmetal.model.environments.network import NetworkSettings, Offloads
from nearmetal.model.study import Attachment
from nearmetal.network.build import build_networks
from nearmetal.network.plan import NetworkRequest

HOST = LocalHost()
LABEL = f"nearmetal-phys{os.getpid()}"
PAIR = (f"nmp{os.getpid() % 10**6}a", f"nmp{os.getpid() % 10**6}b")

pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="moving a device of the machine needs root"),
]


@pytest.fixture
def devices() -> Iterator[tuple[str, str]]:
    with IPRoute() as ip:
        ip.link("add", ifname=PAIR[0], kind="veth", peer=PAIR[1], mtu=1700)
        try:
            ip.link("set", index=ip.link_lookup(ifname=PAIR[0])[0], ifalias="cable", state="up", txqlen=55)
            yield PAIR
        finally:
            for index in ip.link_lookup(ifname=PAIR[0]):
                ip.link("del", index=index)


def attribute(device: str, name: str) -> str:
    return Path("/sys/class/net", device, name).read_text().strip()


def want(devices: tuple[str, ...], instances: int = 2, **settings: str) -> NetworkRequest:
    own = NetworkSettings(devices=devices, mtu=1600, offloads=Offloads(tso=False), **settings)  # type: ignore[arg-type]
    return NetworkRequest(attachment=Attachment.PHYS, settings=own, instances=instances)


def test_a_device_is_taken_and_given_back_as_it_was(devices: tuple[str, str], tmp_path: Path) -> None:
    with build_networks(LABEL, [want(devices)], tmp_path) as (network,):
        assert not any(Path("/sys/class/net", name).exists() for name in devices)
        assert [s.interface for s in network.seats] == list(devices)
        facts = network.read_back["a"]
        assert isinstance(facts, dict)
        assert (facts["interface"], facts["mtu"], facts["tso"]) == (devices[0], 1600, False)
        ping = [
            sys.executable,
            "-c",
            f"import socket; s = socket.create_server(('{network.hub_address}', 0))",
        ]
        assert HOST.run(network.hub_command(ping), timeout=600, cwd=Path("/")).ok
        assert network.trouble() == ""
    assert [attribute(devices[0], n) for n in ("ifalias", "mtu", "tx_queue_len")] == ["cable", "1700", "55"]
    assert int(attribute(devices[0], "flags"), 16) & 1
    assert not int(attribute(devices[1], "flags"), 16) & 1
    assert find(LABEL) == ()


def test_a_device_in_use_is_left_alone(devices: tuple[str, str], tmp_path: Path) -> None:
    with IPRoute() as ip:
        ip.addr("add", index=ip.link_lookup(ifname=devices[0])[0], address="10.231.7.1", prefixlen=24)
    for asked, said in (
        (want(devices), f"{devices[0]} is in use: 10.231.7.0/24 by it"),
        (want(devices[1:], 1, subnet="10.231.0.0/16"), "10.231.0.0/16 are in use here: 10.231.7.0/24 is"),
        (want(devices[1:]), "2 instances need a device each, and there are 1 left of"),
        (want(("nm-none",), 1), "there is no network device nm-none"),
    ):
        with pytest.raises(UnavailableError, match=said), build_networks(LABEL, [asked], tmp_path):
            pass
    assert attribute(devices[0], "ifalias") == "cable"


CODE = """
import sys, time
from pathlib import Path
from nearmetal.model.environments.network import NetworkSettings, Offloads
from nearmetal.model.study import Attachment
from nearmetal.network.build import build_networks
from nearmetal.network.plan import NetworkRequest
want = NetworkRequest(
    attachment=Attachment.PHYS,
    settings=NetworkSettings(devices=tuple(sys.argv[3:]), mtu=1600, offloads=Offloads(tso=False)),
    instances=2,
)
with build_networks(sys.argv[1], [want], Path(sys.argv[2])):
    print("up", flush=True)
    time.sleep(3600)
"""


def test_clean_gives_a_device_back_that_a_killed_run_had(devices: tuple[str, str], tmp_path: Path) -> None:
    argv = [sys.executable, "-c", CODE, LABEL, str(tmp_path), *devices]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd="/") as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == "up\n"
        tool.kill()
    found = find(LABEL)
    assert [left.kind for left in found] == [LeftoverKind.CARD] * 2 + [LeftoverKind.NETNS] * 2
    for left in found:
        remove(left)
    assert find(LABEL) == ()
    assert [attribute(devices[0], n) for n in ("ifalias", "mtu", "tx_queue_len")] == ["cable", "1700", "55"]
    assert int(attribute(devices[0], "flags"), 16) & 1 and offloads(devices[0])["tso"]
    assert attribute(devices[1], "ifalias") == "" and not int(attribute(devices[1], "flags"), 16) & 1


def test_a_mark_on_a_device_that_came_back_by_itself_is_taken_off(devices: tuple[str, str]) -> None:
    Path("/sys/class/net", devices[1], "ifalias").write_text(f"{LABEL}-net0-taken")
    (found,) = find(LABEL)
    assert found.kind is LeftoverKind.LINK
    remove(found)
    assert attribute(devices[1], "ifalias") == ""
