"""Reports the work of a hypervisor outside the guest: CPU time of its other threads, and exits by reason. No
I/O.

The other threads serve emulated devices and their I/O. At an exit, the hypervisor interrupts the guest.
Neither is counted as a part of the extra time: the other threads run in parallel to the guest, and the time
that an exit takes is not measured. Both are therefore mentioned beside an overhead if they are large enough
to contribute to it, but no share of the overhead is attributed to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...model.environments.guest import Nic
from ...model.plan import Schedule
from ...model.result import Attribution, Cell, Interval, Suggestion, Verdict
from ...model.study import Arm, Study
from ..fold.comparisons import Folded
from ..fold.counts import FloatArray
from .attribution import clauses_of
from .counted import CountedCell, CountedSide, counted_cell
from .network_trouble import WORTH_SAYING, OneSide

LEAST_EXIT = 0.5e-6
"""Shortest time that an exit and the return to the guest take on present processors, in seconds: at least a
thousand cycles."""
REASONS: Mapping[str, tuple[str, ...]] = {
    "emulated devices": ("io_exits", "mmio_exits"),
    "interrupts": ("irq_exits", "irq_window_exits", "nmi_window_exits"),
    "idling": ("halt_exits",),
    "its memory": ("pf_fixed",),
    "hypercalls": ("hypercalls",),
}
"""Reasons of exits, and the counters of KVM for each (host.sources.EXITS)."""
EMULATED = frozenset((Nic.E1000, Nic.RTL8139))
_WORDS = "a card that needs fewer exits (guest: nic: virtio)"


def with_hypervisor(
    study: Study, cells: Sequence[Cell], folded: Folded, *, schedules: Mapping[str, Schedule]
) -> tuple[Cell, ...]:
    """Return the cells. The explaining sentence of a slower guest mentions the work of its hypervisor.

    schedules: schedule of each cell's looks, by Cell.key.
    """
    arms = {arm.name: arm for arm in study.arms()}

    def explained(cell: Cell) -> Cell:
        if arms[cell.arm].environment.guest is None or cell.verdict is not Verdict.SLOWER:
            return cell
        counted = counted_cell(study, arms, folded, cell, schedules[cell.key])
        return cell if counted is None else _explained(counted)

    return tuple(explained(c) for c in cells)


def device_threads(side: OneSide) -> FloatArray:
    """Return the CPU seconds of the guest's control group minus those of its vCPU threads, by trial; nan if
    unknown.
    """
    return np.maximum(side.timed("cpu") - side.timed("vcpu"), 0.0)


def _explained(counted: CountedCell) -> Cell:
    cell, clauses = counted.cell, []
    least = WORTH_SAYING * _extra(counted)
    threads = _more(counted, device_threads)
    if threads is not None and threads[0].low > least > 0:
        clauses.append(f"CPU time of its devices' threads: {threads[1]:.2g} s")
    left = _more(counted, lambda side: side.timed("exits"))
    emulates = False
    if left is not None and LEAST_EXIT * left[0].low > least > 0:
        reason = _main_reason(counted.env)
        clauses.append(f"exits from the guest: {left[1]:.2g}{f', most for {reason}' if reason else ''}")
        emulates = reason == "emulated devices"
    if not clauses:
        return cell
    had = cell.attribution or Attribution()
    suggestion = had.suggestion
    # An emulated card costs more than the rest of the path of a frame.
    if emulates and _has_emulated_card(counted.env.arm):
        suggestion = Suggestion(change=None, words=_WORDS)
    sentence = "; ".join([*clauses_of(cell), *clauses])
    return replace(cell, attribution=replace(had, sentence=sentence, suggestion=suggestion))


def _has_emulated_card(arm: Arm) -> bool:
    guest = arm.environment.guest
    return guest is not None and arm.environment.attachment.seated and guest.nic in EMULATED


def _more(counted: CountedCell, read: Callable[[OneSide], FloatArray]) -> tuple[Interval, float] | None:
    """Return by how much a quantity of a guest exceeds that of its baseline for the same work.

    The first result is the interval over blocks of the quantity per second of the baseline. The second result
    is the mean of the quantity over blocks. Returns None if the quantity is unknown in a block.

    read: returns the quantity of one side, by trial. A baseline that is not a guest counts as 0.
    """
    own = read(counted.env.trials)
    guest = counted.base.arm.environment.guest
    more = counted.more(own, np.zeros(own.size) if guest is None else read(counted.base.trials))
    shares = more / counted.same_work
    if more.size == 0 or bool(np.isnan(shares).any()):
        return None
    return counted.carried(shares), float(np.mean(more))


def _extra(counted: CountedCell) -> float:
    """Return all extra time, as a share of the baseline's time for the same work, mean over blocks."""
    shares = counted.extra / counted.same_work
    known = shares[~np.isnan(shares)]
    return float(np.mean(known)) if known.size else 0.0


def _main_reason(env: CountedSide) -> str:
    """Return the exit reason that accounts for more than half of the exits; '' if there is none."""
    whole = float(np.nansum(env.trials.timed("exits")))
    for reason, counters in REASONS.items():
        if 2 * sum(float(np.nansum(env.trials.timed(c))) for c in counters) > whole > 0:
            return reason
    return ""
