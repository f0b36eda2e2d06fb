"""Networks of containers over machines that are reached by ssh: MPI ranks on two of them, by each attachment,
and nothing left on any of them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import labelled
from tests.patience import until
from tests.system.engine_runs import FORCE, NEARMETAL, directory, records
from tests.system.hosts import Hosts, hosts

pytestmark = [pytest.mark.apart]
STUDY = """\
name: networks
question: What does a network of containers cost between two machines?
environments:
  native: {{backend: native, attachment: host}}
{environments}placements:
  2x1x1: {{nodes: 2, instances: 1, tasks: 1}}
workloads:
  latency: {{kernel: pingpong, bytes: 8 B, measure: latency}}
design:
  baseline: native
  mpi: {mpi}
  slices: 2
  nodes: {{inventory: {inventory}, interface: {interface}}}
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("hosts"), ("node1", "node2")) as found:
        yield found


def on_head(machines: Hosts, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [*machines.enter, *NEARMETAL, *words]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)


def study(
    machines: Hosts, attachments: dict[str, str], *, interface: str = "eth0", mpi: str = "openmpi"
) -> str:
    """attachments: settings of the network by attachment."""
    lines = "".join(
        f"  {name}: {{backend: namespaces, attachment: {name}{', network: ' + more if more else ''}}}\n"
        for name, more in attachments.items()
    )
    return STUDY.format(environments=lines, inventory=machines.inventory, interface=interface, mpi=mpi)


def places(machines: Hosts) -> str:
    """All named network namespaces and links of both machines, and of the one that reaches them."""
    nodes = [shown([*machines.ssh(node), SHOW]) for node in ("node1", "node2")]
    return "".join([shown([*machines.enter, "sh", "-c", SHOW]), *nodes])


SHOW = "ls /run/netns 2>/dev/null | grep ^nearmetal-; ip -oneline link show"


