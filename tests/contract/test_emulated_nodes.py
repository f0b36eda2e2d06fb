"""Emulated nodes for real: they reach each other over links of the rate and delay asked for, and nothing is
left of them."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.patience import one_fits

from nearmetal.environments import InstanceRequest, Tools
from nearmetal.environments.native import Native
from nearmetal.errors import RunError
from nearmetal.host import LocalHost
from nearmetal.host.leftovers import find
from nearmetal.host.namespaces import entered
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.roof import SOCKETS, RoofRequest
from nearmetal.model.study import Attachment, Environment, NodeLink
from nearmetal.network.build import Emulation, Network, build_networks
from nearmetal.network.plan import NetworkRequest
from nearmetal.node.links import Links, node_links
from nearmetal.node.machine import prepare_machine
from nearmetal.node.progress import NullProgress
from nearmetal.run.bounds.socket import by_sockets

HOST = LocalHost()
RATE = 200e6 / 8
pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(os.geteuid() != 0, reason="named network namespaces need root"),
]


@contextmanager
def standing(
    tools: Tools, tmp_path: Path, *, attachment: Attachment = Attachment.HOST, **link: float
) -> Iterator[tuple[Network, Links, Emulation]]:
    label = f"nearmetal-nodes{os.getpid()}-{secrets.token_hex(3)}"  # no run's: no run sweeps it away
    want = NetworkRequest(
        attachment=attachment,
        settings=NetworkSettings(),
        instances=2 if attachment is Attachment.HOST else 4,
        nodes=2,
        link=NodeLink(**link),  # type: ignore[arg-type]
    )
    with (
        build_networks(label, (want,), tmp_path) as (network,),
        node_links(HOST, tools, (network,), {}, tmp_path, label, None) as links,
    ):
        assert network.emulation is not None
        yield network, links, network.emulation
    assert not find(label)


def sent(near: str, far: str, address: str, size: int) -> bool:
    """Whether so many bytes arrive as they were sent, over TCP."""
    made = []
    for path in (near, far):
        with entered(path):
            made.append(socket.socket())
        made[-1].settimeout(600)
    out, back = made
    with out, back:
        back.bind((address, 0))
        back.listen(1)
        out.connect(back.getsockname())
        taken, _ = back.accept()
        data = secrets.token_bytes(size)
        with taken:
            sender = threading.Thread(target=out.sendall, args=(data,), daemon=True)
            sender.start()
            got = bytearray()
            while len(got) < size:
                got += taken.recv(1 << 16)
            sender.join(600)
    return bytes(got) == data


def test_the_roof_of_a_network_holds_its_delay_and_loopback_none(tools: Tools, tmp_path: Path) -> None:
    machine = prepare_machine(HOST, NullProgress())
    if len(machine.cpus) < 2:
        pytest.skip("both ends spin, each on a CPU of its own")

    def latency(network: Network, arm: str) -> float:
        wanted = RoofRequest(name=SOCKETS, ranks=2, transport="tcp", place=arm)
        roof = by_sockets({"nodes/2": network}, machine, wanted, "label", tmp_path)
        assert (roof.name, roof.place, roof.unit) == (SOCKETS, arm, "s")
        return roof.value

    with standing(tools, tmp_path, delay=0.002) as (network, _, _):
        delayed = one_fits(lambda: latency(network, "nodes/2"), lambda seconds: seconds < 0.05, attempts=20)
        assert delayed >= 0.002
        assert one_fits(lambda: latency(network, ""), lambda seconds: seconds < 0.002, attempts=20) > 0
        gone = replace(network, seats=(network.seats[0], replace(network.seats[1], address="10.255.255.1")))
        with pytest.raises(RunError, match=r"nodes/2: nm-box: listen: .*10\.255\.255\.1"):
            latency(gone, "nodes/2")


def test_links_have_the_rate_and_the_delay_asked_for(tools: Tools, tmp_path: Path) -> None:
    """A busy machine delays probes and the relay, and drops frames then: one set of links has to fit."""

    def links_fit() -> str:
        directory = tmp_path / secrets.token_hex(4)
        directory.mkdir()
        try:
            check_links(tools, directory)
        except AssertionError as e:
            return str(e)
        return ""

    one_fits(links_fit, lambda misfit: not misfit, attempts=10)


def check_links(tools: Tools, tmp_path: Path) -> None:
    with standing(tools, tmp_path, rate=RATE, delay=0.002) as (network, links, emulation):
        record = links.record(network)
        told = record["link"]
        assert isinstance(told, dict) and record["emulated_nodes"] == 2
        measured = links.measured[network.label]
        assert measured["round_trip"] >= 0.004, "twice the delay, and never less"
        assert measured["round_trip"] < 0.1
        assert 0 < measured["rate"] <= 1.15 * RATE
        if emulation.relay:
            relay = told["relay"]
            assert isinstance(relay, dict) and int(str(relay["forwarded"])) > 300
            assert relay["dropped"] == 0
        near, far = emulation.nodes.values()
        assert sent(near, far, emulation.addresses[1], 300_000)


def test_without_delay_the_kernel_alone_forwards(tools: Tools, tmp_path: Path) -> None:
    with standing(tools, tmp_path, delay=0.0) as (network, links, emulation):
        assert emulation.relay == () and links.relays == {}
        told = links.record(network)["link"]
        assert isinstance(told, dict) and told["delay_by"] == "bridge"


@pytest.mark.parametrize("attachment", [Attachment.VETH_BRIDGE, Attachment.MACVLAN, Attachment.OVS])
def test_containers_of_both_nodes_reach_each_other(
    tools: Tools, tmp_path: Path, attachment: Attachment
) -> None:
    with standing(tools, tmp_path, attachment=attachment) as (network, _, emulation):
        seats = network.seats
        assert len({s.address for s in seats} | set(emulation.addresses)) == 6
        for a, b in ((0, 1), (0, 2), (1, 3)):  # one node, then two
            assert sent(seats[a].netns, seats[b].netns, seats[b].address, 20_000)
        assert network.hub_apart and network.trouble() == ""
        assert (network.mode in ("system", "netdev")) == (attachment is Attachment.OVS)


def test_a_bare_node_is_the_machine_by_another_name_on_another_network(tools: Tools, tmp_path: Path) -> None:
    environment = Environment(name="native", backend="native", placements=("p",))
    with standing(tools, tmp_path) as (network, _, _):
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        request = InstanceRequest(
            label=f"{network.label.rpartition('-')[0]}-0",
            hostname="nm-node",
            environment=environment,
            cpus=(),
            seat=network.seats[1],
            binds=(),
            scratch=scratch,
        )
        with Native().start(HOST, tools, request) as instance:
            code = "import os; print(os.uname().nodename, os.readlink('/proc/self/ns/net'), os.getcwd())"
            done = HOST.run(instance.command([sys.executable, "-c", code]), timeout=600, cwd=tmp_path)
            name, netns, where = done.stdout.split()
            assert (name, where) == ("nm-node", str(tmp_path)), done.stderr
            assert netns == f"net:[{Path(network.seats[1].netns).stat().st_ino}]"
            assert os.uname().nodename != "nm-node"


def test_a_relay_that_dies_is_a_dead_link_and_leaves_nothing(tools: Tools, tmp_path: Path) -> None:
    with standing(tools, tmp_path, rate=RATE) as (network, links, emulation):
        if not emulation.relay:
            pytest.skip("this kernel delays frames itself (netem)")
        relay = links.relays[network.label]
        os.kill(relay.pid, 9)
        near, far = emulation.nodes.values()
        with pytest.raises(TimeoutError):
            sent_within(near, far, emulation.addresses[1])


def sent_within(near: str, far: str, address: str) -> None:
    with entered(near):
        out = socket.socket()
    with entered(far):
        back = socket.socket()
    with out, back:
        back.bind((address, 0))
        back.listen(1)
        out.settimeout(0.5)
        out.connect(back.getsockname())
