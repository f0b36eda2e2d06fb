"""What TCP lost and waited for, by cell: time-outs, segments sent again, where packets were dropped, and how
much of the extra time the time-outs can explain.

The estimate is the number of time-outs in the timed part times the smallest retransmission time-out (RTO)
seen: each of them waited at least so long on its own connection. Backoff makes consecutive ones longer, so
the sum over the connections is larger; what the program waited for is less where several waited at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from statistics import fmean

import numpy as np

from ..model.record import Connection, Row, Status, TrialRecord
from ..model.result import Attribution, Cell, NetworkTrouble, Verdict
from ..model.study import Better
from .attribution import MAIN_SHARE, NOT_EXPLAINED
from .fold import FloatArray, Side

LEAST_RTO = 0.2
"""Seconds: Linux's least RTO (TCP_RTO_MIN), for kernels that told no connection's own."""
WORTH_SAYING = 0.1
"""Share of the extra time from which time-outs are named beside it."""

TIMEOUTS, RETRANSMITTED, PROBES = "TcpExtTCPTimeouts", "TcpRetransSegs", "TcpExtTCPLossProbes"
_SOCKET_BUFFERS = frozenset(
    (
        "TcpExtTCPBacklogDrop",
        "TcpExtTCPRcvQDrop",
        "TcpExtTCPOFODrop",
        "TcpExtTCPZeroWindowDrop",
        "TcpExtRcvPruned",
        "TcpExtOfoPruned",
        "TcpExtListenDrops",
        "UdpRcvbufErrors",
        "UdpSndbufErrors",
    )
)
_IP = frozenset(("IpInDiscards", "IpOutDiscards"))


class Trials:
    """The good trials of one side. What several cells ask of every trial is worked out once."""

    def __init__(self, records: Iterable[TrialRecord] = ()) -> None:
        """records: of a block the last one counts."""
        self._records = {r.block: r for r in records}
        self._at = {block: at for at, block in enumerate(self._records)}
        self._place: dict[tuple[str, str], int] = {}
        self._work: dict[tuple[str, str], tuple[FloatArray, FloatArray]] = {}
        self._counted: dict[str, FloatArray] = {}

    def record(self, block: int) -> TrialRecord | None:
        return self._records.get(block)

    def records(self, blocks: Iterable[int]) -> list[TrialRecord]:
        """Of these blocks, in their order."""
        return [self._records[b] for b in blocks if b in self._records]

    def time_and_work(self, block: int, cell: Cell) -> tuple[float, float] | None:
        """Seconds of all slices of a cell's metric in one trial, and their work in a unit that both sides
        share (see attribution)."""
        at, key = self._at.get(block), (cell.workload, cell.metric)
        if at is None:
            return None
        if key not in self._work:
            found = [_time_and_work(self._row(r, key)) for r in self._records.values()]
            seconds, work = np.array([(math.nan, math.nan) if f is None else f for f in found]).T
            self._work[key] = seconds, work
        seconds, work = self._work[key]
        return None if math.isnan(seconds[at]) else (float(seconds[at]), float(work[at]))

    def counted_seconds(self, block: int, workload: str) -> float:
        """Seconds of a workload in one trial over which its counters ran."""
        if workload not in self._counted:
            self._counted[workload] = np.array(
                [_counted_seconds(r, workload) for r in self._records.values()]
            )
        return float(self._counted[workload][self._at[block]])

    @cached_property
    def smallest_rto(self) -> float | None:
        """Of all trials."""
        return smallest_rto(self._records.values())

    def drops(self, blocks: Iterable[int]) -> dict[str, float]:
        """Packets dropped per trial by place, most first; the places where none was are left out."""
        totals: dict[str, float] = {}
        known = [b for b in blocks if b in self._records]
        for block in known:
            for place, value in self._drops.get(block, {}).items():
                totals[place] = totals.get(place, 0.0) + value
        return {place: totals[place] / len(known) for place in sorted(totals, key=lambda p: -totals[p])}

    @cached_property
    def _drops(self) -> Mapping[int, Mapping[str, float]]:
        """By block, where any were."""
        return {block: found for block, r in self._records.items() if (found := _drops(r))}

    def _row(self, record: TrialRecord, key: tuple[str, str]) -> Row | None:
        """The good row of a record. It stands at the same place in most of them."""
        rows, at = record.rows, self._place.get(key, 0)
        if not (at < len(rows) and (rows[at].workload, rows[at].metric) == key):
            at = next((i for i, r in enumerate(rows) if (r.workload, r.metric) == key), len(rows))
            self._place[key] = at
        return rows[at] if at < len(rows) and rows[at].status is Status.OK else None


def with_network(cells: Sequence[Cell], records: Iterable[TrialRecord]) -> tuple[Cell, ...]:
    """The cells with what their networks did, and with the time-outs in their likely cause where they hold
    a part of it. records: those of complete blocks."""
    by_side = by_sides(r for r in records if r.network)
    if not by_side:
        return tuple(cells)
    none = Trials()
    return tuple(
        _with_trouble(c, by_side.get((c.arm, False), none), by_side.get((c.baseline, False), none))
        for c in cells
    )


def by_sides(records: Iterable[TrialRecord]) -> dict[Side, Trials]:
    """The good ones by side and block."""
    found: dict[Side, list[TrialRecord]] = {}
    for r in records:
        if r.status is Status.OK:
            found.setdefault((r.arm, r.aa), []).append(r)
    return {side: Trials(own) for side, own in found.items()}


def _with_trouble(cell: Cell, arm: Trials, baseline: Trials) -> Cell:
    trouble = network_trouble(cell, arm, baseline)
    if trouble is None:
        return cell
    clause = timeout_clause(trouble) if cell.verdict is Verdict.SLOWER else None
    attribution = cell.attribution
    if clause is not None:
        told = attribution or Attribution(parts=(), residual=None, sentence="")
        before = () if told.sentence in ("", NOT_EXPLAINED) else (told.sentence,)
        attribution = replace(told, sentence="; ".join((*before, clause)))
    return replace(cell, network=trouble, attribution=attribution)


def network_trouble(cell: Cell, arm: Trials, baseline: Trials) -> NetworkTrouble | None:
    """None where nothing was counted, or nothing was lost on either side."""
    ours, theirs = arm.records(cell.blocks), baseline.records(cell.blocks)
    timeouts, before = (_timed(side, cell.workload, TIMEOUTS) for side in (ours, theirs))
    sent, sent_before = (_timed(side, cell.workload, RETRANSMITTED) for side in (ours, theirs))
    probes, probes_before = (_timed(side, cell.workload, PROBES) for side in (ours, theirs))
    drops, drops_before = arm.drops(cell.blocks), baseline.drops(cell.blocks)
    if timeouts is None and before is None:
        return None
    lost = (timeouts, before, _beyond(sent, probes), _beyond(sent_before, probes_before))
    if not any(lost) and not drops and not drops_before:
        return None
    rto = smallest_rto(ours)
    return NetworkTrouble(
        timeouts=timeouts,
        baseline_timeouts=before,
        retransmitted=sent,
        baseline_retransmitted=sent_before,
        rto=rto,
        baseline_rto=smallest_rto(theirs),
        waited=_product(timeouts, rto),
        baseline_waited=_product(before, smallest_rto(theirs)),
        extra_seconds=extra_seconds(cell, arm, baseline),
        drops=drops,
        baseline_drops=drops_before,
        shared=any(_shares_the_node(r) for r in (*ours, *theirs)),
    )


def timeout_clause(t: NetworkTrouble) -> str | None:
    """'TCP time-outs: 21 × 0.2 s = 4.2 s of 4.4 s', per trial; None where the extra time in seconds is not
    known, or the time-outs are a small part of it."""
    extra = t.extra_seconds
    if not t.timeouts or t.waited is None or extra is None or extra <= 0:
        return None
    more = t.waited - (t.baseline_waited or 0.0)
    if more < WORTH_SAYING * extra:
        return None
    said = f"TCP time-outs: {t.timeouts:.3g} × {rto_or_least(t.rto):.2g} s"
    if t.baseline_waited:
        said += f" (baseline: {t.baseline_timeouts:.3g} × {rto_or_least(t.baseline_rto):.2g} s)"
    said += f" = {more:.2g} s of {extra:.2g} s"
    return said if more <= extra / MAIN_SHARE else f"{said}, several at once"


def _drops(record: TrialRecord) -> Mapping[str, float]:
    """Packets that one trial dropped, by place."""
    totals: dict[str, float] = {}
    for scope, counters in record.network.items():
        for name, value in counters.items():
            place = _place(scope, name) if value else None
            if place is not None and value is not None:
                totals[place] = totals.get(place, 0.0) + value
    return totals


@cache
def _place(scope: str, counter: str) -> str | None:
    """Where a counter counts drops, in words; None for one that counts something else."""
    where = scope.removeprefix("instance.")
    words = counter.split(".")
    if counter.startswith("dev.") and words[-1] in ("rx_drops", "tx_drops", "rx_errors", "tx_errors"):
        return f"device {'.'.join(words[1:-1])} ({words[-1].replace('_', ' ')}) of {where}"
    if counter.startswith("qdisc.") and words[-1] == "drops":
        return f"queueing discipline {words[-2]} on {'.'.join(words[1:-2])} of {where}"
    if counter == "softnet.dropped":
        return "softnet: a CPU's input queue (whole node)"
    if scope.startswith("timed."):
        return None
    if counter in _SOCKET_BUFFERS:
        return f"socket buffers of {where}"
    return f"IP of {where}" if counter in _IP else None


def extra_seconds(cell: Cell, arm: Trials, baseline: Trials) -> float | None:
    """Seconds more in the timed part of a trial than the baseline would have taken for the same work, mean
    over blocks; None where a row has no seconds."""
    found: list[float] = []
    for block in cell.blocks:
        ours, theirs = arm.time_and_work(block, cell), baseline.time_and_work(block, cell)
        if ours is None or theirs is None:
            return None
        found.append(ours[0] - theirs[0] * ours[1] / theirs[1])
    return fmean(found) if found else None


def _counted_seconds(record: TrialRecord, workload: str) -> float:
    rows = [r for r in record.rows if r.workload == workload and r.status is Status.OK]
    wall = next((r for r in rows if r.metric == "wall" and not r.seconds), None)
    parts = {wall.values} if wall is not None else {r.seconds for r in rows if r.seconds}
    return sum(sum(part) for part in parts)


def _time_and_work(row: Row | None) -> tuple[float, float] | None:
    if row is None:
        return None
    lower = row.better is Better.LOWER
    seconds = row.seconds or (row.values if row.unit == "s" and lower else ())
    if not seconds or min(*seconds, *row.values) <= 0:
        return None
    pairs = zip(seconds, row.values, strict=True)
    return sum(seconds), sum(s / v if lower else s * v for s, v in pairs)


def _timed(records: Sequence[TrialRecord], workload: str, counter: str) -> float | None:
    """Mean per trial, of the trials that know it."""
    known = [v for r in records if (v := r.network.get(f"timed.{workload}", {}).get(counter)) is not None]
    return fmean(known) if known else None


def smallest_rto(records: Iterable[TrialRecord]) -> float | None:
    return min((c.rto for r in records for c in _in_trouble(r.connections or ()) if c.rto), default=None)


def _in_trouble(connections: Iterable[Connection]) -> Iterable[Connection]:
    return (c for c in connections if c.retransmitted)


def rto_or_least(seen: float | None) -> float:
    return LEAST_RTO if seen is None else seen


def _product(timeouts: float | None, rto: float | None) -> float | None:
    return None if timeouts is None else timeouts * rto_or_least(rto)


def _beyond(sent: float | None, probes: float | None) -> float | None:
    return None if sent is None else max(0.0, sent - (probes or 0.0))


def _shares_the_node(record: TrialRecord) -> bool:
    return RETRANSMITTED in record.network.get("node", {})
