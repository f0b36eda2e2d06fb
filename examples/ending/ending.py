"""Ending: how long a command takes in a running instance, from the request to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nearmetal.environments import Backend
from nearmetal.errors import TrialFailedError
from nearmetal.meters.groups import MeteredArm
from nearmetal.model.keys import key_or, quantity
from nearmetal.model.study import Arm, Design, EventSubject, SubjectFacts
from nearmetal.node.arms.running_arm import RunningArm
from nearmetal.subjects.contract import Cost, Subject
from nearmetal.subjects.events.rows import event_row
from nearmetal.subjects.rounds import rounds
from nearmetal.units import Dimension


@dataclass(frozen=True, kw_only=True)
class EndingWorkload(EventSubject):
    """sleeps: seconds that the command sleeps."""

    sleeps: float = key_or(0.0, quantity(Dimension.TIME, 0, 10), "ending: how long it sleeps", "20 ms")


ENDING = SubjectFacts(
    name="ending",
    doc="from the request to the end of a command in a running instance",
    metrics=("ending",),
    quantiles=frozenset({"ending"}),
    plurals={"ending": "commands"},
    workload=EndingWorkload,
)
LIMIT, USUAL = 60.0, 0.01


class Ending(Subject):
    """A command in the first instance of every environment, in random order in each round."""

    facts = (ENDING,)

    @classmethod
    def unable(cls, workload: EndingWorkload, backend: Backend) -> str | None:
        return "it runs commands more slowly on purpose" if backend.capabilities.plants_work else None

    @classmethod
    def cost(cls, workloads: Sequence[EndingWorkload], arm: Arm, design: Design) -> Cost:
        return Cost(once=sum(w.count_in(design) * (USUAL + w.sleeps) for w in workloads))

    def while_running(self, arms: Mapping[str, MeteredArm]) -> None:
        for w in self.workloads:
            trials, count = self.group.taking(w), w.count_in(self.group.design)
            seconds: dict[str, list[float]] = {t.id: [] for t in trials}
            for t in rounds(trials, self.group.rng, count):
                arm = arms[t.id].running
                with arm.guard():
                    seconds[t.id].append(ending(arm, w.sleeps))
            for t in trials:
                if len(seconds[t.id]) == count:
                    t.found.rows.append(event_row(w, "ending", "s", seconds[t.id]))


def ending(arm: RunningArm, sleeps: float) -> float:
    """Seconds from the request to the end. Raises TrialFailedError."""
    argv = arm.instances[0].command(["sleep", str(sleeps)])
    begin = time.monotonic()
    done = arm.node.machine.host.run(argv, timeout=LIMIT, cwd=Path("/"))
    if not done.ok:
        raise TrialFailedError(
            f"a command in the instance failed: {done.failure()}", where=str(arm.trial.log)
        )
    return time.monotonic() - begin
