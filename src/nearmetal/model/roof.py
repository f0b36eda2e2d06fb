"""Roofs: what the bare machine gives at most, as measured, and their form in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

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
class RoofKernel:
    """How one of our kernels measures a roof.

    kernel, params: what is run.
    metrics: of which the best one counts.
    how: in words.
    """

    kernel: str
    params: Mapping[str, str | int]
    metrics: tuple[str, ...]
    better: Better
    how: str


LONG, SHORT = 1 << 20, 8
"""Bytes of the messages whose bandwidth and latency are the roofs."""

ROOF_KERNELS: Mapping[str, RoofKernel] = {
    TRIAD: RoofKernel(
        kernel="stream",
        params={"elements": "auto"},
        metrics=("copy", "scale", "add", "triad"),
        better=Better.HIGHER,
        how="kernel stream, arrays of 4 x the last-level cache, best operation",
    ),
    LATENCY: RoofKernel(
        kernel="pingpong",
        params={"bytes": SHORT},
        metrics=("latency",),
        better=Better.LOWER,
        how="kernel pingpong, 8 B",
    ),
    BANDWIDTH: RoofKernel(
        kernel="pingpong",
        params={"bytes": LONG},
        metrics=("bandwidth",),
        better=Better.HIGHER,
        how="kernel pingpong, 1 MiB",
    ),
}


@dataclass(frozen=True, kw_only=True)
class MeasuredRoof:
    """What the bare machine gives at most, measured.

    name: 'triad', 'latency', 'bandwidth', 'dgemm', ...
    ranks: that measured it; None = as many as there are CPUs.
    transport: 'shm' or 'tcp' of messages, else ''.
    value: the best of all rounds, in `unit`; of each round the median counts.
    rounds: how often it was measured, at different times.
    better: whether a higher or a lower value is better.
    measured: Unix seconds of the last round.
    how: in words.
    place: directory on the disk that it is of, or arm whose network it goes over, else ''.
    """

    name: str
    ranks: int | None
    transport: str
    value: float
    unit: str
    better: Better
    measured: float
    how: str
    place: str = ""
    rounds: int = 1

    def fits(self, wanted: Wanted) -> bool:
        """Whether it is the roof that is wanted."""
        same = (self.name, self.transport, self.place) == (wanted.name, wanted.transport, wanted.place)
        return same and self.ranks in (None, wanted.ranks)

    def with_round(self, other: MeasuredRoof) -> MeasuredRoof:
        """The better of both, with the rounds of both."""
        best = max if self.better is Better.HIGHER else min
        return replace(other, value=best(self.value, other.value), rounds=self.rounds + other.rounds)

    def raised_to(self, values: Iterable[float]) -> MeasuredRoof:
        """Raised to the best of what the bare machine reached with the same kernel and size."""
        best = max if self.better is Better.HIGHER else min
        return replace(self, value=best((self.value, *values)))


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
        "rounds": roof.rounds,
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
        rounds=rounds if isinstance(rounds := item.get("rounds"), int) else 1,
    )
