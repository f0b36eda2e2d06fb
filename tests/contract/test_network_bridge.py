"""veth-bridge for real: instances in seats reach each other by TCP, and the hub reaches them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from nearmetal.environments import Instance, InstanceRequest, Tools
from nearmetal.environments.holder import UserNamespaceHolder, user_namespace_holder
from nearmetal.environments.registry import get_backend
from nearmetal.errors import RunError
from nearmetal.host import LocalHost, Process
from nearmetal.host.leftovers import Kind, find
from nearmetal.host.namespaces import NETNS_DIRECTORY
from nearmetal.host.network_meter import PROTOCOLS, QDISCS, grown
from nearmetal.model.study import Attachment, Environment
from nearmetal.network import BridgedNetwork, bridge

HOST = LocalHost()
LABEL = f"nearmetal-net{os.getpid()}"
PYTHON = "/usr/bin/python3"

SERVER = """
import socket, sys
server = socket.create_server((sys.argv[1], 7000))
server.settimeout(5)
print("listening", flush=True)
peer, address = server.accept()
peer.sendall(peer.recv(64).upper())
print(address[0])
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000), 5) as s:
    s.settimeout(5)
    s.sendall(b"ping")
    print(s.recv(64).decode())
"""


@pytest.fixture
def holder(tools: Tools) -> Iterator[UserNamespaceHolder | None]:
    """None for root. Where networks cannot be made, the test is skipped by name; in CI it fails."""
    with ExitStack() as stack:
        try:
            own = None if HOST.is_root() else stack.enter_context(user_namespace_holder(HOST, tools, LABEL))
            with bridge(f"{LABEL}-probe", 1, user_namespace_holder=own):
                pass
        except RunError as e:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no bridged network here: {e}")
        yield own


@pytest.fixture
def network(holder: UserNamespaceHolder | None) -> Iterator[BridgedNetwork]:
    with bridge(LABEL, 2, user_namespace_holder=holder) as network:
        yield network


def start(
    stack: ExitStack,
    tools: Tools,
    network: BridgedNetwork,
    directory: Path,
    holder: UserNamespaceHolder | None,
) -> list[Instance]:
    backend = get_backend("namespaces")
    environment = Environment(
        name="e", backend="namespaces", attachment=Attachment.VETH_BRIDGE, placements=()
    )
    instances: list[Instance] = []
    for i, seat in enumerate(network.seats):
        scratch = directory / f"scratch-{i}"
        scratch.mkdir()
        request = InstanceRequest(
            label=f"{LABEL}-{i}",
            hostname=f"nm{i}",
            environment=environment,
            cpus=HOST.cpus()[:1],
            seat=seat,
            binds=(),
            scratch=scratch,
            user_namespace=holder.path if holder else None,
        )
        instances.append(stack.enter_context(backend.start(HOST, tools, request)))
    return instances


def exchange(server: list[str], client: list[str], directory: Path) -> tuple[str, str]:
    """(what the client got, who the server saw)"""
    heard = directory / "server"
    heard.write_text("")
    process = HOST.start(server, stdout=heard, stderr=directory / "server-err", cwd=Path("/"))
    try:
        end = time.monotonic() + 5
        while "listening" not in heard.read_text() and time.monotonic() < end:
            time.sleep(0.005)
        done = HOST.run(client, timeout=10, cwd=Path("/"))
        assert done.ok, (done, (directory / "server-err").read_text())
        assert process.wait(5) == 0
        return done.stdout.strip(), heard.read_text().split()[-1]
    finally:
        process.kill()


def test_instances_and_hub_reach_each_other(
    tools: Tools, network: BridgedNetwork, holder: UserNamespaceHolder | None, tmp_path: Path
) -> None:
    a, b = network.seats
    with ExitStack() as stack:
        first, second = start(stack, tools, network, tmp_path, holder)
        server = first.command([PYTHON, "-c", SERVER, a.address])
        client = second.command([PYTHON, "-c", CLIENT, a.address])
        assert exchange(server, client, tmp_path) == ("PING", b.address)
        server = second.command([PYTHON, "-c", SERVER, b.address])
        client = network.hub_command([PYTHON, "-c", CLIENT, b.address])
        assert exchange(server, client, tmp_path) == ("PING", network.hub_address)


def test_the_hub_command_carries_the_label_and_hands_back_its_end(network: BridgedNetwork) -> None:
    done = HOST.run(network.hub_command(["sh", "-c", "printenv NEARMETAL_RUN; exit 6"]), timeout=5)
    assert (done.returncode, done.stdout) == (6, f"{LABEL}\n")


def test_facts_are_read_back_from_each_namespace(network: BridgedNetwork, tools: Tools) -> None:
    assert set(network.read_back) == {"hub", "seat 0", "seat 1"}
    default = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    for place, facts in cast("dict[str, dict[str, Any]]", network.read_back).items():
        assert facts["mtu"] == 1500
        assert facts["interface"] == (network.hub_interface if place == "hub" else "eth0")
        assert facts["congestion_control"]
        assert facts["rto_min_us"] is None or facts["rto_min_us"] >= 1000
        if HOST.is_root():
            assert facts["congestion_control"] == default


def test_each_namespace_has_a_meter_that_reads_it_from_outside(
    tools: Tools, network: BridgedNetwork, holder: UserNamespaceHolder | None, tmp_path: Path
) -> None:
    assert list(network.meters) == [network.hub_netns, *(seat.netns for seat in network.seats)]
    sources = (PROTOCOLS, "dev", "softnet_stat", QDISCS)
    meters = [network.meters[seat.netns] for seat in network.seats]
    hub = network.meters[network.hub_netns]
    before = [m.counters(sources) for m in (*meters, hub)]
    a = network.seats[0]
    with ExitStack() as stack:
        first, second = start(stack, tools, network, tmp_path, holder)
        server = first.command([PYTHON, "-c", SERVER, a.address])
        exchange(server, second.command([PYTHON, "-c", CLIENT, a.address]), tmp_path)
    after = [m.counters(sources) for m in (*meters, hub)]
    one, other, between = (grown(b, c) for b, c in zip(before, after, strict=True))
    for counters in (one, other):
        assert (counters["TcpOutSegs"] or 0) >= 4
        assert counters["TcpRetransSegs"] == counters["TcpExtTCPTimeouts"] == 0
        assert (counters["dev.eth0.rx_packets"] or 0) >= 4
        assert counters["dev.eth0.rx_drops"] == 0
    assert (between["dev.port0.rx_bytes"] or 0) == one["dev.eth0.tx_bytes"]
    assert between["TcpOutSegs"] == 0
    assert [m.connections("x") for m in meters] == [[], []]


def test_connections_are_seen_in_the_namespace_that_holds_them(
    network: BridgedNetwork, tmp_path: Path
) -> None:
    address = network.hub_address
    talk = f"{SERVER.replace('print(address[0])', 'import time; time.sleep(5)')}"
    server = network.hub_command([PYTHON, "-c", talk, address])
    client = network.hub_command([PYTHON, "-c", f"{CLIENT}    import time; time.sleep(5)", address])
    started: list[Process] = []
    try:
        for argv in (server, client):
            out = tmp_path / f"{len(started)}"
            started.append(HOST.start(argv, stdout=out, stderr=out, cwd=Path("/")))
            end = time.monotonic() + 5
            while not out.read_text() and time.monotonic() < end:
                time.sleep(0.005)
        found = network.meters[network.hub_netns].connections("x")
        assert found is not None
        assert {f"{address}:7000"} < {c.local for c in found}
        assert {c.congestion_control for c in found} == {
            cast("dict[str, Any]", network.read_back["hub"])["congestion_control"]
        }
        assert all(c.rto is not None and 0.001 < c.rto < 5 and c.rtt for c in found)
        assert network.meters[network.seats[0].netns].connections("x") == []
    finally:
        for process in started:
            process.kill()


def test_nothing_is_left(holder: UserNamespaceHolder | None) -> None:
    was_there = NETNS_DIRECTORY.exists()
    links = sorted(p.name for p in Path("/sys/class/net").iterdir())
    with bridge(LABEL, 3, user_namespace_holder=holder):
        kind = Kind.NETNS if HOST.is_root() else Kind.PROCESS
        assert [left.kind for left in find(LABEL + "-" if HOST.is_root() else LABEL)][:3] == [kind] * 3
        assert sorted(p.name for p in Path("/sys/class/net").iterdir()) == links
    assert [left for left in find(LABEL) if holder is None or left.detail != str(holder.pid)] == []
    assert NETNS_DIRECTORY.exists() == was_there


def test_a_second_network_stands_beside_the_first(
    network: BridgedNetwork, holder: UserNamespaceHolder | None
) -> None:
    with bridge(f"{LABEL}-other", 2, user_namespace_holder=holder) as other:
        assert other.hub_netns != network.hub_netns
        assert other.seats[0].address == network.seats[0].address
