"""A run: a rehearsal, then block after block until the stop rule ends it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from ..environments import Backend
from ..errors import UsageError
from ..host.facts.boot_records import boot_records
from ..host.facts.provenance import provenance
from ..host.lock import machine_lock
from ..meters.inside import counted_everywhere, inside_record, offered_events
from ..model.plan import NextBlock
from ..model.record import TOO_SHORT, JsonValue, TrialRecord, block_seconds, cause_of
from ..model.result import Analysis
from ..model.study import Study
from ..node.bases import base_record
from ..node.machine import Machine, new_label
from ..node.node import Node, open_node, sweep
from ..node.progress import BlockDone, Progress
from ..node.survey.available import usable_arms
from ..node.survey.preflight import require_commands
from ..plan import SlicePlanner, make_block, make_plan
from ..records import ResultsDirectory, by_claim, completed_blocks, last_attempts
from ..subjects.registry import without_unable
from ..workloads.protocol import EVENTS
from .block import Recording
from .bounds.measuring import RoofMeter
from .budget import Pace, Rest, rest_note, rest_of, too_short
from .decide import Clock, RunState, Stop, Verifications, decide
from .interrupt import interruptible
from .rehearsal import REHEARSAL, Rehearsed, rehearse, without_failed, without_unlike
from .reopening import reopened_node
from .running import RunningAnalysis
from .unlike_storage import storage_remedy
from .worker import Worker, at_work

WRITER = "local"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended.

    directory: None if the run was interrupted before anything was measured.
    stopped: the reason, as text.
    interrupted: whether a signal ended the run. All measurements were saved.
    """

    directory: ResultsDirectory | None
    stopped: str
    interrupted: bool


@dataclass(frozen=True, kw_only=True)
class Order:
    """The user's request, apart from the study.

    parent: directory in which results directories are made.
    text: the study file that is stored with the results.
    command: shown to the user of a second run, which finds the machine in use.
    started: Unix seconds when the command was started.
    force: start even if another run is active.
    overrun: let a run whose time is used up continue until its next look.
    """

    parent: Path
    text: str
    command: str
    started: float
    force: bool
    overrun: bool = False


def start_run(machine: Machine, study: Study, order: Order, progress: Progress) -> Outcome:
    """Create a results directory, rehearse, and run the study until its stop rule ends it.

    Raises BusyError if another run holds the machine, before anything is started.
    """
    label = new_label()
    with (
        interruptible(partial(sweep, progress, label)),
        machine_lock(label, command=order.command, force=order.force),
    ):
        try:
            return _start(machine, study, order, label, progress)
        except KeyboardInterrupt:
            return Outcome(directory=None, stopped="interrupted in the rehearsal", interrupted=True)


def check_study(
    machine: Machine, study: Study, progress: Progress
) -> tuple[Study, dict[str, Backend], dict[str, str]]:
    """Return the study without the parts that cannot run on this machine, its backends, and why arms are left
    out.

    Nothing is measured. Parts that are left out are reported through `progress`.
    """
    require_commands(study.arms(), study, machine.host, Path.cwd())
    arms, backends, absent = usable_arms(machine, study, progress)
    asked = study.with_arms(arms)
    study, unable = without_unable(asked, backends, machine.host)
    left = {e.name for e in study.environments}
    for name, why in unable.items():
        progress.note(f"{name} {why}" if name in left else f"{name} is left out: {why}")
    absent |= {a.name: unable[a.environment.name] for a in asked.arms() if a.environment.name not in left}
    return study, backends, absent