def shown(argv: list[str]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


def require_measured(machines: Hosts, place: Path, attachments: set[str]) -> Any:
    """Check that ranks on both machines used eth0 of each network. Returns the records of the networks, by
    attachment."""
    found = records(place)
    assert {r["status"] for r in found} == {"ok"}, [r.get("reason") for r in found]
    assert {r["arm"] for r in found} == {f"{name}/2x1x1" for name in ("native", *attachments)}
    assert {r["transport"]["seen"] for r in found} == {"TCP connections between ranks"}
    of_arm = {name: {p["namespaces"]["net"] for p in ranks(found, name)} for name in attachments}
    bare = {p["namespaces"]["net"] for p in ranks(found, "native")}
    assert all(len(own) == 2 and not own & bare for own in of_arm.values()), (
        "each rank has a network of its own"
    )
    label = found[0]["run"]
    assert label not in places(machines), "nothing is left"
    networks = json.loads((directory(place) / "provenance.json").read_text())["network"]
    made = {n["attachment"]: n for n in networks.values()}
    assert made.keys() == attachments
    for network in made.values():
        assert [got["machine"] for got in network["got"].values()] == ["", "node1", "node2"]
    return made


def ranks(found: list[Any], environment: str) -> list[Any]:
    return [p for r in found if r["arm"].startswith(f"{environment}/") for p in r["places"]]


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_ranks_over_macvlan_and_vxlan(machines: Hosts, tmp_path: Path, mpi: str) -> None:
    settings = {"macvlan": "{mtu: 1400, rto_min: 5 ms, congestion_control: cubic}", "vxlan": ""}
    (tmp_path / "two.yaml").write_text(study(machines, settings, mpi=mpi))
    done = on_head(
        machines, tmp_path, "run", "two.yaml", "--seed", "3", "--json", "--max-blocks", "8", *FORCE
    )
    assert done.returncode == 0, done.stderr
    made = require_measured(machines, tmp_path, set(settings))
    macvlan, vxlan = made["macvlan"]["got"]["a"], made["vxlan"]["got"]["b"]
    assert macvlan["mtu"] == 1400 and "macvlan mode bridge" in macvlan["link"]
    assert any("rto_min" in line and "cubic" in line for line in macvlan["routes"])
    assert "group" not in vxlan["link"].partition("vxlan id")[2], "no multicast"
    assert "vxlan id" in vxlan["link"]
    assert vxlan["mtu"] == 1450


def test_ranks_over_bridges_and_routers(tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    with hosts(tmp_path / "hosts", ("node1", "node2"), bridged=True) as machines:
        settings = {
            "veth-bridge": "",
            "veth-routed": "{subnet: 192.168.201.0/24, rto_min: 5 ms}",
            "macvlan": "",
        }
        (tmp_path / "two.yaml").write_text(study(machines, settings, interface="br0"))
        done = on_head(machines, tmp_path, "run", "two.yaml", "--json", "--max-blocks", "8", *FORCE)
        assert done.returncode == 0, done.stderr
        made = require_measured(machines, tmp_path, set(settings))
        assert made["veth-routed"]["subnet"] == "192.168.201.0/24"
        assert "veth" in made["veth-bridge"]["got"]["a"]["link"]
        assert any(
            "via 10.98." in line and "rto_min" in line for line in made["veth-routed"]["got"]["a"]["routes"]
        )


def test_a_killed_run_leaves_networks_that_clean_removes(machines: Hosts, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(study(machines, {"macvlan": "", "vxlan": "", "veth-routed": ""}))
    argv = [*machines.enter, *NEARMETAL, "run", "two.yaml", "--max-blocks", "3000", *FORCE]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        until(lambda: len(records(tmp_path)) > 6)
        label = records(tmp_path)[0]["run"]
        assert places(machines).count(f"{label}-net") >= 3 * 3, "they exist"
        run.send_signal(signal.SIGKILL)
    until(lambda: not labelled(label), "the end of all processes of the run")
    words = ("clean", "--nodes", str(machines.inventory), "--json")
    seen = json.loads(on_head(machines, tmp_path, *words, "--dry-run").stdout)["nodes"]
    for node in ("node1", "node2"):
        own = [i["name"] for i in seen[node]["found"] if i["kind"] == "network namespace"]
        assert sum(name.startswith(f"{label}-net") for name in own) == 4, "one for each, and one router"
    assert on_head(machines, tmp_path, *words).returncode == 0
    assert on_head(machines, tmp_path, "clean").returncode == 0
    assert label not in places(machines)
    prefix = f"nm{label.removeprefix('nearmetal-')}-"
    assert prefix not in places(machines)


def test_a_run_removes_what_a_killed_one_left_on_its_nodes(machines: Hosts, tmp_path: Path) -> None:
    """Both use the same named subnet, so the old namespaces would answer for the new addresses."""
    (tmp_path / "two.yaml").write_text(study(machines, {"macvlan": "{subnet: 192.168.201.0/24}"}))
    words = ("run", "two.yaml", "--max-blocks", "8", *FORCE)
    argv = [*machines.enter, *NEARMETAL, *words]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        until(lambda: len(records(tmp_path)) > 2)
        label = records(tmp_path)[0]["run"]
        run.send_signal(signal.SIGKILL)
    until(lambda: not labelled(label), "the end of all processes of the run")
    assert places(machines).count(f"{label}-net") >= 3
    (tmp_path / "again").mkdir()
    (tmp_path / "two.yaml").rename(tmp_path / "again" / "two.yaml")
    done = on_head(machines, tmp_path / "again", *words)
    assert done.returncode == 0, done.stderr
    require_measured(machines, tmp_path / "again", {"macvlan"})
    assert label not in places(machines)


@contextmanager
def strict_switch(machines: Hosts) -> Iterator[None]:
    """Let the switch pass frames to the machines' own Ethernet addresses only, until exit."""

    def bridge(*words: str) -> None:
        subprocess.run([*machines.enter, "bridge", *words], check=True, capture_output=True)

    for port, node in (("v0", "node1"), ("v1", "node2")):
        show = [*machines.ssh(node), "ip", "-oneline", "link", "show", "dev", "eth0"]
        words = subprocess.run(show, check=True, capture_output=True, text=True).stdout.split()
        bridge("fdb", "replace", words[words.index("link/ether") + 1], "dev", port, "master", "static")
        bridge("link", "set", "dev", port, "learning", "off", "flood", "off")
    try:
        yield
    finally:
        for port in ("v0", "v1"):
            bridge("link", "set", "dev", port, "learning", "on", "flood", "on")


@pytest.mark.parametrize(
    ("attachment", "interface", "reason"),
    [
        (
            "veth-bridge",
            "eth0",
            "node node1: attachment veth-bridge: eth0 is neither a bridge nor a port of one",
        ),
        (
            "macvlan, network: {subnet: 10.231.0.0/16}",
            "eth0",
            "the addresses of 10.231.0.0/16 are in use there",
        ),
        ("macvlan", "eth0", "nothing comes through attachment macvlan over eth0"),
    ],
)
def test_a_network_that_cannot_be_is_refused(
    machines: Hosts, tmp_path: Path, attachment: str, interface: str, reason: str
) -> None:
    """The last one has a switch that drops frames of senders that it does not know."""
    (tmp_path / "two.yaml").write_text(
        study(machines, {attachment: ""}, interface=interface).replace(
            f"  {attachment}: {{", "  contained: {"
        )
    )
    with strict_switch(machines) if reason.startswith("nothing comes") else nullcontext():
        done = on_head(machines, tmp_path, "run", "two.yaml", "--max-blocks", "8", *FORCE)
    assert done.returncode == 3 and reason in " ".join(done.stderr.split()), done.stderr
    for node in ("node1", "node2"):  # other runs may have networks on the machine that reaches them
        assert "nearmetal-" not in shown([*machines.ssh(node), SHOW])
