"""Names, addresses and the worker's request of a bridged network."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.errors import UsageError
from nearmetal.network import plan


@given(st.integers(1, plan.MAX_SEATS))
def test_names_and_addresses_are_distinct_and_in_the_network(count: int) -> None:
    names = plan.seat_names(count)
    seats = plan.make_seats([f"/run/netns/{name}" for name in names])
    addresses = [ip_address(s.address) for s in seats] + [ip_address(plan.hub_address())]
    assert len(set(names)) == count and names[0] == "a"
    assert len(set(addresses)) == count + 1
    assert set(addresses) <= set(plan.NETWORK.hosts())


@pytest.mark.parametrize("count", [-1, 0, plan.MAX_SEATS + 1])
def test_too_many_or_no_seats(count: int) -> None:
    with pytest.raises(UsageError, match=str(count)):
        plan.seat_names(count)


def test_the_names_go_on_after_z() -> None:
    assert plan.seat_names(54)[25:29] == ("z", "aa", "ab", "ac")
    assert plan.seat_names(54)[-2:] == ("ba", "bb")


def test_the_request_names_everything_the_worker_needs() -> None:
    seats = plan.make_seats(["/n/a", "/n/b"])
    assert plan.request("nearmetal-x", "/n/hub", seats, create=["hub", "a", "b"], meters=9) == {
        "meters": 9,
        "alias": "nearmetal-x",
        "create": ["hub", "a", "b"],
        "hub": {"netns": "/n/hub", "address": "10.99.0.1", "interface": "br0"},
        "prefix": 24,
        "seats": [
            {"netns": "/n/a", "address": "10.99.0.2", "interface": "eth0", "port": "port0"},
            {"netns": "/n/b", "address": "10.99.0.3", "interface": "eth0", "port": "port1"},
        ],
    }
