"""Every backend takes its seats on networks that are built already: instances reach each other, see the
devices of their seat and leave it as it was. As root; seats of a user: test_network_attachments.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.contract.answers import checked
from tests.contract.not_here import not_here
from tests.contract.test_backends import HOST, Rig, is_container, out
from tests.contract.test_network_attachments import CLIENT, PYTHON, SERVER, exchange, standing, want

from nearmetal.environments import InstanceRequest, Seated, Tools, Unavailable
from nearmetal.environments.leftovers import find_all
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.model.study import Attachment
from nearmetal.network.build import Network

pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="most backends take seats as root alone"),
]
CONTAINERS = [n for n in backend_names() if n not in not_here() and is_container(n)]
NAMES = [n for n in CONTAINERS if "net" in get_backend(n).capabilities.own]


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with standing(tmp_path, None, want(Attachment.MACVLAN, mtu=1400)) as (network,):
        yield network


@pytest.fixture
def rig(request: pytest.FixtureRequest, tools: Tools, tmp_path: Path, network: Network) -> Iterator[Rig]:
    """The backend named, and after the test nothing of it."""
    if request.param == "docker":
        request.getfixturevalue("docker")
    answer = checked(request.param, tools)
    if isinstance(answer, Unavailable):
        reason = f"{request.param}: {answer.reason}; {answer.remedy}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    rig = Rig(backend=get_backend(request.param), tools=tools, directory=tmp_path, user_namespace=None)
    yield rig
    assert find_all(HOST, rig.label + "-") == ()
    assert network.trouble() == ""


def seated(rig: Rig, network: Network, number: int, slot: str) -> InstanceRequest:
    environment = rig.environment(attachment=network.attachment)
    return rig.request(slot, environment, seat=network.seats[number])


@pytest.mark.parametrize("rig", NAMES, indirect=True)
def test_instances_in_their_seats_reach_each_other(rig: Rig, network: Network, tmp_path: Path) -> None:
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(rig.backend.start(HOST, rig.tools, seated(rig, network, i, f"i{i}")))
            for i in range(2)
        )
        for i, instance in enumerate((first, second)):
            inside = f"net:[{Path(network.seats[i].netns).stat().st_ino}]"
            assert out(instance, "readlink", "/proc/self/ns/net") == inside
            assert set(out(instance, "ls", "/sys/class/net").split()) == {"lo", "eth0"}
            assert out(instance, "cat", "/sys/class/net/eth0/mtu") == "1400"
            assert out(instance, "cat", "/proc/sys/kernel/hostname") == instance.hostname
        a, b = network.seats
        server = first.command([PYTHON, "-c", SERVER, a.address])
        client = second.command([PYTHON, "-c", CLIENT, a.address])
        assert exchange(server, client, tmp_path) == ("PING", b.address)


@pytest.mark.parametrize("rig", [n for n in NAMES if isinstance(get_backend(n), Seated)], indirect=True)
def test_prepared_seat_is_used_by_successive_instances(rig: Rig, network: Network) -> None:
    backend = rig.backend
    assert isinstance(backend, Seated)
    prepared = seated(rig, network, 0, "seat")
    with backend.seated(HOST, rig.tools, prepared):
        for turn in "ab":
            asked = seated(rig, network, 0, turn)
            with backend.start(
                HOST, rig.tools, InstanceRequest(**{**vars(asked), "hostname": "nmseat"})
            ) as i:
                assert out(i, "cat", "/proc/sys/kernel/hostname") == "nmseat"
                assert out(i, "ls", "/sys/class/net/eth0/address")
                left = [item.name for item in find_all(HOST, rig.label + "-") if item.kind == "container"]
                assert sorted(left) == sorted([prepared.label, asked.label])  # no other for the seat