def _start(machine: Machine, study: Study, order: Order, label: str, progress: Progress) -> Outcome:
    ResultsDirectory.check_parent(order.parent)
    study, backends, absent = check_study(machine, study, progress)
    begin = time.monotonic()
    with open_node(machine, study, backends, label, progress) as node:
        directory = ResultsDirectory.create(order.parent, study.name, study_yaml=order.text)
        events = EVENTS if study.design.perf_events else ()
        recording = Recording(logs=directory.path / "logs", events=events)
        progress.phase("rehearsal: round 0, discarded")
        rehearsed = rehearse(node, recording, progress)
        study = without_failed(study, rehearsed)
        for arm, why in rehearsed.failed.items():
            progress.note(f"{arm} is left out, since it failed in the rehearsal: {why}")
        if rehearsed.unlike:
            study = _without_unlike(study, rehearsed, order, directory, progress)
        node = replace(node, study=study)
        for text in rehearsed.notes:
            progress.note(text)
        limit = study.design.max_time
        left = None if limit is None else max(0.0, limit - (time.monotonic() - begin))
        planner = SlicePlanner(study, rehearsed.records, rehearsed.seconds, left)
        offered = offered_events(machine.host, machine.tools)
        recording = replace(recording, events=counted_everywhere(events, rehearsed.records))
        directory.freeze(
            seed=study.design.seed,
            arms=tuple(arm.name for arm in study.arms()),
            provenance={
                **provenance(machine.host),
                "tools": {**asdict(machine.built), "directory": str(machine.built.directory)},
                "images": {n: s.record() for n, s in node.software.items() if s.image is not None},
                "parity": rehearsed.parity,
                "not_here": {**absent, **rehearsed.failed, **rehearsed.unlike},
                "cpu_order": {"cpus": list(machine.cpus), "cores": machine.cores},
                "storage": rehearsed.storage,
                "working_directories": rehearsed.working_directories,
                "limits": rehearsed.limits,
                "network": node.network_record(),
                "boots": boot_records(machine.host) if node.bases else {},
                "guests": {name: base_record(b) for name, b in node.bases.items()},
                "inside": inside_record(study.design, recording.events, offered),
                "mpi": _mpi_provenance(machine, study),
                "run": label,
                "rehearsal_seconds": rehearsed.seconds,
                "seconds_left": left,
            },
            rehearsal=rehearsed.records,
            slices=planner.slices(),
            work=rehearsed.work,
            started=order.started,
        )
        return _blocks(node, recording, directory, planner, begin, order, progress)


def _without_unlike(
    study: Study, rehearsed: Rehearsed, order: Order, directory: ResultsDirectory, progress: Progress
) -> Study:
    """Remove the arms whose storage differs in kind from that of the baseline, and report them.

    Raises UsageError if nothing is left to compare. The results directory is then removed.
    """
    remedy = storage_remedy(study, order.command, Path.cwd(), _written(study, since=order.started))
    try:
        left = without_unlike(study, rehearsed, remedy)
    except UsageError:
        shutil.rmtree(directory.path, ignore_errors=True)
        raise
    for arm, why in rehearsed.unlike.items():
        progress.note(f"{arm} is left out: {why}. Next: {remedy}")
    return left


def _written(study: Study, since: float) -> set[str]:
    """Return the files that the user's own programs wrote to the working directory.

    These are files that are named in the programs' arguments and were modified after `since`, in Unix
    seconds.
    """
    named = {str(Path(word.rpartition("=")[2])) for w in study.commands for word in w.argv[1:]}
    return {name for name in named if Path(name).is_file() and Path(name).stat().st_mtime >= since}


def _mpi_provenance(machine: Machine, study: Study) -> dict[str, JsonValue]:
    """Return the provenance of the study's MPI. The machine's mpirun may belong to another MPI."""
    design = study.design
    return {
        "used": machine.mpi.title,
        "mpirun": machine.mpi.mpirun,
        "reach": design.reach.value,
        "single_copy": design.single_copy.value,
    }


def resume_run(
    machine: Machine, study: Study, directory: ResultsDirectory, order: Order, progress: Progress
) -> Outcome:
    """Continue a run. Incomplete blocks are run again as a whole, then further blocks as the budget allows.

    Raises BusyError if another run holds the machine.
    Raises UsageError if the machine is in another state than during the run.
    Raises RunError if an arm of the run cannot run here now.
    """
    label = new_label()
    with (
        interruptible(partial(sweep, progress, label)),
        machine_lock(label, command=order.command, force=order.force),
    ):
        try:
            return _resume(machine, study, directory, label, order, progress)
        except KeyboardInterrupt:
            return Outcome(directory=directory, stopped="interrupted", interrupted=True)


