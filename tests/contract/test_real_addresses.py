"""Ports at a bridge of a machine, and addresses that another one on the wire has, in network namespaces."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from ipaddress import IPv4Address
from typing import Any

import pytest
from tests.unit.study_file.conftest import catalog
from tests.unit.test_real_network_parts import arm

from nearmetal.errors import UnavailableError
from nearmetal.host import Completed, LocalHost
from nearmetal.model.study import Attachment
from nearmetal.node.real_addresses import Attached, plan_ends, require_unanswered
from nearmetal.node.real_networks import make_network, make_seat
from nearmetal.study_file import Catalog

__all__ = ["catalog"]
pytestmark = [
    pytest.mark.more,
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="named network namespaces need root"),
]
LABEL = f"test-nearmetal-{os.getpid() % (1 << 24):06x}"
"""No label of nearmetal, since runs remove what has one."""


@pytest.fixture
def namespace() -> Iterator[Callable[[str], str]]:
    """Makes a network namespace. Returns its path."""
    with ExitStack() as stack:

        def make(name: str) -> str:
            ip("netns", "add", f"{LABEL}-{name}")
            stack.callback(ip, "netns", "delete", f"{LABEL}-{name}")
            return f"/run/netns/{LABEL}-{name}"

        yield make


def ip(*words: str, within: str = "") -> str:
    enter = ("nsenter", f"--net={within}") if within else ()
    return subprocess.run([*enter, "ip", *words], check=True, capture_output=True, text=True).stdout


class Within(LocalHost):
    """Runs commands in a network namespace."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def run(self, argv: Sequence[str], **more: Any) -> Completed:
        return super().run(["nsenter", f"--net={self.path}", *argv], **more)


def mtu(link: str, within: str) -> int:
    words = ip("-oneline", "link", "show", "dev", link, within=within).split()
    return int(words[words.index("mtu") + 1])


@pytest.fixture
def jumbo(namespace: Callable[[str], str]) -> str:
    """A machine with a bridge br0 whose MTU follows its only port, 9000."""
    path = namespace("machine")
    ip("link", "add", "br0", "type", "bridge", within=path)
    ip("link", "add", "port", "mtu", "9000", "type", "veth", "peer", "name", "wire", within=path)
    ip("link", "set", "dev", "port", "master", "br0", "up", within=path)
    assert mtu("br0", path) == 9000
    return path


@pytest.mark.parametrize(("wanted", "got"), [("", 9000), ("9000", 9000), ("1400", 1400), ("9001", None)])
@pytest.mark.parametrize("interface", ["br0", "port"])
def test_a_port_leaves_the_mtu_of_the_bridge(
    wanted: str, got: int | None, interface: str, jumbo: str, catalog: Catalog
) -> None:
    """wanted: the MTU that the study asks for; got: that of eth0, None if it is refused."""
    more = f", network: {{mtu: {wanted}}}" if wanted else ""
    found = arm(catalog, f"attachment: veth-bridge{more}")
    (ends,) = plan_ends([found.environment.network], 2, 0)
    machine = Attached(name="n1", host=Within(jumbo), interface=interface, address="10.1.0.2")
    name = f"{LABEL}-net3-a"
    with ExitStack() as stack:
        if got is None:
            with pytest.raises(UnavailableError, match="the bridge br0 has an MTU of 9000"):
                make_seat(stack, found, name, 3, ends, [machine, machine], 1)
        else:
            assert make_seat(stack, found, name, 3, ends, [machine, machine], 1)["mtu"] == got
            port = f"nm{LABEL[-6:]}-3s"
            assert mtu(port, jumbo) == 9000 and "master br0" in ip("link", "show", port, within=jumbo)
        assert mtu("br0", jumbo) == 9000


def test_an_address_that_another_machine_has_is_refused(namespace: Callable[[str], str]) -> None:
    here, there = namespace("here"), namespace("there")
    ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", there, within=here)
    for path, address in ((here, "10.99.0.1/24"), (there, "10.99.0.3/24")):
        ip("address", "add", address, "dev", "eth0", within=path)
        ip("link", "set", "dev", "eth0", "up", within=path)
    machine = Attached(name="", host=LocalHost(), interface="ib0", address="10.1.0.2")

    def ask(*numbers: int) -> None:
        asked = [IPv4Address(f"10.99.0.{n}") for n in numbers]
        require_unanswered(here, "eth0", asked, machine, Attachment.MACVLAN)

    ask(1, 2)
    with pytest.raises(UnavailableError, match=r"over ib0: another machine has the address 10\.99\.0\.3"):
        ask(1, 2, 3)
    ip("address", "add", "10.99.0.1/24", "dev", "eth0", within=there)
    with pytest.raises(UnavailableError, match=r"has the address 10\.99\.0\.1"):
        ask(1, 2)


@pytest.mark.parametrize("attachment", ["macvlan", "veth-bridge", "veth-routed"])
def test_two_networks_at_once_need_two_subnets(
    attachment: str, namespace: Callable[[str], str], catalog: Catalog
) -> None:
    """Two machines on one wire. The second network has the addresses of the first, as of a killed run."""
    paths = (namespace("head"), namespace("n1"))
    ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", paths[1], within=paths[0])
    for at, path in enumerate(paths):
        ip("link", "add", "br0", "type", "bridge", within=path)
        ip("link", "set", "dev", "eth0", "master", "br0", "up", within=path)
        ip("address", "add", f"10.231.78.{at + 1}/24", "dev", "br0", within=path)
        ip("link", "set", "dev", "br0", "up", within=path)
    machines = [
        Attached(name=name, host=Within(path), interface="br0", address=f"10.231.78.{at + 1}")
        for at, (name, path) in enumerate(zip(("", "n1"), paths, strict=True))
    ]
    found = arm(catalog, f"attachment: {attachment}")
    first, other = plan_ends([found.environment.network] * 2, 2, 7)
    with ExitStack() as stack:
        network = make_network(stack, found, f"{LABEL}-net0", 0, first, machines)
        assert [seat.address for seat in network.seats] == ["10.99.7.2"]
        with pytest.raises(UnavailableError, match="another machine has the address"), ExitStack() as second:
            make_network(second, found, f"{LABEL}-net1", 1, first, machines)
        make_network(stack, found, f"{LABEL}-net2", 2, other, machines)
