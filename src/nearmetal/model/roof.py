"""Upper bounds ("roofs"): the best values measured on the bare machine, and their form in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from .record import JsonValue
from .workloads.metric import Better

TRIAD, LATENCY, BANDWIDTH, DGEMM = "triad", "latency", "bandwidth", "dgemm"
SOCKETS = "sockets"
DISK_READ, DISK_WRITE = "disk-read", "disk-write"


@dataclass(frozen=True, kw_only=True)
class RoofRequest:
    """An upper bound that a study needs for its metrics.

    place: directory on the disk to measure, or the arm whose network is measured; else ''.
    """

    name: str
    ranks: int
    transport: str
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class RoofKernel:
    """How a built-in kernel measures an upper bound.

    kernel, params: the kernel that is run, and its parameters.
    metrics: metrics whose best value is the bound.
    """

    kernel: str
    params: Mapping[str, str | int]
    metrics: tuple[str, ...]
    better: Better
    how: str


LONG, SHORT = 1 << 20, 8
"""Bytes of the messages whose bandwidth and latency are used as upper bounds."""

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
    """An upper bound: the best value measured on the bare machine.

    name: 'triad', 'latency', 'bandwidth', 'dgemm', ...
    ranks: number of ranks that measured it; None = one per CPU.
    transport: 'shm' or 'tcp' for messages, else ''.
    value: the best of the rounds' medians, in `unit`.
    rounds: number of measurements, made at different times.
    better: whether a higher or a lower value is better.
    measured: Unix seconds of the last round.
    place: directory on the measured disk, or arm whose network was measured, else ''.
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

    def fits(self, wanted: RoofRequest) -> bool:
        """Return whether this upper bound matches the request."""
        same = (self.name, self.transport, self.place) == (wanted.name, wanted.transport, wanted.place)
        return same and self.ranks in (None, wanted.ranks)

    def with_round(self, other: MeasuredRoof) -> MeasuredRoof:
        """Return the bound with the better value of both and the sum of their rounds."""
        best = max if self.better is Better.HIGHER else min
        return replace(other, value=best(self.value, other.value), rounds=self.rounds + other.rounds)

    def raised_to(self, values: Iterable[float]) -> MeasuredRoof:
        """Return the bound raised to the best of these values, which the bare machine reached with the same
        kernel and size."""
        best = max if self.better is Better.HIGHER else min
        return replace(self, value=best((self.value, *values)))


def best_of(roofs: Iterable[MeasuredRoof]) -> tuple[MeasuredRoof, ...]:
    """Return one upper bound of each kind, with the best value of all machines that measured it."""
    found: dict[tuple[object, ...], MeasuredRoof] = {}
    for roof in roofs:
        kind = roof.name, roof.ranks, roof.transport, roof.place
        found[kind] = found[kind].with_round(roof) if kind in found else roof
    return tuple(found.values())


def roof_record(roof: MeasuredRoof) -> dict[str, JsonValue]:
    """Return the bound in the form used in the provenance and in the cache."""
    return asdict(roof)


def read_roofs(found: JsonValue) -> tuple[MeasuredRoof, ...]:
    """Return the upper bounds of a provenance; entries that are not valid are left out."""
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