def _resume(
    machine: Machine,
    study: Study,
    directory: ResultsDirectory,
    label: str,
    order: Order,
    progress: Progress,
) -> Outcome:
    begin = time.monotonic()
    with reopened_node(machine, study, directory, label, progress) as (node, recording):
        planner = _planner_then(node.study, directory)
        return _blocks(node, recording, directory, planner, begin, order, progress)


def _planner_then(study: Study, directory: ResultsDirectory) -> SlicePlanner:
    """Return the slice planner in the state that it had after this run's rehearsal."""
    known = directory.provenance
    seconds, left = known.get("rehearsal_seconds"), known.get("seconds_left")
    # Directories of older versions may hold several rehearsals. The last one ran with the warmest caches.
    records = max(by_claim(directory.rehearsal()).values(), key=lambda found: found[0].begin, default=[])
    return SlicePlanner(
        study,
        records,
        seconds if isinstance(seconds, float) else 0.0,
        left if isinstance(left, float) else None,
    )


def _blocks(
    node: Node,
    recording: Recording,
    directory: ResultsDirectory,
    planner: SlicePlanner,
    begin: float,
    order: Order,
    progress: Progress,
) -> Outcome:
    """Run the blocks that are not on disk yet. Each is written to disk before the next begins."""
    try:
        with at_work(node, recording, directory, WRITER) as worker:
            stopped = _Loop(worker, directory, planner, begin, order, progress).run()
        return Outcome(directory=directory, stopped=stopped, interrupted=False)
    except KeyboardInterrupt:
        return Outcome(directory=directory, stopped="interrupted", interrupted=True)


