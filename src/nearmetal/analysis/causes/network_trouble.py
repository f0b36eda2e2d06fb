"""TCP losses and timeouts of each cell, the places where packets were dropped, and the extra time that the
timeouts can explain.

The estimate is the number of timeouts in the timed part times the smallest retransmission timeout (RTO) of
any connection, because each timeout waited at least that long. Backoff makes consecutive timeouts longer, so
the sum over the connections is larger than the estimate. The program waited for less than that sum if several
connections waited at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...model.result import Attribution, Cell, NetworkTrouble, Verdict
from ...model.scope import Scope
from ..fold.attempts import Side
from ..fold.comparisons import Folded
from ..fold.counts import (
    PROBES,
    RETRANSMITTED,
    SHARED,
    TIMEOUTS,
    CounterName,
    Counts,
    FloatArray,
    IntArray,
    least,
)
from .attribution import MAIN_SHARE, clauses_of

LEAST_RTO = 0.2
"""Linux's smallest RTO (TCP_RTO_MIN) in seconds. It is used if the RTO of the connections is unknown."""
WORTH_SAYING = 0.1
"""Timeouts are reported with the extra time if they account for at least this share of it."""


@dataclass(frozen=True, kw_only=True)
class OneSide:
    """One side of a cell, over the cell's blocks, in their order; every array has shape (n,).

    counts: counters of all trials of the side.
    at: indexes of the cell's trials in the columns of `counts`.
    seconds: seconds of all slices of the cell's metric in each trial; nan if unknown.
    work: work of these slices, in a unit that both sides share; see fold.pieces.Measured.
    """

    counts: Counts
    workload: str
    at: IntArray
    seconds: FloatArray
    work: FloatArray

    def timed(self, counter: str) -> FloatArray:
        """Return a counter over the timed part of each trial; nan if it was not counted."""
        return self._column(self.counts.counters, counter)

    def timed_network(self, counter: str) -> FloatArray:
        """Return a network counter over the timed part of each trial; nan if it was not counted."""
        return self._column(self.counts.network, counter)

    @property
    def part(self) -> FloatArray:
        """Return the seconds of this metric's slices as a fraction of the seconds over which the counters of
        its workload ran, by trial; 1 if unknown.
        """
        counted = self.counts.counted.get(self.workload)
        if counted is None:
            return np.ones(self.at.size)
        whole = counted[self.at]
        return np.where(whole > 0, np.fmin(1.0, self.seconds / np.where(whole > 0, whole, math.inf)), 1.0)

    @property
    def rto(self) -> float | None:
        """Return the smallest retransmission timeout of connections that lost something in these trials, in
        seconds; None if unknown.
        """
        return least(self.counts.rto[self.at])

    def _column(self, columns: Mapping[CounterName, FloatArray], counter: str) -> FloatArray:
        found = columns.get((Scope.timed(self.workload), counter))
        return np.full(self.at.size, math.nan) if found is None else found[self.at]


def side_of(folded: Folded, side: Side, cell: Cell) -> OneSide:
    blocks = np.asarray(cell.blocks, dtype=np.int64)
    counts = folded.counts[side]
    values = folded.measured[side, (cell.workload, cell.metric)]
    at = np.searchsorted(values.blocks, blocks)
    return OneSide(
        counts=counts,
        workload=cell.workload,
        at=counts.places(blocks),
        seconds=values.seconds[at],
        work=values.work[at],
    )


def with_network(cells: Sequence[Cell], folded: Folded) -> tuple[Cell, ...]:
    """Return the cells with their network trouble. Timeouts are added to the explaining sentence of a slower
    cell if they account for enough of its extra time.
    """
    if not any(bool(t.networked.any()) for t in folded.counts.values()):
        return tuple(cells)
    return tuple(
        _with_trouble(c, side_of(folded, (c.arm, False), c), side_of(folded, (c.baseline, False), c))
        for c in cells
    )


def _with_trouble(cell: Cell, arm: OneSide, baseline: OneSide) -> Cell:
    trouble = network_trouble(arm, baseline)
    if trouble is None:
        return cell
    clause = timeout_clause(trouble) if cell.verdict is Verdict.SLOWER else None
    attribution = cell.attribution
    if clause is not None:
        sentence = "; ".join([*clauses_of(cell), clause])
        attribution = replace(attribution or Attribution(), sentence=sentence)
    return replace(cell, network=trouble, attribution=attribution)


def network_trouble(arm: OneSide, baseline: OneSide) -> NetworkTrouble | None:
    """Return the losses and timeouts of an arm and its baseline; None if nothing was counted, or if neither
    side lost anything."""
    timeouts, before = (_mean(side.timed_network(TIMEOUTS)) for side in (arm, baseline))
    sent, sent_before = (_mean(side.timed_network(RETRANSMITTED)) for side in (arm, baseline))
    probes, probes_before = (_mean(side.timed_network(PROBES)) for side in (arm, baseline))
    drops, drops_before = (side.counts.drops(side.at) for side in (arm, baseline))
    if timeouts is None and before is None:
        return None
    lost = (timeouts, before, _beyond(sent, probes), _beyond(sent_before, probes_before))
    if not any(lost) and not drops and not drops_before:
        return None
    return NetworkTrouble(
        timeouts=timeouts,
        baseline_timeouts=before,
        retransmitted=sent,
        baseline_retransmitted=sent_before,
        rto=arm.rto,
        baseline_rto=baseline.rto,
        waited=_product(timeouts, arm.rto),
        baseline_waited=_product(before, baseline.rto),
        extra_seconds=_known(float(np.mean(extra_seconds(arm, baseline)))),
        drops=drops,
        baseline_drops=drops_before,
        shared=any(_shares_the_node(side) for side in (arm, baseline)),
    )


def timeout_clause(t: NetworkTrouble) -> str | None:
    """Return a clause about the cost of timeouts per trial: 'TCP time-outs: 21 × 0.2 s = 4.2 s of 4.4 s'.

    Return None if the extra time in seconds is unknown, or if the timeouts are a small part of it.
    """
    extra = t.extra_seconds
    if not t.timeouts or t.waited is None or extra is None or extra <= 0:
        return None
    more = t.waited - (t.baseline_waited or 0.0)
    if more < WORTH_SAYING * extra:
        return None
    text = f"TCP time-outs: {t.timeouts:.3g} × {rto_or_least(t.rto):.2g} s"
    if t.baseline_waited:
        text += f" (baseline: {t.baseline_timeouts:.3g} × {rto_or_least(t.baseline_rto):.2g} s)"
    text += f" = {more:.2g} s of {extra:.2g} s"
    return text if more <= extra / MAIN_SHARE else f"{text}, several at once"


def extra_seconds(arm: OneSide, baseline: OneSide) -> FloatArray:
    """Return by how many seconds the timed part of each trial is longer than the baseline's for the same
    work; nan if the seconds of a side are unknown.
    """
    return arm.seconds - baseline.seconds * arm.work / baseline.work


def _mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.mean(known)) if known.size else None


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def rto_or_least(seen: float | None) -> float:
    return LEAST_RTO if seen is None else seen


def _product(timeouts: float | None, rto: float | None) -> float | None:
    return None if timeouts is None else timeouts * rto_or_least(rto)


def _beyond(sent: float | None, probes: float | None) -> float | None:
    return None if sent is None else max(0.0, sent - (probes or 0.0))


def _shares_the_node(side: OneSide) -> bool:
    column = side.counts.network.get(SHARED)
    return column is not None and bool(np.any(~np.isnan(column[side.at])))
