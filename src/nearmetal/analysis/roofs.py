"""Roofs: measured upper bounds of the bare machine. This module decides which roof bounds which metric, and
computes the share of the roof that a result reaches. No I/O; run/bounds/measuring.py measures the roofs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..model.result import Cell, Roof
from ..model.roof import (
    BANDWIDTH,
    DGEMM,
    DISK_READ,
    DISK_WRITE,
    LATENCY,
    ROOF_KERNELS,
    SHORT,
    SOCKETS,
    TRIAD,
    MeasuredRoof,
    RoofRequest,
)
from ..model.study import Arm, Better, KernelWorkload, Study, Transport, Workload

WORDS: Mapping[str, str] = {
    TRIAD: "memory bandwidth, STREAM",
    LATENCY: "latency between ranks",
    SOCKETS: "latency of plain TCP sockets",
    BANDWIDTH: "bandwidth between ranks",
    DGEMM: "peak of matrix multiplication, DGEMM",
    DISK_READ: "sequential reads of the disk",
    DISK_WRITE: "sequential writes of the disk",
}


@dataclass(frozen=True, kw_only=True)
class BoundedMetric:
    """The upper bound of a metric.

    roof: one of WORDS.
    each: whether the metric is a value per rank while all ranks run. The bound is then the roof divided by
        the number of ranks.
    alone: whether the metric is measured by one rank while the others are idle. The bound is then the roof of
        one rank.
    """

    roof: str
    each: bool = False
    alone: bool = False


DEFAULTS: Mapping[str, int] = {"bytes": SHORT}
"""Default values of the parameters in ROOF_KERNELS that a workload may leave out."""
_STREAM = ("copy", "scale", "add", "triad")
_BLOCKS = ("4KiB", "16KiB", "64KiB", "256KiB", "1MiB")
#: The key is (kernel or application, metric); a number at the end of the metric ('nb64') may be left out.
BOUNDED_METRICS: Mapping[tuple[str, str], BoundedMetric] = {
    **{("stream", m): BoundedMetric(roof=TRIAD) for m in _STREAM},
    ("pingpong", "latency"): BoundedMetric(roof=LATENCY),
    ("pingpong", "bandwidth"): BoundedMetric(roof=BANDWIDTH),
    ("tcp", "latency"): BoundedMetric(roof=SOCKETS),
    ("hpcc", "G-HPL"): BoundedMetric(roof=DGEMM),
    ("hpcc", "EP-DGEMM"): BoundedMetric(roof=DGEMM, each=True),
    **{("fio", f"read_{size}_bandwidth"): BoundedMetric(roof=DISK_READ) for size in _BLOCKS},
    **{("fio", f"write_{size}_bandwidth"): BoundedMetric(roof=DISK_WRITE) for size in _BLOCKS},
    ("bonnie", "sequential_input_block"): BoundedMetric(roof=DISK_READ),
    ("bonnie", "sequential_output_block"): BoundedMetric(roof=DISK_WRITE),
    **{("hpcc", f"EP-STREAM-{m}"): BoundedMetric(roof=TRIAD, each=True) for m in _STREAM},
    ("hpcc", "Single-STREAM-triad"): BoundedMetric(roof=TRIAD, alone=True),
    ("hpcc", "Single-DGEMM"): BoundedMetric(roof=DGEMM, alone=True),
    ("hpl", "nb"): BoundedMetric(roof=DGEMM),
    ("hpl", "best"): BoundedMetric(roof=DGEMM),
    **{("mccalpin-stream", m): BoundedMetric(roof=TRIAD) for m in _STREAM},
}


def wanted(study: Study) -> tuple[RoofRequest, ...]:
    """Return the roofs that bound metrics of a study, without duplicates."""
    out: dict[RoofRequest, None] = {}
    for arm in study.arms():
        for workload in study.workloads:
            if arm.environment.takes(workload.name):
                kinds = {(u.roof, u.alone) for (s, _), u in BOUNDED_METRICS.items() if s == workload.ran}
                found = (_request_for(*kind, arm) for kind in sorted(kinds))
                out |= dict.fromkeys(w for w in found if w is not None)
    return tuple(out)


def _request_for(kind: str, alone: bool, arm: Arm) -> RoofRequest | None:
    """Return the request for a roof of this kind for an arm, or None if it cannot be measured: the arm's
    storage is not on a known disk, or neither end of the arm's route is on this machine.

    The latency of TCP is bounded by the latency of plain sockets over the same route: the network addresses
    of the arm, or loopback. The route between guests has no end on this machine.
    """
    if kind in (DISK_READ, DISK_WRITE):
        storage = arm.environment.storage
        disk = "" if storage is None else storage.disk
        return RoofRequest(name=kind, ranks=1, transport="", place=disk) if disk else None
    if kind == SOCKETS or (kind == LATENCY and arm.transport is Transport.TCP):
        seats = _seats(arm)
        if seats and arm.environment.guest is not None:
            return None  # the addresses are inside the guests
        return RoofRequest(name=SOCKETS, ranks=2, transport=Transport.TCP.value, place=seats)
    if kind in (LATENCY, BANDWIDTH):
        return RoofRequest(name=kind, ranks=2, transport=arm.transport.value)
    return RoofRequest(name=kind, ranks=1 if alone else arm.placement.ranks, transport="")


def _seats(arm: Arm) -> str:
    """Return the arm's name if its ranks communicate over a network that was built for the arm, else ''."""
    apart = arm.environment.attachment.seated or arm.placement.node.emulated
    return arm.name if apart and arm.placement.all_instances > 1 else ""


