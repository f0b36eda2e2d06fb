"""Measures starts and stops: the instances of every arm are started and stopped repeatedly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from ..model.change import replace
from ..model.record import STEP, Row
from ..model.study import Arm, Design, EventSubject, SubjectFacts
from ..node.arms.running_arm import RunningArm
from ..node.arms.start_group import Group, Stopped
from ..node.arms.starting import Surroundings, guest_around, started_instances
from ..node.trial import Guard, Trial
from .contract import Cost, Subject
from .events.rows import START_SECONDS, event_row
from .rounds import shuffled, sound

START = SubjectFacts(
    name="start",
    doc="from the request to the first instruction in the last instance",
    event="a start",
    metrics=("start",),
    quantiles=frozenset({"start"}),
    plurals={"start": "starts"},
)
STOP = SubjectFacts(
    name="stop",
    doc="from the request to the end of the first process of the last instance",
    event="a stop",
    metrics=("stop", "removed"),
    quantiles=frozenset({"stop", "removed"}),
    plurals={"stop": "stops", "removed": "stops"},
)


@dataclass(frozen=True, kw_only=True)
class _Cycles:
    """Measured starts and stops of one trial, in order of time."""

    starts: list[Group] = field(default_factory=list)
    stops: list[Stopped] = field(default_factory=list)


class StartStop(Subject):
    """Measures how long the instances of an arm take to start and to stop.

    A start lasts from the request until every instance has run its first instruction. A stop lasts from the
    request until the first process of every instance has ended. `removed` lasts from the request
    until nothing is left of the instances.
    """

    facts = (START, STOP)
    order = 0

    @classmethod
    def cost(cls, workloads: Sequence[EventSubject], arm: Arm, design: Design) -> Cost:
        times = sum(w.count_in(design) for w in workloads)
        return Cost(once=times * arm.placement.all_instances * START_SECONDS)

    def before_start(self) -> None:
        """Start and stop the instances of the arms repeatedly, in random order.

        The later start of the instances that all subjects share counts as one more start.
        """
        self._cycles = {t.id: _Cycles() for t in self.group.trials}
        wanted = {t.id: self._wanted(t) for t in self.group.trials}
        around: dict[str, Surroundings] = {}
        with ExitStack() as stack:
            for t in sound(self.group.trials):
                if wanted[t.id]:
                    with Guard(t):
                        around[t.id] = stack.enter_context(guest_around(t, Surroundings()))
            for turn in range(max(wanted.values(), default=0)):
                for t in shuffled(self.group.trials, self.group.rng):
                    if turn < wanted[t.id]:
                        with Guard(t):
                            self._cycle(t, around[t.id], time_stop=turn < self._stops(t))

    def _cycle(self, trial: Trial, around: Surroundings, *, time_stop: bool) -> None:
        with started_instances(trial, around, time_stop=time_stop) as (group, _):
            if group.has_first_process:
                self._cycles[trial.id].starts.append(group)
        if group.stopped is not None:
            self._cycles[trial.id].stops.append(group.stopped)

    def after(self, arms: Mapping[str, RunningArm]) -> None:
        """Add the rows of starts and stops. A trial with fewer than the study requests gets none."""
        for t in self.group.trials:
            cycles = self._cycles[t.id]
            if t.id in arms and arms[t.id].group.has_first_process:
                cycles.starts.append(arms[t.id].group)
            for w in self._taken(t):
                t.found.rows += _rows(w, w.count_in(self.group.design), cycles)

    def _wanted(self, trial: Trial) -> int:
        starts = [w.count_in(self.group.design) for w in self._taken(trial, START)]
        return max(max(starts, default=1) - 1, self._stops(trial))

    def _stops(self, trial: Trial) -> int:
        return max((w.count_in(self.group.design) for w in self._taken(trial, STOP)), default=0)

    def _taken(self, trial: Trial, *facts: SubjectFacts) -> list[EventSubject]:
        """Return the workloads of this subject that a trial runs.

        facts: START or STOP, to return only workloads of this kind.
        """
        return [w for w in self.workloads if trial.takes(w) and (not facts or w.facts in facts)]


def _rows(w: EventSubject, n: int, cycles: _Cycles) -> list[Row]:
    if w.facts == START and len(cycles.starts) >= n:
        # The last n starts, including the start of the instances that stayed.
        last = cycles.starts[-n:]
        parts = {STEP + k: tuple(one.steps.get(k, 0.0) for one in last) for k in last[-1].steps}
        return [replace(event_row(w, "start", "s", [max(one.seconds) for one in last]), parts=parts)]
    if w.facts == STOP and len(cycles.stops) >= n:
        stops = cycles.stops[:n]
        return [
            event_row(w, "stop", "s", [stop.ended for stop in stops]),
            event_row(w, "removed", "s", [stop.removed for stop in stops]),
        ]
    return []
