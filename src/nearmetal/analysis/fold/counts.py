"""The counters of the trials of one side as columns: one entry per trial, nan if a value is unknown.

Only the counters that the analysis uses are kept.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...model.record import Connection, Counters, Status, TrialData, TrialRecord
from ...model.scope import NODE, TIMED, Scope
from .numbers import NotPlain

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
CounterName = tuple[Scope, str]
Key = TypeVar("Key")
_Found = tuple[list[int], list[Counters | msgspec.Raw]]
"""The indexes of the trials that have counters of one scope, and these counters, trial by trial."""
_decoder = msgspec.json.Decoder(list[dict[str, float | None]])

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
SHARED: CounterName = (NODE, RETRANSMITTED)
"""Counter of the whole machine, for instances that share its network."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """All trials of one side that count; every array has shape (n,).

    blocks: block numbers, ascending.
    good: whether the trial did not fail; the other columns of a failed trial are not used.
    networked: whether the trial has counters of a network.
    rto: smallest retransmission timeout of connections that lost something, in seconds.
    flagged: whether the trial has a flag.
    disturbance: fractions of CPU time that was stolen or that other processes took, by kind.
    counters: counters over timed parts.
    network: network counters over timed parts, and counters of dropped packets over whole trials.
    counted: by workload, seconds over which the counters of its timed part ran.
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
        """Return the indexes of these blocks in the columns; blocks without a good trial are left out."""
        if self.blocks.size == 0:
            return np.empty(0, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.blocks, blocks), self.blocks.size - 1)
        found: IntArray = at[(self.blocks[at] == blocks) & self.good[at]]
        return found

    @cached_property
    def smallest_rto(self) -> float | None:
        """Return the smallest retransmission timeout of all good trials, in seconds; None if unknown."""
        return least(self.rto[self.good])

    def drops(self, at: IntArray) -> dict[str, float]:
        """Return the mean number of packets that were dropped in a trial, by the place where they were
        dropped, in descending order. Places without drops are left out.

        at: indexes of the trials in the columns.
        """
        totals: dict[str, float] = {}
        for (of, name), column in self.network.items():
            place = place_of(of, name)
            if place is not None and at.size:
                totals[place] = totals.get(place, 0.0) + float(np.nansum(column[at])) / at.size
        return {place: totals[place] for place in sorted(totals, key=lambda p: -totals[p]) if totals[place]}


def least(values: FloatArray) -> float | None:
    """Return the smallest value that is not nan; None if there is none."""
    known = values[~np.isnan(values)]
    return float(known.min()) if known.size else None


class CountsBuilder:
    """Collects the counters of one side's trials, in the order of blocks."""

    def __init__(self) -> None:
        self._blocks, self._rto = array("q"), array("d")
        self._good, self._networked, self._flagged = array("b"), array("b"), array("b")
        self._disturbance = _Columns()
        self._counters = _Columns(scopes=lambda of: of.kind == TIMED)
        self._network = _Columns(names=_of_trouble)

    def add(self, record: TrialRecord | TrialData) -> None:
        """Add the counters of one trial. No reference to the trial is kept."""
        at = len(self._blocks)
        self._blocks.append(record.block)
        self._rto.append(_smallest_rto(record.connections or ()))
        self._good.append(record.status is Status.OK)
        self._networked.append(bool(record.network))
        self._flagged.append(bool(record.flags))
        self._disturbance.add(at, {NODE: record.disturbance})
        self._counters.add(at, record.counters)
        self._network.add(at, record.network)

    @property
    def blocks(self) -> IntArray:
        """Return the block of each trial so far."""
        return np.array(self._blocks, dtype=np.int64)

    def counts(self, counted: Mapping[str, FloatArray]) -> Counts:
        """Return the counts of all trials so far.

        counted: by workload, seconds over which the counters of its timed part ran; one value per trial.
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

    columns() parses the counters of one scope in all trials at once, which is faster than trial by trial.
    """

    def __init__(
        self,
        *,
        scopes: Callable[[Scope], bool] = lambda of: True,
        names: Callable[[Scope, str], bool] = lambda of, name: True,
    ) -> None:
        """scopes: returns whether the analysis uses any counter of a scope.
        names: returns whether the analysis uses a counter, given its scope and its name.
        """
        self._scopes, self._names = scopes, names
        self._found: defaultdict[Scope, _Found] = defaultdict(lambda: ([], []))

    def add(self, at: int, scopes: Mapping[Scope, Counters | msgspec.Raw]) -> None:
        """Add the counters of the trial with index `at`."""
        for of, stored in scopes.items():
            if self._scopes(of):
                places, found = self._found[of]
                places.append(at)
                found.append(stored)

    def columns(self, n: int) -> dict[CounterName, FloatArray]:
        """Return one column for each counter, shape (n,), where n is the number of trials; nan if unknown.

        Raises NotPlain if stored counters are corrupt.
        """
        out: dict[CounterName, FloatArray] = {}
        for of, (places, stored) in self._found.items():
            rows = _read(stored)
            alike = len(set(map(tuple, rows))) == 1  # the same names in the same order, as in most runs
            names = rows[0] if alike else dict.fromkeys(chain.from_iterable(rows))
            for name, numbers in _by_name(rows, [name for name in names if self._names(of, name)], alike):
                column = out.setdefault((of, name), np.full(n, math.nan))
                column[places] = numbers
        return out


def _by_name(rows: Sequence[Counters], names: Sequence[str], alike: bool) -> Iterable[tuple[str, FloatArray]]:
    """Return these counters in several trials, shape (trials,), by name; nan if a counter is unknown.

    alike: whether all trials have the same counters in the same order.
    """
    if alike and len(names) == len(rows[0]):
        numbers = list(chain.from_iterable(row.values() for row in rows))
        table = np.array(numbers, dtype=np.float64).reshape(len(rows), len(names))  # None becomes nan
        return zip(names, table.T, strict=True)
    return ((name, np.array([row.get(name) for row in rows], dtype=np.float64)) for name in names)


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


def _read(stored: Sequence[Counters | msgspec.Raw]) -> Sequence[Counters]:
    """Return the counters of a scope in many trials.

    stored: counters of each trial: either all parsed, or all JSON text.

    Raises NotPlain if the text is corrupt.
    """
    if not isinstance(stored[0], msgspec.Raw):
        return cast("Sequence[Counters]", stored)
    try:
        return _decoder.decode(b"[" + b",".join(cast("Sequence[msgspec.Raw]", stored)) + b"]")
    except ValueError as e:  # includes msgspec.DecodeError
        raise NotPlain(str(e)) from e


@cache
def _of_trouble(of: Scope, name: str) -> bool:
    if of.kind == TIMED:
        return name in (TIMEOUTS, RETRANSMITTED, PROBES)
    return place_of(of, name) is not None or (of, name) == SHARED


@cache
def place_of(of: Scope, counter: str) -> str | None:
    """Return the place where packets were dropped that a counter counts, as text; None if the counter does
    not count dropped packets."""
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
    """Return the smallest retransmission timeout of connections that retransmitted, in seconds; nan if none
    did."""
    return min((c.rto for c in connections if c.retransmitted and c.rto), default=math.nan)
