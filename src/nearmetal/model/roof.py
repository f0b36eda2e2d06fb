"""Roofs: what the bare machine gives at most, as measured, and their form in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .record import JsonValue
from .workload import Better

TRIAD, LATENCY, BANDWIDTH, DGEMM = "triad", "latency", "bandwidth", "dgemm"
SOCKETS = "sockets"
DISK_READ, DISK_WRITE = "disk-read", "disk-write"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A roof that a study's metrics are under. place: directory on the disk that it is of, or the arm over
    whose seats it goes."""

    name: str
    ranks: int
    transport: str
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class MeasuredRoof:
    """What the bare machine gives at most, measured. name: 'triad', 'latency', 'bandwidth', 'dgemm', ...;
    ranks: that measured it, None = as many as there are CPUs; transport: 'shm' or 'tcp' of messages, else '';
    value: in `unit`; better: 'higher' or 'lower'; measured: Unix seconds; how: in words; place: directory on
    the disk that it is of, or arm over whose seats it goes, else ''."""

    name: str
    ranks: int | None
    transport: str
    value: float
    unit: str
    better: Better
    measured: float
    how: str
    place: str = ""


def roof_record(roof: MeasuredRoof) -> dict[str, JsonValue]:
    """As it stands in the provenance and in the cache."""
    return {
        "name": roof.name,
        "ranks": roof.ranks,
        "transport": roof.transport,
        "value": roof.value,
        "unit": roof.unit,
        "better": roof.better.value,
        "measured": roof.measured,
        "how": roof.how,
        "place": roof.place,
    }


def read_roofs(found: JsonValue) -> tuple[MeasuredRoof, ...]:
    """The roofs of a provenance; what is none is left out."""
    out: list[MeasuredRoof] = []
    for item in found if isinstance(found, list) else []:
        roof = _read_roof(item) if isinstance(item, dict) else None
        if roof is not None:
            out.append(roof)
    return tuple(out)


def _read_roof(item: Mapping[str, JsonValue]) -> MeasuredRoof | None:
    ranks, value, measured = item.get("ranks"), item.get("value"), item.get("measured")
    better = item.get("better")
    if not isinstance(value, int | float) or not isinstance(measured, int | float):
        return None
    if better not in (Better.HIGHER.value, Better.LOWER.value):
        return None
    return MeasuredRoof(
        name=str(item.get("name", "")),
        ranks=ranks if isinstance(ranks, int) else None,
        transport=str(item.get("transport", "")),
        value=float(value),
        unit=str(item.get("unit", "")),
        better=Better(str(better)),
        measured=float(measured),
        how=str(item.get("how", "")),
        place=str(item.get("place", "")),
    )
