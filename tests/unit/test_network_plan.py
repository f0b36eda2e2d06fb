"""Which networks a run needs: names, addresses, groups of seats, and the request that the worker reads."""

from __future__ import annotations

import json
from ipaddress import ip_address, ip_interface, ip_network
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.errors import UsageError
from nearmetal.model.environments.network import NetworkSettings, Offloads
from nearmetal.model.study import Attachment
from nearmetal.network import plan
from nearmetal.network.plan import NetworkPlan, NetworkRequest
from nearmetal.network.topology import HUB, Link

BUILT = [a for a in Attachment if a.seated and not a.on_device]
KINDS = [(a, mode) for a in BUILT for mode in (a.modes or (None,))]


def want(attachment: Attachment, instances: int = 2, **settings: object) -> NetworkRequest:
    return NetworkRequest(
        attachment=attachment,
        settings=NetworkSettings(**settings),  # type: ignore[arg-type]
        instances=instances,
    )


def one(attachment: Attachment, instances: int = 2, **settings: object) -> NetworkPlan:
    (own,) = plan.plan_networks([want(attachment, instances, **settings)])
    return own


@given(st.integers(1, 253), st.sampled_from([a for a in BUILT if a is not Attachment.VETH]))
def test_places_and_addresses_are_distinct_and_in_the_network(count: int, attachment: Attachment) -> None:
    own = one(attachment, count)
    seats = own.seats({place: f"/run/netns/{place}" for place in own.topology.places})
    addresses = [ip_address(s.address) for s in seats] + [ip_address(own.hub_address)]
    assert own.seat_places[0] == "a" and len(set(own.seat_places)) == count
    assert len(set(addresses)) == count + 1
    assert set(addresses) <= set(ip_network(own.subnet).hosts())


@pytest.mark.parametrize(("attachment", "mode"), KINDS)
def test_every_link_is_created_once_after_those_it_depends_on(attachment: Attachment, mode: str) -> None:
    own = one(attachment, 2, mode=mode).topology
    there: set[tuple[str, str]] = set()
    for link in own.links:
        here = (link.at, link.name)
        assert link.at in own.places
        assert (here in there) == (link.kind == "end"), here
        there.add(here)
        if link.peer is not None:
            assert link.peer not in there
            there.add(link.peer)
        assert link.over is None or (link.made_at, link.over) in there
        assert link.master is None or (link.at, link.master) in there
    assert all((place, name) in there for place, name in own.report.items())
    assert len({ip_interface(link.address).ip for link in own.links if link.address}) == sum(
        link.address is not None for link in own.links
    )


@pytest.mark.parametrize("attachment", BUILT)
def test_settings_reach_the_interface_of_every_instance(attachment: Attachment) -> None:
    asked = {"mtu": 1400, "rto_min": 0.002, "congestion_control": "reno", "rate": 1e8, "queue_length": 10}
    own = one(attachment, 2, **asked, offloads=Offloads(tso=False))
    for place in own.seat_places:
        (link,) = [k for k in own.topology.links if (k.at, k.name) == (place, own.topology.report[place])]
        assert (link.mtu, link.rate, link.queue_length) == (1400, 1e8, 10)
        assert link.offloads["tso"] is False
        (route,) = [r for r in own.topology.routes if r.at == place and r.destination == own.subnet]
        assert (route.rto_min, route.congestion_control) == (0.002, "reno")


def test_a_tunnel_leaves_room_for_its_headers() -> None:
    links = one(Attachment.VXLAN, mtu=9000).topology.links
    assert {link.mtu for link in links if link.kind == "vxlan"} == {9000}
    assert {link.mtu for link in links if link.kind != "vxlan"} == {9050}
    assert {link.mtu for link in one(Attachment.VXLAN).topology.links if link.kind == "bridge"} == {1500}


def test_addresses_below_a_tunnel_do_not_overlap_those_above() -> None:
    for subnet in ("10.98.0.0/16", "10.0.0.0/8", "10.99.7.0/24"):
        links = one(Attachment.VXLAN, subnet=subnet).topology.links
        inner = [ip_interface(k.address).network for k in links if k.kind == "vxlan" and k.address]
        outer = [ip_interface(k.address).network for k in links if k.kind != "vxlan" and k.address]
        assert outer and not any(i.overlaps(o) for i in inner for o in outer)


@pytest.mark.parametrize(("mode", "devices"), [("bridge", 1), ("vepa", 1), ("private", 3), ("passthru", 3)])
def test_modes_of_macvlan(mode: str, devices: int) -> None:
    links = one(Attachment.MACVLAN, 3, mode=mode).topology.links
    own = [link for link in links if link.kind == "macvlan"]
    assert [link.options for link in own] == [{"macvlan_mode": mode}] * 3
    assert len({link.over for link in own}) == devices
    ports = [link for link in links if link.master is not None]
    assert [link.hairpin for link in ports] == [mode == "vepa"] * devices


