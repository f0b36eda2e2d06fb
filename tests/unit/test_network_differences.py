"""What was asked of a network against what the kernel says."""

from __future__ import annotations

from typing import Any

import pytest

from nearmetal.model.environments.network import NetworkSettings, Offloads
from nearmetal.network.build import remedy
from nearmetal.network.differences import differences

GOT: dict[str, Any] = {
    "interface": "eth0",
    "kind": "veth",
    "mode": None,
    "mtu": 1500,
    "queue_length": 1000,
    "rate": None,
    "congestion_control": "cubic",
    "rto_min": 0.2,
    "tso": True,
    "gso": True,
    "gro": False,
}


def test_unset_settings_cause_no_differences() -> None:
    assert differences(NetworkSettings(), None, {"hub": GOT, "a": GOT}) == ()
    given = NetworkSettings(
        mtu=1500, rto_min=0.2, offloads=Offloads(tso=True, gro=False), devices=("x",), subnet="10.0.0.0/8"
    )
    assert differences(given, None, {"a": GOT}) == ()


@pytest.mark.parametrize(
    ("settings", "got", "said"),
    [
        ({"mtu": 9000}, {}, "eth0 of a: mtu 9000 was requested, the kernel has 1500"),
        (
            {"rto_min": 0.002},
            {"rto_min": None},
            "eth0 of a: rto_min 0.002 was requested, the kernel has None",
        ),
        ({"offloads": Offloads(gro=True)}, {}, "eth0 of a: gro True was requested, the kernel has False"),
        (
            {"offloads": Offloads(tso=False)},
            {"tso": None},
            "eth0 of a: tso False was requested, the kernel has None",
        ),
        ({"rate": 1e6}, {}, "eth0 of a: rate 1000000.0 was requested, the kernel has None"),
        ({"rate": 1e6}, {"rate": 999_000}, "eth0 of a: rate 1000000.0 was requested, the kernel has 999000"),
    ],
)
def test_each_difference_is_reported(settings: dict[str, Any], got: dict[str, Any], said: str) -> None:
    asked = NetworkSettings(**settings)
    assert differences(asked, None, {"hub": GOT | {"mtu": 1}, "a": GOT | got}) == (said,)


def test_a_rate_is_kept_in_whole_bytes() -> None:
    assert differences(NetworkSettings(rate=125_000.4), None, {"a": GOT | {"rate": 125_000}}) == ()


@pytest.mark.parametrize(
    ("kind", "mode", "got", "good"),
    [
        ("macvlan", "vepa", "vepa", True),
        ("macvlan", "vepa", 2, True),
        ("macvlan", "vepa", "bridge", False),
        ("ipvlan", "l3", 1, True),
        ("ipvlan", "l3", 0, False),
        ("veth", "netdev", None, True),
    ],
)
def test_modes_by_word_or_number(kind: str, mode: str, got: object, good: bool) -> None:
    facts = GOT | {"kind": kind, "mode": got}
    assert (differences(NetworkSettings(), mode, {"a": facts}) == ()) == good


@pytest.mark.parametrize(
    ("kind", "said", "mends"),
    [
        ("ipvlan", "ipvlan eth0: Operation not supported", "modprobe ipvlan (a kernel with CONFIG_IPVLAN)"),
        (
            "macvtap",
            "macvtap eth0: Operation not supported",
            "modprobe macvtap (a kernel with CONFIG_MACVTAP)",
        ),
        ("", "route to x with congestion_control y: Invalid argument", "modprobe tcp_NAME"),
        ("veth", "veth port0: Operation not permitted", "run as root, or let this user make user namespaces"),
        (
            "",
            "offload tso off of eth0 (macvlan): Operation not supported",
            "nearmetal check shows it",
        ),
    ],
)
def test_refusal_of_an_attachment_has_a_remedy(kind: str, said: str, mends: str) -> None:
    assert mends in remedy(kind, said)
