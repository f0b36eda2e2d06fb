"""What the trials of one side counted beside their values, as columns: one entry per trial, nan where it is
not known. Only what the analysis asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..model.record import TIMED, Connection, Row, Status, TrialRecord

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Counter = tuple[str, str]
"""Scope and name."""
Key = TypeVar("Key")
_NOTHING: Mapping[str, float | None] = {}

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
SHARED: Counter = ("node", RETRANSMITTED)
"""Counted of the whole machine where instances share its network."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """All trials of one side that count; every array has shape (n,).

    blocks: ascending.
    good: whether the trial did not fail; what stands in the other columns for a failed one is not used.
    networked: whether it counted anything on a network.
    rto: the smallest retransmission time-out of connections that lost something, seconds.
    flagged: whether it has a flag.
    disturbance: by kind.
    counters: those of timed parts.
    network: those of timed parts, and those that tell of trouble.
    counted: seconds of a workload over which its counters ran, by workload."""

    blocks: IntArray
    good: BoolArray
    networked: BoolArray
    rto: FloatArray
    flagged: BoolArray
    disturbance: Mapping[str, FloatArray]
    counters: Mapping[Counter, FloatArray]
    network: Mapping[Counter, FloatArray]
    counted: Mapping[str, FloatArray]

    def places(self, blocks: IntArray) -> IntArray:
        """Where these blocks stand in the columns; those without a good trial are left out."""
        if self.blocks.size == 0:
            return np.empty(0, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.blocks, blocks), self.blocks.size - 1)
        found: IntArray = at[(self.blocks[at] == blocks) & self.good[at]]
        return found

    @cached_property
    def smallest_rto(self) -> float | None:
        """Of all good trials."""
        return least(self.rto[self.good])

    def drops(self, at: IntArray) -> dict[str, float]:
        """Packets dropped per trial by place, most first; the places where none was are left out. at: the
        trials that are asked of."""
        totals: dict[str, float] = {}
        for (scope, name), column in self.network.items():
            place = place_of(scope, name)
            if place is not None and at.size:
                totals[place] = totals.get(place, 0.0) + float(np.nansum(column[at])) / at.size
        return {place: totals[place] for place in sorted(totals, key=lambda p: -totals[p]) if totals[place]}


def least(values: FloatArray) -> float | None:
    """The smallest known one."""
    known = values[~np.isnan(values)]
    return float(known.min()) if known.size else None


def trials_of(records: Sequence[TrialRecord]) -> Trials:
    """The columns of one side's trials, which stand in the order of their blocks."""
    n = len(records)
    return Trials(
        blocks=np.fromiter((r.block for r in records), dtype=np.int64, count=n),
        good=np.fromiter((r.status is Status.OK for r in records), dtype=np.bool_, count=n),
        networked=np.fromiter((bool(r.network) for r in records), dtype=np.bool_, count=n),
        rto=np.fromiter((_smallest_rto(r.connections or ()) for r in records), dtype=np.float64, count=n),
        flagged=np.fromiter((bool(r.flags) for r in records), dtype=np.bool_, count=n),
        disturbance=_named(_columns([{"": r.disturbance} for r in records])),
        counters=_columns([r.counters for r in records], scopes=_is_timed_part),
        network=_columns([r.network for r in records], wanted=_of_trouble),
        counted=_named(_columns([{"": _counted_seconds(r.rows)} for r in records])),
    )


def joined(pieces: Sequence[Trials]) -> Trials:
    """The trials of all pieces, one behind the other."""
    sizes = [p.blocks.size for p in pieces]
    return Trials(
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


def _columns(
    told: Sequence[Mapping[str, Mapping[str, float | None]]],
    scopes: Callable[[str], bool] = lambda scope: True,
    wanted: Callable[[str, str], bool] = lambda scope, name: True,
) -> dict[Counter, FloatArray]:
    """One column for each counter that is wanted of each scope that is."""
    out: dict[Counter, FloatArray] = {}
    for scope in dict.fromkeys(chain.from_iterable(told)):
        if not scopes(scope):
            continue
        tables = [found.get(scope, _NOTHING) for found in told]
        for name in dict.fromkeys(chain.from_iterable(tables)):
            if wanted(scope, name):
                # None becomes nan.
                column = [table.get(name) for table in tables]
                out[scope, name] = np.array(column, dtype=np.float64)
    return out


def _named(columns: Mapping[Counter, FloatArray]) -> dict[str, FloatArray]:
    return {name: column for (_, name), column in columns.items()}


def _is_timed_part(scope: str) -> bool:
    return scope.startswith(TIMED)


@cache
def _of_trouble(scope: str, name: str) -> bool:
    if scope.startswith(TIMED):
        return name in (TIMEOUTS, RETRANSMITTED, PROBES)
    return place_of(scope, name) is not None or (scope, name) == SHARED


@cache
def place_of(scope: str, counter: str) -> str | None:
    """Where a counter counts drops, in words; None for one that counts something else."""
    where = scope.removeprefix("instance.")
    words = counter.split(".")
    if counter.startswith("dev.") and words[-1] in ("rx_drops", "tx_drops", "rx_errors", "tx_errors"):
        return f"device {'.'.join(words[1:-1])} ({words[-1].replace('_', ' ')}) of {where}"
    if counter.startswith("qdisc.") and words[-1] == "drops":
        return f"queueing discipline {words[-2]} on {'.'.join(words[1:-2])} of {where}"
    if counter == "softnet.dropped":
        return "softnet: a CPU's input queue (whole node)"
    if scope.startswith(TIMED):
        return None
    if counter in _SOCKET_BUFFERS:
        return f"socket buffers of {where}"
    return f"IP of {where}" if counter in _IP else None


def _counted_seconds(rows: Sequence[Row]) -> dict[str, float]:
    """By workload: of its wall clock, else of its rows, of which several may tell of the same slices."""
    walls: dict[str, float] = {}
    found: dict[str, list[tuple[float, ...]]] = {}
    for row in rows:
        if row.status is not Status.OK:
            continue
        if seconds := row.seconds:
            known = found.setdefault(row.workload, [])
            if seconds not in known:
                known.append(seconds)
        elif row.metric == "wall":
            walls.setdefault(row.workload, sum(row.values))
    return {workload: sum(map(sum, parts)) for workload, parts in found.items()} | walls


def _smallest_rto(connections: Iterable[Connection]) -> float:
    """nan where nothing was lost."""
    return min((c.rto for c in connections if c.retransmitted and c.rto), default=math.nan)
