"""Programs that run as a whole: a user's own programs, and applications."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..meters.groups import MeteredArm
from ..model.change import replace
from ..model.record import Row, Status
from ..model.study import ApplicationWorkload, Arm, CommandWorkload, Design, Transport
from ..workloads.applications.registry import application, choices
from .contract import Cost, Subject, slowness
from .launches.application import prepare_application, run_application
from .launches.command import run_command
from .rounds import rounds, shuffled

VECTORS = 16.0
"""Factor by which an emulator slows down tuned vector code more than other work."""
TCP, GUESTS = 3.0, 6.0
"""Factors by which messages of an application take longer than through shared memory: over TCP, and over TCP
between emulated guests."""


class Programs(Subject):
    """Measures programs, which cannot be divided into slices.

    A trial runs each program Design.runs times. For each run, all arms run the program one after the other in
    random order. A metric has one row, with the values of all runs.
    """

    order = 4

    @classmethod
    def cost(
        cls, workloads: Sequence[CommandWorkload | ApplicationWorkload], arm: Arm, design: Design
    ) -> Cost:
        seconds = sum(_seconds(w, arm) for w in workloads)
        return Cost(once=seconds * (design.runs + design.warm_up))

    def while_running(self, arms: Mapping[str, MeteredArm]) -> None:
        for workload in self.workloads:
            self._run(workload, arms)

    def _run(self, workload: CommandWorkload | ApplicationWorkload, arms: Mapping[str, MeteredArm]) -> None:
        design, rng, trials = self.group.design, self.group.rng, self.group.taking(workload)
        if isinstance(workload, ApplicationWorkload):
            for t in shuffled(trials, rng):
                with arms[t.id].running.guard():
                    prepare_application(arms[t.id], workload)
        for _ in range(design.warm_up):
            for t in shuffled(trials, rng):
                with arms[t.id].running.guard():
                    self._prepare(workload)
                    _run_once(arms[t.id], workload)
        ran: dict[str, list[tuple[Row, ...]]] = {t.id: [] for t in trials}
        for t in rounds(trials, rng, design.runs):
            with arms[t.id].running.guard():
                self._prepare(workload)
                with arms[t.id].timed_run(workload.name):
                    ran[t.id].append(_run_once(arms[t.id], workload))
        for t in trials:
            t.found.rows += merged_rounds(ran[t.id])

    def _prepare(self, workload: CommandWorkload | ApplicationWorkload) -> None:
        """Bring the working directory into the state in which each run begins."""
        if not workload.own_directory:
            self.group.node.working_directory.prepare()


def _seconds(workload: CommandWorkload | ApplicationWorkload, arm: Arm) -> float:
    """Return the estimated seconds of one run on an arm."""
    if isinstance(workload, CommandWorkload):
        return workload.usual_time * slowness(arm)
    known, given, ranks = application(workload.application), choices(workload), arm.placement.ranks
    waiting, vectorised = known.waiting(given), known.vectorised(given, ranks)
    slow = slowness(arm, files=known.of_files)
    vectors = vectorised * (slow * VECTORS if slow > 1 else 1.0)
    path = 1.0 if arm.transport is Transport.SHM else GUESTS if slow > 1 else TCP
    further = (path - 1) * known.messages(given, ranks)
    other = (known.seconds(given, ranks) + further - waiting - vectorised) * slow
    return waiting + _tasks_on_a_cpu(arm) * (other + vectors)


def _tasks_on_a_cpu(arm: Arm) -> int:
    """Return how many ranks share one CPU at most."""
    return max(Counter(arm.placement.cpus or ()).values(), default=1)


def _run_once(metered: MeteredArm, workload: CommandWorkload | ApplicationWorkload) -> tuple[Row, ...]:
    if isinstance(workload, CommandWorkload):
        return run_command(metered, workload)
    return run_application(metered, workload)


def merged_rounds(rounds: Sequence[tuple[Row, ...]]) -> list[Row]:
    """Merge the rows of several runs of a program into one row per metric, with the values of all runs.

    A metric that failed in one run has failed. A metric that was not measured in every run is left out, and
    so is a part of the time: a program with threads, for example, has parts only in runs in which it took
    less CPU time than wall time.
    """
    if len(rounds) == 1:
        return list(rounds[0])
    out: list[Row] = []
    by_name = [{r.metric: r for r in run} for run in rounds]
    for metric in by_name[0] if by_name else ():
        same = [run[metric] for run in by_name if metric in run]
        if len(same) < len(rounds):
            continue
        failed = next((r for r in same if r.status is Status.FAILED), None)
        kinds = [kind for kind in same[0].parts if all(kind in r.parts for r in same)]
        out.append(
            replace(
                failed or same[0],
                values=tuple(v for r in same for v in r.values),
                parts={kind: tuple(v for r in same for v in r.parts[kind]) for kind in kinds},
            )
        )
    return out
