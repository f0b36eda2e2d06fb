"""Which devices of the machine instances get: a strict fake host, and a card that has SR-IOV in a /sys of its
own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from nearmetal.environments import Tools
from nearmetal.environments.holder import UserNamespaceHolder
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import MissingValue
from nearmetal.host.facts.devices import (
    DeviceState,
    device_state,
    free_hardware,
    functions,
    ipv4_routes,
    make_functions,
    physical_functions,
)
from nearmetal.host.notes import Functions, read_notes
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Attachment
from nearmetal.network.build import attempted_networks
from nearmetal.network.devices import allocated
from nearmetal.network.plan import NetworkRequest
from nearmetal.testing.fake_host import FakeHost

ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 0101A8C0 0003 0 0 0 00000000 0 0 0
eth0 0001A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0
"""
IF_INET6 = (
    "00000000000000000000000000000001 01 80 10 80 lo\n2001067c000000000000000000000001 03 40 00 80 eth2\n"
)
LABEL = "nearmetal-0a1b2c"
USED = "is in use: 0.0.0.0/0, 192.168.1.0/24 by it"


class Card(FakeHost):
    """A machine with devices and, where card is named, one that has as many virtual functions as its file in
    the tree says: '<card>v0' and on, which come with a network device each."""

    def __init__(
        self, tree: Path, devices: Mapping[str, Mapping[str, str]], card: str = "", **more: bool
    ) -> None:
        super().__init__(absent=(f"{tree}/*",), **more)  # type: ignore[arg-type]
        self.tree, self.card = tree, card
        for name, attributes in devices.items():
            self.add(name, **attributes)

    def add(self, name: str, **attributes: str) -> None:
        usual = {"flags": "0x1002", "type": "1", "mtu": "1500", "tx_queue_len": "1000", "ifalias": "\n"}
        for key, text in (usual | attributes).items():
            self.files[f"{self.tree}/class/net/{name}/{key}"] = f"{text}\n"

    def read(self, path: str | Path) -> bytes | MissingValue:
        here = Path(path)
        if self.card and here.name == "sriov_numvfs" and here.exists():
            return here.read_bytes()
        count = int(self.numvfs.read_text()) if self.card and self.numvfs.exists() else 0
        every = {Path(p).parts[len(self.tree.parts) + 2] for p in self.files if "/class/net/" in p}
        made = [f"{self.card}v{n}" for n in range(count)]
        self.files["/proc/net/dev"] = "Inter-|\n face |\n" + "".join(f" {n}: 0 0\n" for n in {*every, *made})
        self.files["/proc/net/route"], self.files["/proc/net/if_inet6"] = ROUTES, IF_INET6
        for n, name in enumerate(made):
            self.files[f"{self.tree}/class/net/{self.card}/device/virtfn{n}/net/{name}/ifindex"] = "9\n"
            if f"{self.tree}/class/net/{name}/flags" not in self.files:
                self.add(name)
        return super().read(path)

    @property
    def numvfs(self) -> Path:
        return self.tree / "class/net" / self.card / "device/sriov_numvfs"


@pytest.fixture(autouse=True)
def sys_of_the_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, notes_base: Path) -> None:
    monkeypatch.setattr("nearmetal.host.facts.devices.SYS", tmp_path)


@pytest.fixture
def card(tmp_path: Path) -> Card:
    host = Card(tmp_path, {"eth0": {}, "ens1": {"device/sriov_totalvfs": "8"}}, "ens1")
    host.numvfs.parent.mkdir(parents=True)
    host.numvfs.write_text("0\n")
    return host


def want(
    attachment: Attachment, *devices: str, instances: int = 2, subnet: str | None = None
) -> NetworkRequest:
    settings = NetworkSettings(devices=devices, subnet=subnet)
    return NetworkRequest(attachment=attachment, settings=settings, instances=instances)


def ask(host: Card, *wants: NetworkRequest) -> list[tuple[str, ...] | str]:
    """The devices of each want, or why it gets none."""
    with ExitStack() as stack:
        got = allocated(stack, host, wants, LABEL)
        return [g.what if isinstance(g, UnavailableError) else g.devices for g in got]


def test_the_state_of_a_device_is_read(tmp_path: Path) -> None:
    host = Card(tmp_path, {"eth1": {"flags": "0x1003", "mtu": "9000", "ifalias": "cable"}})
    assert device_state(host, "eth1") == DeviceState(
        name="eth1", alias="cable", mtu=9000, queue_length=1000, up=True
    )


@pytest.mark.parametrize(
    ("name", "attributes", "said"),
    [
        ("eth0", {}, USED),
        ("eth2", {}, "is in use: 2001067c000000000000000000000001 by it"),
        ("lo", {"flags": "0x9"}, "lo is not an Ethernet device"),
        ("ib0", {"type": "32"}, "ib0 is not an Ethernet device"),
        ("eth3", {"master/ifindex": "4"}, "eth3 is in use: it is part of a bridge or bond"),
        ("eth4", {"flags": "what"}, "there is no network device eth4"),
    ],
)
def test_devices_that_are_none_for_us(
    tmp_path: Path, name: str, attributes: dict[str, str], said: str
) -> None:
    host = Card(tmp_path, {name: attributes})
    found = device_state(host, name)
    assert isinstance(found, MissingValue) and said in found.reason
    assert ask(host, want(Attachment.PHYS, name, instances=1)) == [f"attachment phys: {found.reason}"]


