"""What an arm uses inside the timed parts of each workload: counters of its control groups, counters that
its instances bring, and what its ranks report. The record keeps them under 'timed.<workload>': sums over
instances and ranks in base units, except run_delay, which is that of the rank that waited longest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ..environments import Instance, Tools
from ..errors import RunError
from ..host import Host, Unavailable
from ..host.counters.energy import energy_domains
from ..host.counters.files import CounterFiles
from ..host.counters.procfiles import Counters
from ..host.counters.sources import FileSource, GroupSource, NodeSource, Source
from ..model.design import Design
from ..model.record import JsonValue, TrialRecord
from ..model.scope import TIMED, Scope
from ..node.running_arm import RunningArm
from ..workloads.protocol import RankReport, SliceLine, Used, parse_offered

_LONGEST = "run_delay"


def sources_of(
    arm: RunningArm, files: Mapping[str, CounterFiles], *, alone: bool, unshared: bool
) -> tuple[Source | FileSource, ...]:
    """The sources of counters that are attributed to one arm.

    files: of the instances' control groups, by label.
    alone: no other arm runs meanwhile, so that what the node waits for and uses is this arm's.
    unshared: no other arm runs in the same virtual machine. What is counted of a virtual machine that two
        arms share belongs to neither: only their ranks can tell.
    """
    if not unshared:
        return ()
    groups = [GroupSource(name=i.label, files=files[i.label]) for i in arm.instances if i.cgroups]
    node = NodeSource(files=arm.node.files)
    energy = () if arm.node.energy is None else (arm.node.energy,)
    return (*groups, *own_sources(arm.instances), *((node, *energy) if alone else ()))


def own_sources(instances: Iterable[Instance]) -> tuple[Source, ...]:
    """What instances bring themselves (host.sources)."""
    # Not by isinstance, which takes as long for a protocol as a file to read, and is asked in every trial.
    return tuple(source for i in instances for source in getattr(i, "sources", ()))


class InsideCounters:
    """Counters of one running arm."""

    def __init__(self, sources: Sequence[Source | FileSource]) -> None:
        self._files = [s for s in sources if isinstance(s, FileSource)]
        self._sources = [s for s in sources if not isinstance(s, FileSource)]
        self._taken: list[tuple[str, FileSource, Mapping[str, bytes], Mapping[str, bytes]]] = []
        self._found: dict[str, Counters] = {}
        self._warm_up = True

    @contextmanager
    def timed(self, workload: str) -> Iterator[None]:
        """What is counted meanwhile belongs to the timed part of that workload."""
        before = [source.read() for source in self._sources]
        files = [source.take() for source in self._files]
        self._warm_up = False
        try:
            yield
        finally:
            self._warm_up = True
            for source, taken in zip(self._files, files, strict=True):
                self._taken.append((workload, source, taken, source.take()))
            after = [source.read() for source in self._sources]
            for first, last in zip(before, after, strict=True):
                self._add(workload, {k: grown(first.get(k), v) for k, v in last.items()})

    def slice(self, workload: str, line: SliceLine) -> None:
        """What the ranks say of one slice."""
        self._add(workload, line.used)

    def run(self, workload: str, reports: Sequence[RankReport]) -> None:
        """What nm-rank says of one run of a program; a warm-up is none of the timed parts."""
        if self._warm_up:
            return
        together: Counters = {}
        for report in reports:
            _plus(together, {**report.used, **report.io}, longest=True)
        self._add(workload, together)

    def close(self) -> dict[str, Counters]:
        """By scope, without what nobody could tell."""
        for workload, source, before, after in self._taken:
            first, last = source.parse(before), source.parse(after)
            self._add(workload, {k: grown(first.get(k), v) for k, v in last.items()})
        self._taken.clear()
        told = {w: {k: v for k, v in c.items() if v is not None} for w, c in self._found.items()}
        return {str(Scope.timed(w)): {**counters} for w, counters in told.items() if counters}

    def _add(self, workload: str, more: Used) -> None:
        _plus(self._found.setdefault(workload, {}), more)


def grown(first: float | None, last: float | None) -> float | None:
    """None where a counter was missing, or ran backwards."""
    return None if first is None or last is None or last < first else last - first


def _plus(total: Counters, more: Mapping[str, float | None], *, longest: bool = False) -> None:
    """Adds in place; None, once there, stays: half a sum is none. longest: of the run delay the longest."""
    for name, value in more.items():
        had = total.get(name, 0.0)
        if had is None or value is None:
            total[name] = None
        else:
            total[name] = max(had, value) if longest and name == _LONGEST else had + value


def offered_events(host: Host, tools: Tools) -> dict[str, str]:
    """What the kernel says to each perf event: '' where a rank can count it here."""
    done = host.run([tools / "nm-rank", "--offered"], timeout=60.0)
    if not done.ok:
        raise RunError(done.failure())
    return parse_offered(done.stdout)


def counted_everywhere(events: Sequence[str], records: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Of these events those that every arm's ranks could count: what one side alone counted would be its own
    cost. Trials in which no rank ran say nothing."""
    scopes = [
        counters
        for r in records
        for text, counters in r.counters.items()
        if Scope.parse(text).kind == TIMED and "page_faults" in counters
    ]
    return tuple(e for e in events if scopes and all(e in counters for counters in scopes))


def inside_record(design: Design, events: Sequence[str], offered: Mapping[str, str]) -> dict[str, JsonValue]:
    """What the run counts, for the provenance, and why it does not count the rest.

    events: the perf events that the ranks count.
    offered: of every perf event, why it cannot be counted on this machine; empty if it can.
    """
    energy = energy_domains()
    absent: dict[str, JsonValue] = {name: why for name, why in offered.items() if why}
    lost = [name for name, why in offered.items() if not why and name not in events]
    reason = "not in every arm" if design.perf_events else "perf_events: false"
    return {
        "sample_every": design.sample_every,
        "perf_events": list(events),
        "perf_events_absent": {**absent, **dict.fromkeys(lost, reason)},
        "energy": [d.name for d in energy] if not isinstance(energy, Unavailable) else None,
        "energy_absent": energy.reason if isinstance(energy, Unavailable) else None,
    }
