"""The counters of the trials of one side as columns: one entry per trial, nan if a value is unknown.

Only the counters that the analysis uses are kept.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...model.record import Connection, Status, TrialData, TrialRecord
from ...model.scope import NODE, TIMED, Scope

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
CounterName = tuple[Scope, str]
Key = TypeVar("Key")

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
SHARED: CounterName = (Scope(kind=NODE), RETRANSMITTED)
"""Counter of the whole machine, for instances that share its network."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """All trials of one side that count; every array has shape (n,).

    blocks: block numbers, ascending.
    good: whether the trial did not fail; the other columns of a failed trial are not used.
    networked: whether the trial has counters of a network.
    rto: smallest retransmission timeout of connections that lost something, in seconds.
    flagged: whether the trial has a flag.
    counters: counters of timed parts.
    network: network counters of timed parts, and those that indicate trouble.
    counted: by workload, seconds over which its counters ran.
    """

    blocks: IntArray
    good: BoolArray
    networked: BoolArray
    rto: FloatArray
    flagged: BoolArray
    disturbance: Mapping[str, FloatArray]
    counters: Mapping[CounterName, FloatArray]
    network: Mapping[CounterName, FloatArray]
    counted: Mapping[str, FloatArray]

    def places(self, blocks: IntArray) -> IntArray:
        """Return the places of these blocks in the columns; blocks without a good trial are left out."""
        if self.blocks.size == 0:
            return np.empty(0, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.blocks, blocks), self.blocks.size - 1)
        found: IntArray = at[(self.blocks[at] == blocks) & self.good[at]]
        return found

    @cached_property
    def smallest_rto(self) -> float | None:
        """Return the smallest retransmission time-out of all good trials."""
        return least(self.rto[self.good])

    def drops(self, at: IntArray) -> dict[str, float]:
        """Return the packets dropped per trial by place, most first. Places without drops are left out.

        at: places of the trials in the columns.
        """
        totals: dict[str, float] = {}
        for (of, name), column in self.network.items():
            place = place_of(of, name)
            if place is not None and at.size:
                totals[place] = totals.get(place, 0.0) + float(np.nansum(column[at])) / at.size
        return {place: totals[place] for place in sorted(totals, key=lambda p: -totals[p]) if totals[place]}


def least(values: FloatArray) -> float | None:
    """Return the smallest known value."""
    known = values[~np.isnan(values)]
    return float(known.min()) if known.size else None


class CountsBuilder:
    """Collects the counters of one side's trials, in the order of blocks."""

    def __init__(self) -> None:
        self._blocks, self._rto = array("q"), array("d")
        self._good, self._networked, self._flagged = array("b"), array("b"), array("b")
        self._disturbance = _Columns()
        self._counters = _Columns(_of_timed_part)
        self._network = _Columns(_of_trouble)

    def add(self, record: TrialRecord | TrialData) -> None:
        """Add the counters of one trial. No reference to the trial is kept."""
        at = len(self._blocks)
        self._blocks.append(record.block)
        self._rto.append(_smallest_rto(record.connections or ()))
        self._good.append(record.status is Status.OK)
        self._networked.append(bool(record.network))
        self._flagged.append(bool(record.flags))
        self._disturbance.add(at, {"": record.disturbance})
        self._counters.add(at, record.counters)
        self._network.add(at, record.network)

    @property
    def blocks(self) -> IntArray:
        """Return the block of each trial so far."""
        return np.array(self._blocks, dtype=np.int64)

    def counts(self, counted: Mapping[str, FloatArray]) -> Counts:
        """Return the counts of all trials so far.

        counted: see Counts.
        """
        n = len(self._blocks)
        return Counts(
            blocks=self.blocks,
            good=np.array(self._good, dtype=np.bool_),
            networked=np.array(self._networked, dtype=np.bool_),
            rto=np.array(self._rto, dtype=np.float64),
            flagged=np.array(self._flagged, dtype=np.bool_),
            disturbance=_named(self._disturbance.columns(n)),
            counters=self._counters.columns(n),
            network=self._network.columns(n),
            counted=counted,
        )