def test_a_macvtap_is_a_macvlan_with_a_device() -> None:
    for mode in Attachment.MACVTAP.modes:
        tap, plain = (one(a, 3, mode=mode).topology for a in (Attachment.MACVTAP, Attachment.MACVLAN))
        own = [link for link in tap.links if link.kind == "macvtap"]
        assert [link.options for link in own] == [{"macvtap_mode": mode}] * 3
        assert [(k.at, k.name, k.over) for k in tap.links] == [(k.at, k.name, k.over) for k in plain.links]


def test_modes_of_ipvlan_are_numbers_of_the_kernel() -> None:
    for mode, number in (("l2", 0), ("l3", 1)):
        links = one(Attachment.IPVLAN, mode=mode).topology.links
        assert [k.options for k in links if k.kind == "ipvlan"] == [{"ipvlan_mode": number}] * 3


def test_arms_of_like_attachment_and_settings_share_a_network() -> None:
    slow = {"rate": 1e6}
    wants = [
        want(Attachment.VETH_BRIDGE, 2),
        want(Attachment.MACVLAN, 2),
        want(Attachment.VETH_BRIDGE, 3),
        want(Attachment.VETH_BRIDGE, 1, **slow),
        want(Attachment.MACVLAN, 1, mode="bridge"),
    ]
    plans = plan.plan_networks(wants)
    assert plan.groups_of(wants) == ((0, 2), (1,), (3,), (4,))
    assert [p.groups for p in plans[:2]] == [(range(2), range(2, 5)), (range(2),)]
    assert len({p.subnet for p in plans}) == len(plans)
    for p, q in pairwise(plans):
        assert not ip_network(p.subnet).overlaps(ip_network(q.subnet))


def test_a_pair_joins_two_and_no_more() -> None:
    pair, hubbed = one(Attachment.VETH, 2), one(Attachment.VETH, 1)
    assert (pair.topology.places, pair.hub, pair.hub_address) == (("a", "b"), "a", pair.addresses[0])
    assert (hubbed.topology.places, hubbed.hub, hubbed.hub_interface) == ((HUB, "a"), HUB, "port0")
    assert len(plan.plan_networks([want(Attachment.VETH)] * 3)) == 3
    with pytest.raises(UsageError, match="at most 2 instances, not 3"):
        plan.plan_networks([want(Attachment.VETH, 3)])


@pytest.mark.parametrize("count", [0, 254])
def test_too_many_or_no_seats(count: int) -> None:
    with pytest.raises(UsageError, match=f"1 to 253 instances, not {count}"):
        one(Attachment.VETH_BRIDGE, count)
    assert len(one(Attachment.VETH_BRIDGE, 254, subnet="10.0.0.0/16").addresses) == 254


def test_too_many_networks() -> None:
    wants = [want(Attachment.VETH_BRIDGE, mtu=1000 + i) for i in range(plan.MAX_NETWORKS + 1)]
    assert len(plan.plan_networks(wants[:-1])) == plan.MAX_NETWORKS
    with pytest.raises(UsageError, match="more than 256 networks"):
        plan.plan_networks(wants)


def test_devices_go_on_where_the_addresses_of_the_last_arm_end() -> None:
    settings = NetworkSettings(devices=("x1", "x2", "x3"), subnet="192.0.2.0/24")
    wants = [
        NetworkRequest(attachment=Attachment.PHYS, settings=settings, instances=len(d), devices=d)
        for d in (("x1", "x2"), ("x3",))
    ]
    first, second = plan.plan_networks(wants)
    assert (first.addresses, first.hub, first.hub_interface) == (("192.0.2.2", "192.0.2.3"), "a", "x1")
    assert second.addresses == ("192.0.2.4",)
    assert [(k.kind, k.name) for k in second.topology.links] == [("device", "x3")]


def test_the_names_go_on_after_z() -> None:
    assert plan.seat_names(54)[25:29] == ("z", "aa", "ab", "ac")
    assert plan.seat_names(54)[-2:] == ("ba", "bb")
    assert plan.seat_names(703)[-2:] == ("zz", "aaa")


@pytest.mark.parametrize("name", ["", "a" * 16, "ä" * 8, "a/b", "a b", "a:b"])
def test_names_that_no_interface_can_have(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a network interface"):
        Link(at=HUB, name=name, kind="bridge")


def test_the_request_is_json_and_names_everything_the_worker_needs() -> None:
    own = one(Attachment.VETH_BRIDGE)
    paths = {place: f"/n/{place}" for place in own.topology.places}
    asked = plan.request("nearmetal-x", [own], [paths], create=["h", "a", "b"], meters=9)
    read = json.loads(json.dumps(asked))
    assert (read["create"], read["meters"]) == (["h", "a", "b"], 9)
    (network,) = read["networks"]
    assert network["label"] == "nearmetal-x-net0"
    assert network["paths"] == paths and network["places"] == [HUB, "a", "b"]
    assert [(k["at"], k["name"], k["kind"]) for k in network["links"]] == [
        (HUB, "br0", "bridge"),
        (HUB, "port0", "veth"),
        ("a", "eth0", "end"),
        (HUB, "port1", "veth"),
        ("b", "eth0", "end"),
    ]
    assert network["links"][1]["peer"] == ["a", "eth0"]
    assert network["report"] == {HUB: "br0", "a": "eth0", "b": "eth0"}