def with_roofs(
    study: Study, cells: Sequence[Cell], roofs: Iterable[MeasuredRoof], bare: Collection[str]
) -> tuple[Cell, ...]:
    """Return the cells with the roofs that bound them.

    bare: names of the environments that are the bare machine.

    A roof is raised to the best block median of the bare machine with the same kernel and size, if that is
    better. If a workload exceeds a roof on any arm, the roof does not bound this workload (for instance
    because a cache serves it), and is left out for this workload.
    """
    workloads = {w.name: w for w in study.workloads}
    arms = {arm.name: arm for arm in study.arms()}
    natives = {name: arm for name, arm in arms.items() if arm.environment.name in bare}
    known = [_raised(roof, cells, workloads, natives) for roof in roofs]

    def over(cell: Cell, median: float, arm: str) -> Roof | None:
        workload, at = workloads.get(cell.workload), arms.get(arm)
        return None if workload is None or at is None else _over(cell, median, workload, at, known)

    found = [(over(c, c.value.centre, c.arm), over(c, c.baseline_value.centre, c.baseline)) for c in cells]
    exceeded = {
        (c.workload, roof.words)
        for c, sides in zip(cells, found, strict=True)
        for roof in sides
        if roof is not None and roof.share > 1
    }

    def kept(cell: Cell, roof: Roof | None) -> Roof | None:
        return None if roof is not None and (cell.workload, roof.words) in exceeded else roof

    return tuple(
        replace(c, roof=kept(c, own), baseline_roof=kept(c, base), beyond=_beyond(own, base))
        for c, (own, base) in zip(cells, found, strict=True)
    )


def _beyond(own: Roof | None, base: Roof | None) -> Roof | None:
    """Return the roof that an arm exceeds, if its baseline does not exceed its own; otherwise None."""
    over = own is not None and own.share > 1
    return own if over and (base is None or base.share <= 1) else None


def _raised(
    roof: MeasuredRoof, cells: Iterable[Cell], workloads: Mapping[str, Workload], arms: Mapping[str, Arm]
) -> MeasuredRoof:
    """Return the roof, raised to the best block median of the same kernel and size on the bare machine.

    arms: those of the bare machine.
    """
    same = ROOF_KERNELS.get(roof.name)
    for c in cells:
        workload, arm = workloads.get(c.workload), arms.get(c.baseline)
        if (
            same is not None
            and isinstance(workload, KernelWorkload)
            and workload.kernel == same.kernel
            and all(workload.params.get(key, DEFAULTS.get(key)) == v for key, v in same.params.items())
            and c.metric in same.metrics
            and arm is not None
            and (needed := _request_for(roof.name, False, arm)) is not None
            and roof.fits(needed)
        ):
            roof = roof.raised_to(c.baseline_values)
    return roof


def _over(
    cell: Cell, median: float, workload: Workload, arm: Arm, roofs: Sequence[MeasuredRoof]
) -> Roof | None:
    """Return the roof that bounds one side of a cell, or None if there is none.

    median: median of that side over the blocks, in the unit of the cell.
    """
    names = (cell.metric, cell.metric.rstrip("0123456789"))
    under = next((u for n in names if (u := BOUNDED_METRICS.get((workload.ran, n)))), None)
    needed = None if under is None else _request_for(under.roof, under.alone, arm)
    if under is None or needed is None:
        return None
    for roof in roofs:
        if roof.fits(needed) and roof.unit == cell.unit and roof.value > 0:
            value = roof.value / arm.placement.ranks if under.each else roof.value
            return Roof(
                words=words(roof),
                value=value,
                share=median / value if cell.better is Better.HIGHER else value / median,
                measured=roof.measured,
            )
    return None


def words(roof: MeasuredRoof) -> str:
    """Return a description of a roof.

    For example 'memory bandwidth, STREAM, of 2 ranks', 'sequential reads of the disk of /scratch', or
    'latency of plain TCP sockets on the same network'.
    """
    if roof.name == SOCKETS:
        return f"{WORDS[SOCKETS]} {'on the same network' if roof.place else 'over loopback'}"
    if roof.place:
        return f"{WORDS.get(roof.name, roof.name)} of {roof.place}"
    carrier = {Transport.SHM.value: " in shared memory", Transport.TCP.value: " over loopback"}
    of = "" if roof.ranks is None else " of 1 rank" if roof.ranks == 1 else f" of {roof.ranks} ranks"
    return WORDS.get(roof.name, roof.name) + (carrier[roof.transport] if roof.transport else of)
