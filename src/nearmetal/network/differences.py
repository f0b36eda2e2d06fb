"""Compares the requested settings with those that the kernel reports. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.environments.network import NetworkSettings
from ..model.record import JsonValue
from .topology import HUB

_MACVLAN = {"private": 1, "vepa": 2, "bridge": 4, "passthru": 8}
_IPVLAN = {"l2": 0, "l3": 1}
_RATE_TOLERANCE = 1e-6


def differences(
    settings: NetworkSettings, mode: str | None, read_back: Mapping[str, JsonValue]
) -> tuple[str, ...]:
    """Return the differences as text: 'eth0 of a: mtu 9000 was requested, the kernel has 1500'.

    read_back: facts by place; the hub is ignored.
    """
    out = []
    wanted = {k: v for k, v in settings.requested().items() if k not in ("devices", "subnet", "mode")}
    for place, facts in read_back.items():
        if place == HUB or not isinstance(facts, dict):
            continue
        kind = facts["kind"]
        if (
            mode is not None
            and kind in ("macvlan", "macvtap", "ipvlan")
            and facts["mode"] not in (mode, _MACVLAN.get(mode), _IPVLAN.get(mode))
        ):
            out.append(_words(facts, place, "mode", mode, facts["mode"]))
        for name, expected in wanted.items():
            if not _same(name, expected, facts.get(name)):
                out.append(_words(facts, place, name, expected, facts.get(name)))
    return tuple(out)


def _words(facts: Mapping[str, JsonValue], place: str, name: str, expected: object, actual: object) -> str:
    return f"{facts['interface']} of {place}: {name} {expected} was requested, the kernel has {actual}"


def _same(name: str, expected: object, actual: object) -> bool:
    if name == "rate" and isinstance(expected, float) and isinstance(actual, (int, float)):
        return abs(actual - expected) <= max(expected * _RATE_TOLERANCE, 1)
    return expected == actual
