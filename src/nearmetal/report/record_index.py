"""Extracts from the records how trials actually ran: raw slices, transport, placement, counters,
disturbance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from ..model.change import replace
from ..model.record import JsonValue, Row, Status, TrialRecord
from ..model.result import Cell
from ..model.scope import TIMED, Scope
from ..records import heads_of
from ..units import show
from .text import one_line, plural, thin

LOOKED_AT = 250
"""Approximate maximum number of trials of an arm that are read to find out how they ran."""
MOST_KEPT = 4096
"""Largest number of records that are kept in memory after they were read."""


@dataclass(frozen=True, kw_only=True)
class CounterLine:
    """The values of one counter of one scope. None means unavailable.

    baseline: median over trials of the baseline.
    arm: median over trials of the arm.
    median_block: value in the arm's trial of the cell's median block.
    slowest_block: value in the arm's trial of the cell's slowest block.
    """

    name: str
    baseline: float | None
    arm: float | None
    median_block: float | None
    slowest_block: float | None


@dataclass(frozen=True, kw_only=True)
class ArmReports:
    """Reports of the trials of one arm.

    trials: number of trials that were read.
    of: number of good trials of the arm.
    transports: each reported transport, with the number of trials.
    places: each reported placement, with the number of trials.
    disturbance: by kind, median and maximum over trials, as fractions of CPU time; None if no trial could
        measure it.
    flagged: number of trials by kind of flag.
    """

    arm: str
    trials: int
    of: int
    transports: tuple[tuple[str, int], ...]
    places: tuple[tuple[str, int], ...]
    disturbance: tuple[tuple[str, tuple[float, float] | None], ...]
    flagged: tuple[tuple[str, int], ...]


class RecordIndex:
    """Finds records by arm and block.

    It contains the last good attempt of each arm in each block, without the second run of the baseline (A/A).
    Of a long run, only some records are read.
    """

    def __init__(self, records: Sequence[TrialRecord]) -> None:
        self._records = records
        self._places: dict[str, dict[int, int]] = {}
        self._looked_at: dict[str, Sequence[TrialRecord]] = {}
        self._seen: dict[str, ArmReports] = {}
        self._counters: dict[str, Mapping[tuple[Scope, str], float | None]] = {}
        self._read = lru_cache(maxsize=MOST_KEPT)(self._without_seconds)
        heads = heads_of(records)
        for at, head in enumerate(heads):
            if head.aa or head.status is not Status.OK:
                continue
            blocks = self._places.setdefault(head.arm, {})
            held = blocks.get(head.block)
            if held is None or (head.attempt, -head.begin) > (heads[held].attempt, -heads[held].begin):
                blocks[head.block] = at

    def _without_seconds(self, at: int) -> TrialRecord:
        """Read a record without the seconds of its slices. No report shows them, and they would take half of
        the memory."""
        record = self._records[at]
        return replace(record, rows=tuple(replace(row, seconds=()) for row in record.rows))

    def count(self, arm: str) -> int:
        """Return the number of good trials of an arm."""
        return len(self._places.get(arm, {}))

    def trials(self, arm: str) -> Sequence[TrialRecord]:
        """Return the good trials of an arm in block order. If there are more than LOOKED_AT, about LOOKED_AT
        evenly spaced ones are returned."""
        if arm not in self._looked_at:
            places = self._places.get(arm, {})
            self._looked_at[arm] = [self._read(places[b]) for b in thin(sorted(places), LOOKED_AT)]
        return self._looked_at[arm]

    def trial(self, arm: str, block: int) -> TrialRecord | None:
        at = self._places.get(arm, {}).get(block)
        return None if at is None else self._read(at)

    def raw(self, arm: str, block: int, cell: Cell) -> tuple[float, ...]:
        """Return the raw values of a cell's metric in one trial, in base units; empty if there are none."""
        trial = self.trial(arm, block)
        row = _row_of(trial, cell) if trial else None
        return row.values if row is not None and row.status is Status.OK else ()

    def seen(self, arm: str) -> ArmReports:
        """Return transport, placement and disturbance of an arm over its good trials."""
        if arm not in self._seen:
            self._seen[arm] = self._look(arm)
        return self._seen[arm]

    def _look(self, arm: str) -> ArmReports:
        trials = self.trials(arm)
        kinds = dict.fromkeys(k for t in trials for k in t.disturbance)
        return ArmReports(
            arm=arm,
            trials=len(trials),
            of=self.count(arm),
            transports=_counted(trials, lambda t: str(t.transport), lambda t: transport_text(t.transport)),
            places=_counted(trials, lambda t: str([(p.rank, p.host, p.cpus) for p in t.places]), place_text),
            disturbance=tuple((k, _median_and_most([t.disturbance.get(k) for t in trials])) for k in kinds),
            flagged=tuple(Counter(_flag(f) for t in trials for f in t.flags).most_common()),
        )

    def own_namespaces(self, arm: str, baseline: str) -> tuple[str, ...] | None:
        """Return the kinds of namespaces that an arm does not share with its baseline; None if not
        reported."""
        pairs = ((t, self.trial(baseline, t.block)) for t in self.trials(arm))
        both = next(((t, b) for t, b in pairs if b is not None and t.places and b.places), None)
        if both is None:
            return None
        ours, theirs = both[0].places[0].namespaces, both[1].places[0].namespaces
        return tuple(sorted(k for k in ours if k in theirs and ours[k] != theirs[k]))

    def counters(self, cell: Cell) -> tuple[CounterLine, ...]:
        """Return the counters of the arm, of its baseline, and of the cell's median and slowest block.

        Counters of timed parts are included only for the cell's own workload. Medians are taken over the
        trials that trials() returns.
        """
        own = self._places.get(cell.arm, {})
        ranked = [b for _, b in sorted(zip(cell.d, cell.blocks, strict=False)) if b in own]
        if not ranked:
            return ()
        middle, slowest = (self.trial(cell.arm, b) for b in (ranked[len(ranked) // 2], ranked[-1]))
        base, arm = self._medians(cell.baseline), self._medians(cell.arm)
        return tuple(
            CounterLine(
                name=one_line(f"{of} {counter}"),
                baseline=base.get((of, counter)),
                arm=arm.get((of, counter)),
                median_block=_at(middle, of, counter),
                slowest_block=_at(slowest, of, counter),
            )
            for of, counter in dict.fromkeys((*arm, *base))
            if of.kind != TIMED or of.name == cell.workload
        )

    def _medians(self, arm: str) -> Mapping[tuple[Scope, str], float | None]:
        if arm not in self._counters:
            values: dict[tuple[Scope, str], list[float]] = {}
            for t in self.trials(arm):
                for of, counters in t.counters.items():
                    for counter, v in counters.items():
                        held = values.setdefault((of, counter), [])
                        if v is not None:
                            held.append(v)
            self._counters[arm] = {k: median(v) if v else None for k, v in values.items()}
        return self._counters[arm]


def pages_text(trials: Iterable[TrialRecord], workload: str) -> str:
    """Return, for example, '52 MB of 52 MB in huge pages' (medians over trials), or 'not reported'."""
    found = [t.pages[workload] for t in trials if workload in t.pages]
    huge = [v for p in found if (v := p.get("huge")) is not None]
    total = [v for p in found if (v := p.get("total")) is not None]
    if not huge or not total:
        return "not reported"
    return f"{show(median(huge), 'B')} of {show(median(total), 'B')} in huge pages"


def facts_texts(trials: Sequence[TrialRecord], workload: str) -> tuple[str, ...]:
    """Return the facts that an application reported about its run, each as 'name value'.

    If trials reported different values of a fact, the first value is followed by the number of other values.
    """
    values: dict[str, dict[str, None]] = {}
    for t in trials:
        for key, value in t.facts.get(workload, {}).items():
            text = value if isinstance(value, str) else json.dumps(value)
            values.setdefault(key, {})[text] = None
    return tuple(
        f"{key.replace('_', ' ')} {next(iter(found))}"
        + (f" (and {len(found) - 1:,} other values)" if len(found) > 1 else "")
        for key, found in values.items()
    )


def transport_text(transport: Mapping[str, JsonValue]) -> str:
    """Return a transport as text, such as 'btl vader,self; pml ob1', or 'not reported'."""
    text_of = [
        f"{k} {v if isinstance(v, str) else json.dumps(v, ensure_ascii=False, sort_keys=True)}"
        for k, v in sorted(transport.items())
    ]
    return one_line("; ".join(text_of)) or "not reported"


def place_text(trial: TrialRecord) -> str:
    """Return a placement as text, such as 'rank 0: metal, CPU 0; rank 1: metal, CPU 1', or 'not reported'."""
    text_of = [f"rank {p.rank}: {p.host}, CPU {_ranges(p.cpus)}" for p in trial.places]
    return one_line("; ".join(text_of)) or "not reported"


def share_text(flagged: int, seen: ArmReports) -> str:
    """Return how many trials were flagged, as text: 'in 39 of 39 trials'.

    If only some trials were read: 'in 412 of 500 trials looked at'.
    """
    return f"in {flagged:,} of {plural(seen.trials, 'trial')}{' looked at' if seen.trials < seen.of else ''}"


def _ranges(cpus: Sequence[int]) -> str:
    """Return CPUs as ranges: '0-3,8' for (0, 1, 2, 3, 8)."""
    out: list[list[int]] = []
    for c in sorted(cpus):
        if out and c == out[-1][1] + 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out) or "unknown"


def _row_of(trial: TrialRecord, cell: Cell) -> Row | None:
    return next((r for r in trial.rows if r.workload == cell.workload and r.metric == cell.metric), None)


def _flag(flag: str) -> str:
    """Return the part of a flag before the colon. The rest differs between trials, and flags are counted by
    kind."""
    return one_line(flag.split(":", 1)[0])


def _counted(
    trials: Sequence[TrialRecord], key: Callable[[TrialRecord], str], text_of: Callable[[TrialRecord], str]
) -> tuple[tuple[str, int], ...]:
    """Count the trials by what they reported, most frequent first.

    key: returns a key that is fast to compute; text_of() is called only once per key.
    text_of: returns the text under which a trial is counted.
    """
    first: dict[str, TrialRecord] = {}
    count: Counter[str] = Counter()
    for t in trials:
        k = key(t)
        count[k] += 1
        first.setdefault(k, t)
    words: Counter[str] = Counter()
    for k, n in count.items():
        words[text_of(first[k])] += n
    return tuple(words.most_common())


def _at(trial: TrialRecord | None, of: Scope, counter: str) -> float | None:
    return None if trial is None else trial.counters.get(of, {}).get(counter)


def _median_and_most(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [v for v in values if v is not None]
    return (median(known), max(known)) if known else None
