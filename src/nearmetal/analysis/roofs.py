"""Roofs: what the bare machine gives at most, and how near to it each result comes. Pure: which roof stands
over which metric, and the share. What measures them is in execute/roofs.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..model.result import Cell, Roof
from ..model.roof import (
    BANDWIDTH,
    DGEMM,
    DISK_READ,
    DISK_WRITE,
    LATENCY,
    TRIAD,
    MeasuredRoof,
    Wanted,
)
from ..model.study import (
    ApplicationWorkload,
    Arm,
    Better,
    EventSubject,
    KernelWorkload,
    Study,
    Transport,
    Workload,
)

WORDS: Mapping[str, str] = {
    TRIAD: "memory bandwidth, STREAM Triad",
    LATENCY: "latency between ranks",
    BANDWIDTH: "bandwidth between ranks",
    DGEMM: "peak of matrix multiplication, DGEMM",
    DISK_READ: "sequential reads of the disk",
    DISK_WRITE: "sequential writes of the disk",
}


@dataclass(frozen=True, kw_only=True)
class Under:
    """Under which roof a metric is. each: it is a figure of one rank of several that share the roof."""

    roof: str
    each: bool = False


#: By kernel or application, and how its metric begins; the unit has to be the roof's as well.
UNDER: Mapping[tuple[str, str], Under] = {
    **{("stream", metric): Under(roof=TRIAD) for metric in ("copy", "scale", "add", "triad")},
    ("pingpong", "latency"): Under(roof=LATENCY),
    ("pingpong", "bandwidth"): Under(roof=BANDWIDTH),
    ("hpcc", "G-HPL"): Under(roof=DGEMM),
    ("hpcc", "EP-DGEMM"): Under(roof=DGEMM, each=True),
    ("hpcc", "EP-STREAM-"): Under(roof=TRIAD, each=True),
    ("hpl", ""): Under(roof=DGEMM),
    ("mccalpin-stream", ""): Under(roof=TRIAD),
    ("fio", "read_"): Under(roof=DISK_READ),
    ("fio", "write_"): Under(roof=DISK_WRITE),
    ("bonnie", "sequential_input_block"): Under(roof=DISK_READ),
    ("bonnie", "sequential_output_block"): Under(roof=DISK_WRITE),
}


def wanted(study: Study) -> tuple[Wanted, ...]:
    """The roofs that stand over metrics of a study, each once."""
    out: dict[Wanted, None] = {}
    for arm in study.arms():
        for workload in study.workloads:
            if arm.environment.takes(workload.name):
                kinds = {u.roof for (subject, _), u in UNDER.items() if subject == _subject(workload)}
                found = (_wanted(kind, arm) for kind in sorted(kinds))
                out |= dict.fromkeys(w for w in found if w is not None)
    return tuple(out)


def _wanted(kind: str, arm: Arm) -> Wanted | None:
    """None where no disk of the machine stands below the storage of an arm."""
    if kind in (DISK_READ, DISK_WRITE):
        storage = arm.environment.storage
        disk = "" if storage is None else storage.disk
        return Wanted(name=kind, ranks=1, transport="", place=disk) if disk else None
    if kind in (LATENCY, BANDWIDTH):
        return Wanted(name=kind, ranks=2, transport=arm.transport.value)
    return Wanted(name=kind, ranks=arm.placement.ranks, transport="")


def _subject(workload: Workload) -> str:
    """The kernel or application that it runs; '' where it runs neither."""
    if isinstance(workload, KernelWorkload):
        return workload.kernel
    return workload.application if isinstance(workload, ApplicationWorkload) else ""


def with_roofs(study: Study, cells: Sequence[Cell], roofs: Iterable[MeasuredRoof]) -> tuple[Cell, ...]:
    """The cells with the roofs over them."""
    known = tuple(roofs)
    arms = {arm.name: arm for arm in study.arms()}
    subjects = {w.name: _subject(w) for w in study.workloads if not isinstance(w, EventSubject)}
    return tuple(
        replace(c, roof=_over(c, subjects.get(c.workload, ""), arms[c.arm], known)) if c.arm in arms else c
        for c in cells
    )


def _over(cell: Cell, subject: str, arm: Arm, roofs: Sequence[MeasuredRoof]) -> Roof | None:
    under = next((u for (s, m), u in UNDER.items() if s == subject and cell.metric.startswith(m)), None)
    needed = None if under is None else _wanted(under.roof, arm)
    if under is None or needed is None:
        return None
    for roof in roofs:
        fits = (roof.name, roof.transport, roof.place) == (needed.name, needed.transport, needed.place)
        if fits and roof.ranks in (None, needed.ranks) and roof.unit == cell.unit and roof.value > 0:
            value = roof.value / arm.placement.ranks if under.each else roof.value
            return Roof(
                words=words(roof),
                value=value,
                share=_share(cell.value.centre, value, cell.better),
                baseline_share=_share(cell.baseline_value.centre, value, cell.better),
                measured=roof.measured,
            )
    return None


def _share(value: float, roof: float, better: Better) -> float:
    return value / roof if better is Better.HIGHER else roof / value


def words(roof: MeasuredRoof) -> str:
    """'memory bandwidth, STREAM Triad, of 2 ranks'; 'sequential reads of the disk of /scratch'."""
    if roof.place:
        return f"{WORDS.get(roof.name, roof.name)} of {roof.place}"
    carrier = {Transport.SHM.value: " in shared memory", Transport.TCP.value: " over loopback"}
    of = "" if roof.ranks is None else " of 1 rank" if roof.ranks == 1 else f" of {roof.ranks} ranks"
    return WORDS.get(roof.name, roof.name) + (carrier[roof.transport] if roof.transport else of)