class _Columns:
    """Collects the counters that the analysis uses from many trials, by scope and name.

    It is fast if successive trials have the same counters in the same order, as most have.
    """

    def __init__(self, wanted: Callable[[Scope, str], bool] = lambda of, name: True) -> None:
        self._wanted = wanted
        self._alike: dict[tuple[str, tuple[str, ...]], _Alike] = {}

    def add(self, at: int, scopes: Mapping[str, Mapping[str, float | None]]) -> None:
        """Add the counters of the trial with index `at`."""
        known = self._alike
        for text, counters in scopes.items():
            key = text, tuple(counters)
            alike = known.get(key)
            if alike is None:
                of = Scope.parse(text)
                wanted = [name if self._wanted(of, name) else None for name in counters]
                alike = known[key] = _Alike(wanted)
            if alike.any:
                alike.places.append(at)
                alike.rows.append(tuple(counters.values()))

    def columns(self, n: int) -> dict[CounterName, FloatArray]:
        """Return one column of n trials for each counter."""
        out: dict[CounterName, FloatArray] = {}
        for (text, _), alike in self._alike.items():
            if alike.any:
                of = Scope.parse(text)
                table = np.array(alike.rows, dtype=np.float64)  # None becomes nan
                for i, name in enumerate(alike.names):
                    if name is not None:
                        column = out.setdefault((of, name), np.full(n, math.nan))
                        column[alike.places] = table[:, i]
        return out


class _Alike:
    """The set of counters of a scope that a group of trials has in common.

    names: names of the counters; None for a counter that is not used.
    any: whether any counter is used.
    """

    def __init__(self, names: Sequence[str | None]) -> None:
        self.names, self.any = names, any(name is not None for name in names)
        self.places: list[int] = []
        self.rows: list[tuple[float | None, ...]] = []


def joined(pieces: Sequence[Counts]) -> Counts:
    """Concatenate the trials of all pieces."""
    sizes = [p.blocks.size for p in pieces]
    return Counts(
        blocks=np.concatenate([p.blocks for p in pieces]),
        good=np.concatenate([p.good for p in pieces]),
        networked=np.concatenate([p.networked for p in pieces]),
        rto=np.concatenate([p.rto for p in pieces]),
        flagged=np.concatenate([p.flagged for p in pieces]),
        disturbance=_joined([p.disturbance for p in pieces], sizes),
        counters=_joined([p.counters for p in pieces], sizes),
        network=_joined([p.network for p in pieces], sizes),
        counted=_joined([p.counted for p in pieces], sizes),
    )


def _joined(tables: Sequence[Mapping[Key, FloatArray]], sizes: Sequence[int]) -> dict[Key, FloatArray]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {
        name: np.concatenate(
            [
                table[name] if name in table else np.full(n, math.nan)
                for table, n in zip(tables, sizes, strict=True)
            ]
        )
        for name in names
    }


def _named(columns: Mapping[CounterName, FloatArray]) -> dict[str, FloatArray]:
    return {name: column for (_, name), column in columns.items()}


def _of_timed_part(of: Scope, name: str) -> bool:
    return of.kind == TIMED


@cache
def _of_trouble(of: Scope, name: str) -> bool:
    if of.kind == TIMED:
        return name in (TIMEOUTS, RETRANSMITTED, PROBES)
    return place_of(of, name) is not None or (of, name) == SHARED


@cache
def place_of(of: Scope, counter: str) -> str | None:
    """Return where the packets that a counter counts were dropped, as text; None if it does not count
    drops."""
    where = of.place
    words = counter.split(".")
    if counter.startswith("dev.") and words[-1] in ("rx_drops", "tx_drops", "rx_errors", "tx_errors"):
        return f"device {'.'.join(words[1:-1])} ({words[-1].replace('_', ' ')}) of {where}"
    if counter.startswith("qdisc.") and words[-1] == "drops":
        return f"queueing discipline {words[-2]} on {'.'.join(words[1:-2])} of {where}"
    if counter == "softnet.dropped":
        return "softnet: a CPU's input queue (whole node)"
    if of.kind == TIMED:
        return None
    if counter in _SOCKET_BUFFERS:
        return f"socket buffers of {where}"
    return f"IP of {where}" if counter in _IP else None


def _smallest_rto(connections: Iterable[Connection]) -> float:
    """Return the smallest retransmission time-out; nan if nothing was lost."""
    return min((c.rto for c in connections if c.retransmitted and c.rto), default=math.nan)