def test_routes_are_read_in_the_kernels_byte_order(tmp_path: Path) -> None:
    found = [(device, str(network)) for device, network in ipv4_routes(Card(tmp_path, {}))]
    assert found == [("eth0", "0.0.0.0/0"), ("eth0", "192.168.1.0/24")]


def test_free_cards_are_those_with_hardware_and_without_routes(tmp_path: Path) -> None:
    hardware = {"device/uevent": "DRIVER=x"}
    host = Card(tmp_path, {"eth0": hardware, "eth1": hardware, "veth9": {}})
    assert free_hardware(host) == ("eth1",)


def test_physical_devices_go_round_and_none_twice(tmp_path: Path) -> None:
    host = Card(tmp_path, {"a1": {}, "a2": {}, "a3": {}})
    own = want(Attachment.PHYS, "a1", "a2", "a3", instances=1)
    assert ask(host, own, own, own, own) == [
        ("a1",),
        ("a2",),
        ("a3",),
        "attachment phys: 1 instances need a device each, and there are 0 left of a1, a2, a3",
    ]
    bridged = want(Attachment.VETH_BRIDGE)
    assert ask(host, bridged) == [()]


def test_addresses_that_are_in_use_on_the_machine(tmp_path: Path) -> None:
    host = Card(tmp_path, {"a1": {}})
    (said,) = ask(host, want(Attachment.PHYS, "a1", instances=1, subnet="192.168.0.0/16"))
    assert said == (
        "attachment phys: the addresses of 192.168.0.0/16 are in use here: 192.168.1.0/24 is reached by eth0"
    )


def test_without_root_no_device_is_taken(tmp_path: Path) -> None:
    host = Card(tmp_path, {"a1": {}}, root=False)
    (said,) = ask(host, want(Attachment.PHYS, "a1", instances=1))
    assert isinstance(said, str) and said.startswith("attachment phys needs root")


def test_without_root_each_of_several_arms_on_devices_has_its_reason(tmp_path: Path) -> None:
    wants = [want(Attachment.PHYS, "a1"), want(Attachment.SRIOV, "a1")]
    host, tools, label = FakeHost(root=False), Tools(directory=tmp_path), "nearmetal-check-1"
    holder = UserNamespaceHolder(host=host, tools=tools, label=label, path="/proc/7/ns/user", pid=7)
    with attempted_networks(label, wants, tmp_path, user_namespace_holder=holder, host=host) as found:
        assert [str(error).partition(":")[0] for error in found] == [
            "attachment phys needs root",
            "attachment sriov needs root",
        ]


def test_virtual_functions_are_switched_on_and_off_again(card: Card) -> None:
    assert physical_functions(card) == ("ens1",)
    assert functions(card, "ens1") == ()
    sriov = want(Attachment.SRIOV, "ens1")
    with ExitStack() as stack:
        got = allocated(stack, card, [sriov, sriov], LABEL)
        assert [g.devices for g in got if isinstance(g, NetworkRequest)] == [
            ("ens1v0", "ens1v1"),
            ("ens1v2", "ens1v3"),
        ]
        assert card.numvfs.read_text() == "4\n"
        (note,), _ = read_notes()
        assert (note.label, note.change) == (LABEL, Functions(card="ens1", before=0, made=4))
    assert card.numvfs.read_text() == "0\n"
    assert read_notes() == ((), ())


def test_virtual_functions_that_are_there_are_used_and_stay(card: Card) -> None:
    card.numvfs.write_text("3\n")
    card.add("ens1v0", **{"master/ifindex": "7"})  # a virtual machine's, say
    assert ask(card, want(Attachment.SRIOV, "ens1")) == [("ens1v1", "ens1v2")]
    assert card.numvfs.read_text() == "3\n"
    assert ask(card, want(Attachment.SRIOV, "ens1", instances=3)) == [
        "attachment sriov: 3 instances need a device each, and there are 2 left of ens1v1, ens1v2"
    ]


def test_a_device_without_virtual_functions_is_named(card: Card) -> None:
    assert ask(card, want(Attachment.SRIOV, "eth0")) == ["attachment sriov: eth0 has no SR-IOV"]
    (said,) = ask(card, want(Attachment.SRIOV, "ens1", instances=9))
    assert isinstance(said, str) and said.startswith("attachment sriov: 9 instances need a device each")


def test_a_number_of_virtual_functions_that_somebody_else_has_changed_is_kept(card: Card) -> None:
    with make_functions(card, "ens1", 2, LABEL):
        card.numvfs.write_text("5\n")
    assert card.numvfs.read_text() == "5\n"


def test_refused_number_of_virtual_functions_is_reported(card: Card) -> None:
    card.numvfs.unlink()
    card.numvfs.mkdir()
    card.card = ""
    refused = pytest.raises(RunError, match="ens1: 2 virtual functions were refused: Is a directory")
    with refused, make_functions(card, "ens1", 2, LABEL):
        pass
