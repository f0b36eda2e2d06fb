"""Every attachment for real: instances in seats reach each other by TCP, and the hub reaches them."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.patience import PATIENCE, one_fits

from nearmetal.environments import Instance, InstanceRequest, Tools
from nearmetal.environments.holder import UserNamespaceHolder, user_namespace_holder
from nearmetal.environments.registry import get_backend
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import LocalHost, Process
from nearmetal.host.counters.network_meter import PROTOCOLS, QDISCS, grown
from nearmetal.host.leftovers import LeftoverKind, find
from nearmetal.host.namespaces import NETNS_DIRECTORY
from nearmetal.model.environments.network import NetworkSettings, Offloads
from nearmetal.model.record import Connection
from nearmetal.model.scope import NODE
from nearmetal.model.study import Attachment, Environment
from nearmetal.network.build import Network, attempted_networks, build_networks
from nearmetal.network.plan import NetworkRequest

pytestmark = pytest.mark.beside

HOST = LocalHost()
LABEL = f"nearmetal-net{os.getpid()}"
PYTHON = "/usr/bin/python3"

SERVER = f"""
import socket, sys
server = socket.create_server((sys.argv[1], 7000))
server.settimeout({PATIENCE})
print("listening", flush=True)
peer, address = server.accept()
peer.sendall(peer.recv(64).upper())
print(address[0])
"""
CLIENT = f"""
import socket, sys
with socket.create_connection((sys.argv[1], 7000), {PATIENCE}) as s:
    s.settimeout({PATIENCE})
    s.sendall(b"ping")
    print(s.recv(64).decode(), flush=True)
