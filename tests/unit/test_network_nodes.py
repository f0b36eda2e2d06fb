"""The shape of emulated nodes, and the words of their relays: pure."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from nearmetal.environments import InstanceRequest, Seat, Tools, native
from nearmetal.environments.instance import init_name
from nearmetal.environments.native import native_argv
from nearmetal.errors import RunError, UnavailableError, UsageError
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Arm, Attachment, Environment, NodeLink, Placement, Transport
from nearmetal.network import plan
from nearmetal.network.build import Emulation
from nearmetal.network.nodes import DEVICE, SLOT, SWITCH, UPLINK, switch_ports
from nearmetal.network.plan import NetworkPlan, NetworkRequest
from nearmetal.node.links import relay_argv
from nearmetal.report.tables.cells import shape_text
from nearmetal.testing.fake_host import FakeHost

TOOLS = Tools(directory=Path("/opt/nm"))
LINK = NodeLink(rate=1e8, delay=1e-4, queue=20_000)


def want(
    attachment: Attachment, *, nodes: int = 3, instances: int = 6, link: NodeLink = LINK
) -> NetworkRequest:
    return NetworkRequest(
        attachment=attachment,
        settings=NetworkSettings(),
        instances=instances,
        nodes=nodes,
        link=link,
    )


def one(asked: NetworkRequest) -> NetworkPlan:
    (own,) = plan.plan_networks([asked])
    return own


def test_containers_stand_node_by_node_and_mpirun_on_the_first() -> None:
    own = one(want(Attachment.VETH_BRIDGE))
    assert own.nodes == ("hub", "node1", "node2")
    assert own.topology.places == ("hub", "node1", "node2", SWITCH, "a", "b", "c", "d", "e", "f")
    ports = {link.name: link.at for link in own.topology.links if link.name.startswith("port")}
    assert ports == {
        "port0": "hub",
        "port1": "hub",
        "port2": "node1",
        "port3": "node1",
        "port4": "node2",
        "port5": "node2",
    }
    addresses = [own.hub_address, *own.addresses]
    assert len(set(addresses)) == 7 and sorted(addresses, key=ip_address) == addresses


def test_macvlan_links_of_a_node_share_a_device_at_its_bridge() -> None:
    own = one(want(Attachment.MACVLAN, nodes=2, instances=4))
    links = {(k.at, k.name): k for k in own.topology.links}
    for node in ("hub", "node1"):
        slot, device = links[node, SLOT], links[node, DEVICE]
        assert slot.master == "br0" and slot.peer == (node, DEVICE) and device.kind == "end"
    seats = {at: k for (at, name), k in links.items() if name == "eth0"}
    stacked = {at: (k.kind, k.made_at, k.over, k.options) for at, k in seats.items()}
    assert stacked == {
        seat: ("macvlan", node, DEVICE, {"macvlan_mode": "bridge"})
        for seat, node in zip("abcd", ("hub", "hub", "node1", "node1"), strict=True)
    }
    assert not any(name.startswith("port") for _, name in links)


def test_each_node_has_an_open_vswitch_that_a_pair_joins_to_its_bridge() -> None:
    topology = one(want(Attachment.OVS, nodes=2, instances=4)).topology
    assert [switch_ports(topology, node) for node in ("hub", "node1")] == [
        [DEVICE, "port0", "port1"],
        [DEVICE, "port2", "port3"],
    ]
    links = {(k.at, k.name): k for k in topology.links}
    for node in ("hub", "node1"):
        slot = links[node, SLOT]
        assert slot.master == "br0" and slot.peer == (node, DEVICE) and links[node, UPLINK].master == "br0"
    inner = [k for k in topology.links if k.name in (SLOT, DEVICE, "eth0") or k.name.startswith("port")]
    assert len(inner) == 2 * 2 + 2 * 4 and all(k.offloads == {"tx": False} for k in inner)


def test_bare_nodes_are_the_seats() -> None:
    own = one(want(Attachment.HOST, instances=3))
    assert own.seat_places == own.nodes == ("node0", "node1", "node2")
    assert own.hub == "node0" and own.hub_interface == "br0"
    seats = own.seats({place: f"/run/netns/{place}" for place in own.topology.places})
    assert [s.interface for s in seats] == ["br0"] * 3
    assert seats[0].address == own.hub_address


def test_every_link_is_bounded_at_both_ends_and_delays_once() -> None:
    links = {(k.at, k.name): k for k in one(want(Attachment.HOST, instances=3)).topology.links}
    for n in range(3):
        port, uplink = links[SWITCH, f"link{n}"], links[f"node{n}", UPLINK]
        assert port.peer == (f"node{n}", UPLINK)
        assert (port.rate, port.queue, port.delay) == (1e8, 20_000, 1e-4)
        assert (uplink.rate, uplink.queue, uplink.delay) == (1e8, 20_000, None)
        assert not any(port.offloads.values()) and "tx" in uplink.offloads
    at_once = one(want(Attachment.HOST, instances=3, link=replace(LINK, delay=0.0))).topology
    assert all(k.delay is None for k in at_once.links)


def test_each_arm_has_nodes_of_its_own() -> None:
    asked = [
        want(Attachment.HOST, instances=3),
        want(Attachment.HOST, instances=3),
        want(Attachment.VETH_BRIDGE),
    ]
    assert plan.groups_of(asked) == ((0,), (1,), (2,))
    assert len({p.subnet for p in plan.plan_networks(asked)}) == 3


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (want(Attachment.VXLAN), "connect instances by veth-bridge, macvlan or ovs, not by vxlan"),
        (
            replace(want(Attachment.MACVLAN), settings=NetworkSettings(mode="private")),
            "not by macvlan in mode private",
        ),
        (want(Attachment.VETH_BRIDGE, instances=300), "no addresses for 3 nodes and 300 instances"),
    ],
)
def test_impossible_emulated_nodes_are_refused(asked: NetworkRequest, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        one(asked)


class Holding:
    """A user namespace's holder, in tokens."""

    def command(self, argv: list[str], *, pid: int | None = None) -> list[str]:
        assert pid is None
        return ["in-user-namespace", *argv]