class _Loop:
    """Runs block after block until the stop rule ends the run."""

    def __init__(
        self,
        worker: Worker,
        directory: ResultsDirectory,
        planner: SlicePlanner,
        begin: float,
        order: Order,
        progress: Progress,
    ) -> None:
        """begin: monotonic seconds from which the time budget counts."""
        self._worker, self._node = worker, worker.node
        self._directory, self._planner = directory, planner
        self._begin, self._order, self._progress = begin, order, progress
        self._study = worker.node.study
        self._plan = directory.plan()
        self._running = RunningAnalysis(
            self._study, make_plan(self._study, schedule=self._plan.schedule, started=self._plan.started)
        )
        self._verifications = Verifications()
        self._pace = Pace()
        self._reported: set[object] = set()
        self._records = list(directory.trials())
        self._attempts = last_attempts(self._records)
        members = len(make_block(self._study, REHEARSAL).trials)
        self._done = completed_blocks(self._records, members)
        self._resumed = bool(self._done)
        self._last_seconds = 0.0
        for claim, whole in sorted(by_claim(self._records).items()):
            if claim.block in self._done and len(whole) >= (whole[0].members or members):
                self._saw(_slices_of(whole), whole)

    def run(self) -> str:
        """Run the blocks, and return why the run stopped."""
        networks = {arm: network for (arm, aa), network in self._node.networks.items() if not aa}
        roofs = RoofMeter(
            self._node.machine,
            self._study,
            self._node.label,
            self._node.scratch,
            networks,
            self._progress,
        )
        self._directory.write_roofs(roofs.roofs())
        number, seconds = 0, 0.0
        ran, at, planned = 0, 0.0, 0.0  # blocks of this process; begin and planned length of the last one
        verify_all, limit = self._resumed, self._study.design.max_time
        # The first block is measured more exactly than the rehearsal, if there is time for it.
        announced = limit is not None and self._elapsed() + 2 * self._planner.block_seconds() > limit
        if announced:
            self._announce(0.0)
        while True:
            verdicts = None
            if self._done:  # without a block there is nothing to analyse
                if not announced:
                    self._announce(seconds)
                    announced = True
                analysis, fresh = self._running.after(self._records, len(self._done))
                if seconds and fresh:
                    self._tell_block(analysis, seconds)
                verdicts = self._running.verdicts(analysis)
            state = RunState(
                verdicts=verdicts,
                done=self._done,
                last=number,
                attempts=self._attempts,
                slices=self._planner.slices(),
                verifications=self._verifications,
                verify_all=verify_all,
            )
            clock = Clock(elapsed=self._elapsed(), block_seconds=seconds, overrun=self._order.overrun)
            found = decide(self._study, self._plan.work, state, clock)
            if isinstance(found, Stop):
                return self._stopped(found, roofs)
            sampler = self._worker.recording.sampler
            if sampler is not None and sampler.problem is not None:
                problem = f"no more samples: {sampler.problem}"
                self._tell_once(problem, problem)
            if seconds and roofs.step(self._elapsed()):
                self._directory.write_roofs(roofs.roofs())
            number = found.block.number
            began, at = at, time.monotonic()
            if ran > 1:
                self._pace.saw(planned, at - began)
            planned = self._planner.block_seconds()
            self._run_block(found)
            seconds = time.monotonic() - at
            ran += 1
            if ran == 1:  # it was planned from the cold rehearsal, and the first analysis follows it
                self._pace.saw(self._last_seconds, seconds)
            verify_all = False

    def _rest(self) -> Rest | None:
        """Return the rest of the run, or None if it has no limit."""
        lengths = self._pace.lengths(self._planner.lengths())
        return rest_of(self._study.design, lengths, done=len(self._done), elapsed=self._elapsed())

    def _announce(self, seconds: float) -> None:
        """Report how long the run will take, or that the time budget is too short for verdicts.

        seconds: duration of the last block, including the time between blocks; 0 if none was run.
        """
        between = max(0.0, seconds - self._last_seconds) if seconds else 0.0
        short = too_short(
            self._study,
            self._plan.schedule,
            spent=self._elapsed(),
            done=len(self._done),
            block_seconds=self._planner.block_seconds() + between,
        )
        rest = self._rest()
        if short is not None:
            self._progress.note(short)
        elif rest is not None and rest.rounds:
            self._progress.note(rest_note(rest, done=len(self._done), elapsed=self._elapsed()))

    def _stopped(self, stop: Stop, roofs: RoofMeter) -> str:
        if stop.planned:
            self._directory.close_looks(max(self._done))
        if self._done and roofs.complete():
            self._directory.write_roofs(roofs.roofs())
        return stop.reason

    def _run_block(self, order: NextBlock) -> None:
        whole = []
        for record in self._worker.run(order):
            whole.append(record)
            reasons = {(record.arm, "", cause_of(record.reason)): record.reason}
            for r in record.rows:
                reasons[record.arm, r.workload, cause_of(r.reason)] = r.reason and f"{r.workload}: {r.reason}"
            for key, reason in reasons.items():
                if reason and not reason.endswith(TOO_SHORT):
                    self._tell_once(key, f"{record.arm} failed: {reason}")
        self._records += whole
        self._done.add(order.block.number)
        self._saw(order.slices, whole)

    def _saw(self, slices: Mapping[str, int], whole: Sequence[TrialRecord]) -> None:
        self._last_seconds = block_seconds(whole)
        self._planner.saw(slices, whole, self._last_seconds)
        self._verifications.saw(whole)

    def _elapsed(self) -> float:
        return time.monotonic() - self._begin

    def _tell_once(self, key: object, text: str) -> None:
        """Report a text only once for each key. Otherwise a workload that always fails would hide all other
        messages."""
        if key not in self._reported:
            self._reported.add(key)
            self._progress.note(text)

    def _tell_block(self, analysis: Analysis, seconds: float) -> None:
        rest = self._rest()
        self._progress.block(
            BlockDone(
                number=analysis.blocks,
                seconds=seconds,
                elapsed=self._elapsed(),
                rounds=None if rest is None else len(self._done) + rest.rounds,
                left=None if rest is None else rest.seconds,
                analysis=analysis,
            )
        )


def _slices_of(records: Sequence[TrialRecord]) -> dict[str, int]:
    """Return the number of slices of each workload in a block that is already on disk."""
    return {row.workload: len(row.values) for record in records for row in record.rows if row.seconds}