"""


ATTACHMENTS = [
    (a, m) for a in Attachment if a.seated and not (a.on_device or a.of_guests) for m in (a.modes or (None,))
]


def lacking(attachment: Attachment) -> bool:
    """What this kernel, machine or user does not have, as others than we say."""
    if attachment is Attachment.IPVLAN:
        made = [
            *[
                "unshare",
                "--map-root-user",
                "--net",
                "ip",
                "link",
                "add",
                "link",
                "lo",
                "name",
                "x",
                "type",
                "ipvlan",
            ]
        ]
        return "Unknown device type" in HOST.run(made, timeout=600).stderr
    if attachment is Attachment.OVS:
        return not os.access("/dev/net/tun", os.W_OK)
    return False


LACKING = {a for a, _ in ATTACHMENTS if lacking(a)}
HERE = [(a, m) for a, m in ATTACHMENTS if a not in LACKING]
IDS = [f"{a}-{m}" if m else str(a) for a, m in HERE]


@pytest.fixture
def holder(tools: Tools) -> Iterator[UserNamespaceHolder | None]:
    """None for root. Where networks cannot be made, the test is skipped by name; in CI it fails."""
    with ExitStack() as stack:
        try:
            own = None if HOST.is_root() else stack.enter_context(user_namespace_holder(HOST, tools, LABEL))
        except RunError as e:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no network here: {e}")
        yield own


def want(attachment: Attachment, instances: int = 2, **settings: Any) -> NetworkRequest:
    offloads = Offloads(**{name: settings.pop(name) for name in OFFLOADS if name in settings})
    asked = NetworkSettings(**settings, offloads=offloads)
    return NetworkRequest(attachment=attachment, settings=asked, instances=instances)


@contextmanager
def standing(
    directory: Path, holder: UserNamespaceHolder | None, *wants: NetworkRequest, label: str = LABEL
) -> Iterator[tuple[Network, ...]]:
    scratch = directory / label
    scratch.mkdir()
    with build_networks(label, wants, scratch, user_namespace_holder=holder) as networks:
        yield networks


@pytest.fixture
def network(holder: UserNamespaceHolder | None, tmp_path: Path) -> Iterator[Network]:
    with standing(tmp_path, holder, want(Attachment.VETH_BRIDGE)) as (network,):
        yield network


def start(
    stack: ExitStack,
    tools: Tools,
    network: Network,
    directory: Path,
    holder: UserNamespaceHolder | None,
) -> list[Instance]:
    backend = get_backend("namespaces")
    environment = Environment(name="e", backend="namespaces", attachment=network.attachment, placements=())
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
        end = time.monotonic() + 600
        while "listening" not in heard.read_text() and time.monotonic() < end:
            time.sleep(0.005)
        done = HOST.run(client, timeout=600, cwd=Path("/"))
        assert done.ok, (done, (directory / "server-err").read_text())
        assert process.wait(600) == 0
        return done.stdout.strip(), heard.read_text().split()[-1]
    finally:
        process.kill()


@pytest.mark.parametrize(("attachment", "mode"), HERE, ids=IDS)
def test_instances_and_hub_reach_each_other(
    tools: Tools,
    holder: UserNamespaceHolder | None,
    tmp_path: Path,
    attachment: Attachment,
    mode: str | None,
) -> None:
    with standing(tmp_path, holder, want(attachment, mode=mode)) as (network,), ExitStack() as stack:
        a, b = network.seats
        first, second = start(stack, tools, network, tmp_path, holder)
        server = first.command([PYTHON, "-c", SERVER, a.address])
        client = second.command([PYTHON, "-c", CLIENT, a.address])
        assert exchange(server, client, tmp_path) == ("PING", b.address)
        server = second.command([PYTHON, "-c", SERVER, b.address])
        client = network.hub_command([PYTHON, "-c", CLIENT, b.address])
        assert exchange(server, client, tmp_path) == ("PING", network.hub_address)
        assert network.trouble() == ""


STACKED = (Attachment.MACVLAN, Attachment.IPVLAN)
OFFLOADS = ("tso", "gso", "gro")
SETTINGS: dict[str, Any] = {
    "mtu": 1400,
    "rto_min": 0.004,
    "congestion_control": "reno",
    "rate": 12_500_000.0,
    "queue_length": 77,
    "tso": False,
    "gso": False,
    "gro": True,
}


def test_every_setting_is_read_back(holder: UserNamespaceHolder | None, tmp_path: Path) -> None:
    # What stands on another device segments and merges as that one does.
    fixed = {k: v for k, v in SETTINGS.items() if k not in OFFLOADS}
    asked = [fixed if a in STACKED else SETTINGS for a, _ in HERE]
    wants = [want(a, mode=m, **own) for (a, m), own in zip(HERE, asked, strict=True)]
    with standing(tmp_path, holder, *wants) as networks:
        for (_, mode), own, network in zip(HERE, asked, networks, strict=True):
            seats = [f for place, f in facts(network).items() if place != "hub"]
            assert [{k: f[k] for k in own} for f in seats] == [own] * 2, network.attachment
            assert {f["qdisc"] for f in seats} == {"tbf"}
            if mode is not None:
                assert {f["mode"] for f in seats} == {mode}
            record = network.record()
            assert record["asked"] == own | ({} if mode is None else {"mode": mode})
            assert record["got"] == network.read_back


HOLDING = f"{CLIENT}    import time; time.sleep(3600)"


@pytest.mark.parametrize("asked", [None, 0.004])
def test_a_least_rto_reaches_the_sockets(
    tools: Tools, holder: UserNamespaceHolder | None, tmp_path: Path, asked: float | None
) -> None:
    """Read back from the route it could still be one that TCP passes over. The RTO is the round trip plus the
    least one, or plus four times the variation where this is more, as on a busy machine."""
    found = one_fits(
        lambda: connection(tools, holder, tmp_path, asked),
        lambda c: asked is None or (c.rto is not None and c.rtt is not None and c.rto < c.rtt + 0.2),
        attempts=20,
    )
    assert found.rto is not None and found.rto >= (0.2 if asked is None else asked), found


def connection(
    tools: Tools, holder: UserNamespaceHolder | None, place: Path, asked: float | None
) -> Connection:
    """One of a new network whose routes have this least RTO."""
    tmp_path = Path(tempfile.mkdtemp(dir=place))
    veth = want(Attachment.VETH, rto_min=asked)
    with standing(tmp_path, holder, veth) as (network,), ExitStack() as stack:
        a, b = network.seats
        first, second = start(stack, tools, network, tmp_path, holder)
        out = tmp_path / "out"
        for argv in (
            first.command([PYTHON, "-c", SERVER.replace("print(address[0])", "peer.recv(1)"), a.address]),
            second.command([PYTHON, "-c", HOLDING, a.address]),
        ):
            out.write_text("")
            process = HOST.start(argv, stdout=out, stderr=out, cwd=Path("/"))
            stack.callback(process.kill)
            end = time.monotonic() + 600
            while not out.read_text() and time.monotonic() < end:
                time.sleep(0.005)
        found = network.meters[b.netns].connections(NODE)
        assert found is not None and len(found) == 1, found
    return found[0]


def test_attachment_that_this_machine_lacks_is_refused_with_a_remedy(
    holder: UserNamespaceHolder | None, tmp_path: Path
) -> None:
    wants = [want(a) for a in (*LACKING, Attachment.VETH)]
    with attempted_networks(LABEL, wants, tmp_path, user_namespace_holder=holder) as (*refused, fine):
        assert isinstance(fine, Network)
        assert all(isinstance(e, UnavailableError) and e.remedy for e in refused), refused


def facts(network: Network) -> dict[str, dict[str, Any]]:
    return cast("dict[str, dict[str, Any]]", network.read_back)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"congestion_control": "nosuch"},
            "cannot be built here: route to 10.99.0.0/24 with congestion_control nosuch",
        ),
        ({"tso": False}, "offload tso off of eth0 (macvlan)"),
    ],
)
def test_kernel_error_is_reported_and_other_networks_are_built(
    holder: UserNamespaceHolder | None, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    wants = [want(Attachment.MACVLAN, **settings), want(Attachment.VETH_BRIDGE)]
    with attempted_networks(LABEL, wants, tmp_path, user_namespace_holder=holder) as (refused, fine):
        assert isinstance(fine, Network) and fine.seats[0].address.startswith("10.99.1.")
        assert fine.trouble() == ""
        assert isinstance(refused, UnavailableError) and said in refused.what


def test_an_interface_that_vanishes_is_noticed(holder: UserNamespaceHolder | None, tmp_path: Path) -> None:
    with standing(tmp_path, holder, want(Attachment.MACVLAN)) as (network,):
        code = "from pyroute2 import IPRoute; ip = IPRoute(); ip.link('del', ifname='device0')"
        assert HOST.run(network.hub_command([sys.executable, "-c", code]), timeout=600, cwd=Path("/")).ok
        assert "network interface eth0 no longer exists (attachment macvlan" in network.trouble()


def test_the_hub_command_carries_the_label_and_hands_back_its_end(network: Network) -> None:
    done = HOST.run(network.hub_command(["sh", "-c", "printenv NEARMETAL_RUN; exit 6"]), timeout=600)
    assert (done.returncode, done.stdout) == (6, f"{LABEL}\n")


def test_facts_are_read_back_from_each_namespace(network: Network, tools: Tools) -> None:
    assert set(network.read_back) == {"hub", "a", "b"}
    default = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    for place, found in facts(network).items():
        assert found["mtu"] == 1500
        assert found["interface"] == (network.hub_interface if place == "hub" else "eth0")
        assert found["congestion_control"]
        assert found["rto_min"] is None or found["rto_min"] >= 0.001
        if HOST.is_root():
            assert found["congestion_control"] == default


def test_each_namespace_has_a_meter_that_reads_it_from_outside(
    tools: Tools, network: Network, holder: UserNamespaceHolder | None, tmp_path: Path
) -> None:
    assert list(network.meters) == [network.hub_netns, *(seat.netns for seat in network.seats)]
    sources = (PROTOCOLS, "dev", "softnet_stat", QDISCS)
    meters = [network.meters[seat.netns] for seat in network.seats]
    hub = network.meters[network.hub_netns]
    a = network.seats[0]

    def counted() -> list[dict[str, float | None]]:
        place = Path(tempfile.mkdtemp(dir=tmp_path))
        before = [m.counters(sources) for m in (*meters, hub)]
        with ExitStack() as stack:
            first, second = start(stack, tools, network, place, holder)
            server = first.command([PYTHON, "-c", SERVER, a.address])
            exchange(server, second.command([PYTHON, "-c", CLIENT, a.address]), place)
        after = [m.counters(sources) for m in (*meters, hub)]
        return [grown(b, c) for b, c in zip(before, after, strict=True)]

    # A kernel with IPv6 sends by itself, and that may fall between the readings of the two ends.
    one, other, between = one_fits(
        counted, lambda c: (c[2]["dev.port0.rx_bytes"] or 0) == c[0]["dev.eth0.tx_bytes"], attempts=10
    )
    for counters in (one, other):
        assert (counters["TcpOutSegs"] or 0) >= 4
        # A busy machine may answer after the retransmission timeout.
        assert 0 <= (counters["TcpExtTCPTimeouts"] or 0) <= (counters["TcpRetransSegs"] or 0) + 1
        assert (counters["dev.eth0.rx_packets"] or 0) >= 4
        assert counters["dev.eth0.rx_drops"] == 0
    assert between["TcpOutSegs"] == 0
    assert [m.connections(NODE) for m in meters] == [[], []]


def test_connections_are_seen_in_the_namespace_that_holds_them(network: Network, tmp_path: Path) -> None:
    address = network.hub_address
    talk = f"{SERVER.replace('print(address[0])', 'import time; time.sleep(3600)')}"
    server = network.hub_command([PYTHON, "-c", talk, address])
    client = network.hub_command([PYTHON, "-c", f"{CLIENT}    import time; time.sleep(3600)", address])
    started: list[Process] = []
    try:
        for argv in (server, client):
            out = tmp_path / f"{len(started)}"
            started.append(HOST.start(argv, stdout=out, stderr=out, cwd=Path("/")))
            end = time.monotonic() + 600
            while not out.read_text() and time.monotonic() < end:
                time.sleep(0.005)
        found = network.meters[network.hub_netns].connections(NODE)
        assert found is not None
        assert {f"{address}:7000"} < {c.local for c in found}
        assert {c.congestion_control for c in found} == {facts(network)["hub"]["congestion_control"]}
        assert all(c.rto is not None and c.rto > 0.001 and c.rtt for c in found)
        assert network.meters[network.seats[0].netns].connections(NODE) == []
    finally:
        for process in started:
            process.kill()


@pytest.mark.alone
def test_networks_leave_nothing_behind(holder: UserNamespaceHolder | None, tmp_path: Path) -> None:
    was_there = NETNS_DIRECTORY.exists()
    links = sorted(p.name for p in Path("/sys/class/net").iterdir())
    with standing(tmp_path, holder, *(want(a, mode=m) for a, m in HERE)):
        kind = LeftoverKind.NETNS if HOST.is_root() else LeftoverKind.PROCESS
        assert kind in [left.kind for left in find(LABEL + "-" if HOST.is_root() else LABEL)]
        assert sorted(p.name for p in Path("/sys/class/net").iterdir()) == links
    assert [left for left in find(LABEL) if holder is None or left.detail != str(holder.pid)] == []
    assert NETNS_DIRECTORY.exists() == was_there


def test_several_networks_exist_side_by_side(
    network: Network, holder: UserNamespaceHolder | None, tmp_path: Path
) -> None:
    wants = [want(a) for a in (Attachment.VETH, Attachment.VETH_BRIDGE, Attachment.MACVLAN)]
    with standing(tmp_path, holder, *wants, *wants, label=f"{LABEL}-other") as others:
        assert len({n.hub_netns for n in (network, *others)}) == 5  # arms on a bridge or macvlan share it
        assert len({s.netns for n in others for s in n.seats}) == 12
        assert len({(n.subnet, s.address) for n in others for s in n.seats}) == 12