def test_the_relay_joins_the_ports_of_the_switch_in_our_groups() -> None:
    emulation = Emulation(
        link=LINK,
        nodes={"node0": "/n0", "node1": "/n1"},
        addresses=("10.99.0.1", "10.99.0.2"),
        switch="/run/netns/s",
        relay=("link0", "link1"),
    )
    groups = {"cpuacct": Path("/cg/launcher")}
    argv = relay_argv(TOOLS, emulation, groups, Path("/s/st"), None)
    assert argv[:4] == ["/opt/nm/nm-box", "relay", "--delay-ns", "100000"]
    assert argv[argv.index("--netns") + 1] == "/run/netns/s"
    assert argv[argv.index("--cgroup") + 1] == "/cg/launcher"
    assert argv[-3:] == ["--", "link0", "link1"]
    rootless = relay_argv(TOOLS, emulation, groups, Path("/s/st"), Holding())  # type: ignore[arg-type]
    assert rootless[0] == "in-user-namespace" and "--cgroup" not in rootless


def test_a_bare_node_gets_a_name_and_a_network_and_nothing_else() -> None:
    environment = Environment(name="native", backend="native", placements=("p",))
    plain = InstanceRequest(
        label="nearmetal-1-0",
        hostname="nm0",
        environment=environment,
        cpus=(),
        seat=None,
        binds=(),
        scratch=Path("/s"),
    )
    init = ("/opt/nm/nm-init", "--first-fd", "3", "--socket", init_name("nearmetal-1-0"))
    assert native_argv(TOOLS, plain) == [*init]
    seat = Seat(netns="/run/netns/n1", address="10.99.0.2", interface="br0", port="")
    argv = native_argv(TOOLS, replace(plain, seat=seat, user_namespace="/proc/7/ns/user"))
    assert argv[:3] == ["/opt/nm/nm-box", "start", "--bare"]
    assert argv[argv.index("--netns") + 1] == "/run/netns/n1"
    assert argv[argv.index("--user-namespace") + 1] == "/proc/7/ns/user"
    moved = native_argv(TOOLS, replace(plain, seat=seat, layer=Path("/l")))
    enter = moved.index("nsenter")
    assert moved[enter : enter + 3] == ["nsenter", "--net=/run/netns/n1", "--"]
    assert moved[enter + 3] == "/opt/nm/nm-init", "a host name of its own would not be restored"
    alone = replace(environment, attachment=Attachment.NONE)
    closed = native_argv(TOOLS, replace(plain, environment=alone, layer=Path("/l")))
    assert closed[closed.index("wrap") : -len(init)] == ["wrap", "--new-net", "--"]


def test_where_no_network_of_its_own_can_be_made_an_instance_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def forbidden(*_: object) -> None:
        raise RunError("nm-box: unshare user namespace: Operation not permitted")

    monkeypatch.setattr(native, "user_namespace_holder", forbidden)
    monkeypatch.setattr(native, "control_groups", lambda *_, **__: nullcontext({}))
    files = {"/proc/sys/kernel/unprivileged_userns_clone": b"0\n"}
    request = InstanceRequest(
        label="nearmetal-1-0",
        hostname="nm0",
        environment=Environment(name="native", backend="native", attachment=Attachment.NONE),
        scratch=tmp_path,
        layer=tmp_path,
    )
    with (
        pytest.raises(UnavailableError, match="no network of its own without root") as refused,
        native.Native().start(FakeHost(root=False, files=files), TOOLS, request),
    ):
        pass
    assert refused.value.remedy == "sysctl -w kernel.unprivileged_userns_clone=1"


def test_a_placement_of_nodes_crosses_them_by_tcp_and_says_that_they_are_emulated() -> None:
    place = Placement(name="p", nodes=2, instances=2, tasks=3)
    assert (place.all_instances, place.ranks, place.node.emulated) == (4, 12, True)
    environment = Environment(name="native", backend="native", placements=("p",))
    single = Placement(name="p", nodes=2, instances=1, tasks=1)
    assert Arm(environment=environment, placement=single).transport is Transport.TCP
    assert shape_text(place, "podman") == "2 emulated nodes × 2 containers × 3 tasks"
    one = Placement(name="p", instances=1, tasks=2)
    shapes = {name: shape_text(one, name) for name in ("native", "lxc", "qemu", "unknown")}
    assert list(shapes.values()) == [
        "2 tasks",
        "1 container × 2 tasks",
        "1 VM × 2 tasks",
        "1 instance × 2 tasks",
    ]
