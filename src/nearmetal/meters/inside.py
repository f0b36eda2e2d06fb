"""Counts the resource use of an arm inside the timed parts of each workload.

Sources are the control groups of its instances, counters that the instances provide themselves, and reports
of the ranks. The record contains the counters under 'timed.<workload>'. They are sums over instances and
ranks in base units, except run_delay (time in the run queue), which is that of the rank that waited
longest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ..environments import Instance, Tools
from ..host import Host, MissingValue
from ..host.counters.energy import energy_domains
from ..host.counters.files import CounterFiles
from ..host.counters.procfiles import Counters
from ..host.counters.sources import FileSource, GroupSource, NodeSource, Source
from ..model.design import Design
from ..model.record import JsonValue, TrialRecord
from ..model.scope import TIMED, Scope
from ..node.arms.running_arm import RunningArm
from ..workloads.protocol import RankReport, SliceLine, Used, parse_offered

_LONGEST = "run_delay"


def sources_of(
    arm: RunningArm,
    files: Mapping[str, CounterFiles],
    *,
    alone: bool,
    unshared: bool,
    guest: CounterFiles | None = None,
) -> tuple[Source | FileSource, ...]:
    """Return the sources whose counters are attributed to one arm.

    files: counter files of the instances' control groups, by label of the instance.
    alone: whether no other arm runs at the same time. The counters of the node then belong to this arm.
    unshared: whether no other arm runs in the same virtual machine. If False, there are no sources, because
        the counters of a virtual machine cannot be divided among arms; only the ranks report.
    guest: counter files of the control groups of the virtual machine from groups.own_guest(); None if there
        is none.
    """
    if not unshared or arm.placement.node.remote:
        return ()
    groups = [GroupSource(files=files[i.label]) for i in arm.instances if i.cgroups]
    if guest is not None:
        groups.append(GroupSource(files=guest))
    node = NodeSource(files=arm.node.files)
    energy = () if arm.node.energy is None else (arm.node.energy,)
    return (*groups, *own_sources(arm.instances), *((node, *energy) if alone else ()))


def own_sources(instances: Iterable[Instance]) -> tuple[Source, ...]:
    """Return the sources of counters that instances provide themselves (host.counters.sources)."""
    # isinstance() with a protocol takes as long as reading a file, and this is called in every trial.
    return tuple(source for i in instances for source in getattr(i, "sources", ()))


class InsideCounters:
    """A meter of the timed parts of one running arm (contract.Meter)."""

    def __init__(self, sources: Sequence[Source | FileSource]) -> None:
        self._files = [s for s in sources if isinstance(s, FileSource)]
        self._sources = [s for s in sources if not isinstance(s, FileSource)]
        self._taken: list[tuple[str, FileSource, Mapping[str, bytes], Mapping[str, bytes]]] = []
        self._found: dict[str, Counters] = {}
        self._warm_up = True

    @contextmanager
    def timed(self, workload: str) -> Iterator[None]:
        """See contract.Meter."""
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
        """Add the resource use that the ranks report about one slice."""
        self._add(workload, line.used)

    def run(self, workload: str, reports: Sequence[RankReport]) -> None:
        """Add the resource use that nm-rank reports about one run of a program, from all ranks. Reports
        outside of timed(), which are those of warm-up runs, are ignored."""
        if self._warm_up:
            return
        together: Counters = {}
        for report in reports:
            _plus(together, {**report.used, **report.io}, longest=True)
        self._add(workload, together)

    def close(self) -> dict[Scope, Counters]:
        """Return the counters by scope. Counters that could not be read are left out."""
        for workload, source, before, after in self._taken:
            first, last = source.parse(before), source.parse(after)
            self._add(workload, {k: grown(first.get(k), v) for k, v in last.items()})
        self._taken.clear()
        known = {w: {k: v for k, v in c.items() if v is not None} for w, c in self._found.items()}
        return {Scope.timed(w): {**counters} for w, counters in known.items() if counters}

    def _add(self, workload: str, more: Used) -> None:
        _plus(self._found.setdefault(workload, {}), more)


def grown(first: float | None, last: float | None) -> float | None:
    """Return the increase of a counter; None if a reading is missing or smaller than the one before."""
    return None if first is None or last is None or last < first else last - first


def _plus(total: Counters, more: Mapping[str, float | None], *, longest: bool = False) -> None:
    """Add counters to the totals in place. A total stays None once one of its addends is unknown.

    longest: keep the maximum of run_delay instead of the sum.
    """
    for name, value in more.items():
        had = total.get(name, 0.0)
        if had is None or value is None:
            total[name] = None
        else:
            total[name] = max(had, value) if longest and name == _LONGEST else had + value


def offered_events(host: Host, tools: Tools) -> dict[str, str]:
    """Return, by name of the perf event, why ranks cannot count it on this machine; '' if they can.

    Raises RunError if nm-rank fails.
    """
    done = host.run([tools / "nm-rank", "--offered"], timeout=60.0).require()
    return parse_offered(done.stdout)


def counted_everywhere(events: Sequence[str], records: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Return the perf events that the ranks of every arm were able to count.

    Other events are not counted at all, because an event that only some arms count would slow down only
    these.

    records: records of the rehearsal. Trials in which no rank ran are ignored.
    """
    scopes = [
        counters
        for r in records
        for scope, counters in r.counters.items()
        if scope.kind == TIMED and "page_faults" in counters
    ]
    return tuple(e for e in events if scopes and all(e in counters for counters in scopes))


def inside_record(design: Design, events: Sequence[str], offered: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return the provenance of the counters: which ones the run reads, and why it does not read the others.

    events: names of the perf events that the ranks count.
    offered: result of offered_events().
    """
    energy = energy_domains()
    absent: dict[str, JsonValue] = {name: why for name, why in offered.items() if why}
    lost = [name for name, why in offered.items() if not why and name not in events]
    reason = "not in every environment" if design.perf_events else "perf_events: false"
    return {
        "sample_every": design.sample_every,
        "perf_events": list(events),
        "perf_events_absent": {**absent, **dict.fromkeys(lost, reason)},
        "energy": [d.name for d in energy] if not isinstance(energy, MissingValue) else None,
        "energy_absent": energy.reason if isinstance(energy, MissingValue) else None,
    }
