"""A run: a rehearsal, then block after block until the stop rule ends it."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..environments import Backend
from ..errors import BusyError, RecordsError, UsageError
from ..host.lock import machine_lock
from ..meters.inside import counted_everywhere
from ..model.study import Study
from ..node.machine import Machine, new_label
from ..node.node import Node, open_node, sweep
from ..node.progress import Progress
from ..node.survey.available import usable_arms
from ..node.survey.preflight import require_commands
from ..plan import SlicePlanner, looks_over_sets
from ..records import (
    COORDINATOR,
    Claims,
    ResultsDirectory,
    StoredClaim,
    by_claim,
    last_attempts,
    last_holder,
)
from ..records.own_runs import try_note_run
from ..subjects.registry import without_unable
from ..workloads.protocol import EVENTS
from .block import Recording
from .bounds.measuring import RoofMeter
from .budget import LONGER, no_verdict
from .by_hand import run_by_hand
from .cost_cache import measured_costs, store_costs
from .describing import describe, machine_differences
from .given import given_input
from .interrupt import interruptible
from .rehearsal import rehearse, without_failed, without_unlike
from .reopening import reopened_node
from .unlike_storage import storage_remedy
from .workers.coordinator import Coordinator
from .workers.worker import InThisProcess, at_work

WRITER = "local"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended.

    directory: None if the run was interrupted before anything was measured.
    stopped: why the run ended.
    interrupted: whether a signal ended the run. All measurements were saved.
    """

    directory: ResultsDirectory | None
    stopped: str
    interrupted: bool


@dataclass(frozen=True, kw_only=True)
class Order:
    """The user's request, apart from the study.

    parent: directory in which results directories are made.
    command: shown to the user of a second run, which finds the machine in use.
    started: Unix seconds when the command was started.
    force: start even if another run is active.
    text: the study file that is stored with the results of a new run.
    overrun: let a run whose time is used up continue until its next look.
    longer: the option that gives the run a longer time budget, for a note.
    begin: monotonic seconds from which the time budget counts; None to count it from the end of the checks.
    first_until: see run.decide.Clock.
    """

    parent: Path
    command: str
    started: float
    force: bool
    text: str = ""
    overrun: bool = False
    longer: str = LONGER
    begin: float | None = None
    first_until: float = 0.0


def start_run(machine: Machine, study: Study, order: Order, progress: Progress) -> Outcome:
    """Create a results directory, rehearse, and run the study until its stop rule ends it.

    Raises BusyError if another run holds the machine, before anything is started.
    """
    label = new_label()
    made: list[ResultsDirectory] = []
    with (
        interruptible(partial(sweep, progress, label)),
        machine_lock(label, command=order.command, force=order.force),
    ):
        try:
            return _start(machine, study, order, label, progress, made)
        except KeyboardInterrupt:
            if made and made[0].frozen:  # while the node was closed, after the last block
                return Outcome(directory=made[0], stopped="interrupted", interrupted=True)
            return Outcome(directory=None, stopped="interrupted in the rehearsal", interrupted=True)


def check_study(
    machine: Machine, study: Study, progress: Progress
) -> tuple[Study, dict[str, Backend], dict[str, str]]:
    """Leave out the parts of a study that cannot run on this machine. Returns the study without them, its
    backends by name, and the reason for each arm that is left out.

    Nothing is measured. Parts that are left out are reported through `progress`.
    """
    require_commands(study.arms(), study, machine.host, Path.cwd())
    arms, backends, absent = usable_arms(machine, study, progress)
    asked = study.with_arms(arms)
    study, unable = without_unable(asked, backends, machine.host)
    for line in left_out_lines(study, unable):
        progress.note(line)
    left = {e.name for e in study.environments}
    absent |= {a.name: unable[a.environment.name] for a in asked.arms() if a.environment.name not in left}
    return study, backends, absent


def left_out_lines(study: Study, unable: Mapping[str, str]) -> list[str]:
    """Return sentences on what environments of a study do not run: one for each that runs a part of its
    workloads, then one for each reason for which environments are left out.

    study, unable: as returned by without_unable().
    """
    left = {e.name for e in study.environments}
    lines: list[str] = []
    reasons: dict[str, list[str]] = {}
    for name, why in unable.items():
        if name in left:
            lines.append(f"{name} {why}")
        else:
            reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        lines.append(f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} left out: {why}")
    return lines


def _start(
    machine: Machine,
    study: Study,
    order: Order,
    label: str,
    progress: Progress,
    made: list[ResultsDirectory],
) -> Outcome:
    """Run a study. The results directory is appended to `made` when it exists."""
    ResultsDirectory.check_parent(order.parent)
    requested = study
    study, backends, absent = check_study(machine, study, progress)
    begin = time.monotonic() if order.begin is None else order.begin
    with (
        given_input(study, progress) as given,
        open_node(machine, study, backends, label, progress, force=order.force, given=given) as node,
    ):
        directory = ResultsDirectory.create(order.parent, study.name, study_yaml=order.text)
        made.append(directory)
        try_note_run(directory.path, progress.note)
        try:
            node, recording = fix_plan(
                node,
                directory,
                absent,
                progress,
                begin=begin,
                started=order.started,
                command=order.command,
            )
        except UsageError:
            shutil.rmtree(directory.path, ignore_errors=True)
            raise
        rehearsal = time.monotonic() - begin
        planner = planner_then(node.study, directory)
        outcome, ran = _blocks(node, recording, directory, planner, begin, order, progress)
    if ran is not None:
        records = directory.trials()
        with suppress(RecordsError):  # the run itself is complete
            costs = measured_costs(
                requested, rehearsal=rehearsal, walls=ran.walls, records=records, decided=ran.decided
            )
            if costs is not None:
                store_costs(requested, machine.host, costs)
    return outcome


def fix_plan(
    node: Node,
    directory: ResultsDirectory,
    absent: Mapping[str, str],
    progress: Progress,
    *,
    begin: float,
    started: float,
    command: str,
    name: str = "",
) -> tuple[Node, Recording]:
    """Rehearse the study on a node, and write the plan of the run. Returns the node with the arms that are
    left, and what is recorded about the trials of the blocks.

    absent: arms that cannot run here, with the reason.
    begin: monotonic seconds from which the time budget counts.
    started, command: as in Order.
    name: name of the node, if it is one of several; its description is then written too.

    Raises UsageError if nothing is left to compare, and RunError if every arm fails.
    """
    study = node.study
    events = EVENTS if study.design.perf_events else ()
    recording = Recording(logs=directory.path / "logs", events=events)
    by_hand = run_by_hand(node, directory.path.parent, progress)
    progress.phase("rehearsal: round 0, discarded")
    rehearsed = rehearse(node, recording, progress, by_hand=by_hand)
    study = without_failed(study, rehearsed)
    for arm, why in rehearsed.failed.items():
        progress.note(f"{arm} is left out, since it failed in the rehearsal: {why}")
    if rehearsed.unlike:
        remedy = storage_remedy(study, command, Path.cwd(), _written(study, since=started))
        study = without_unlike(study, rehearsed, remedy)
        for arm, why in rehearsed.unlike.items():
            progress.note(f"{arm} is left out: {why}. Next: {remedy}")
    node = replace(node, study=study)
    for text in rehearsed.notes:
        progress.note(text)
    limit = study.design.max_time
    left = None if limit is None else max(0.0, limit - (time.monotonic() - begin))
    planner = SlicePlanner(study, rehearsed.records, rehearsed.seconds, left)
    recording = replace(recording, events=counted_everywhere(events, rehearsed.records))
    known = describe(node, rehearsed, {**absent, **rehearsed.failed, **rehearsed.unlike})
    for line in machine_differences(known):
        progress.note(line)
    if name:
        directory.node_files.write(node.label, known, node=name)
    schedule = looks_over_sets(study, len(node.real.nodes))
    if late := no_verdict(study, schedule):
        progress.note(late)
    directory.freeze(
        seed=study.design.seed,
        arms=tuple(arm.name for arm in study.arms()),
        provenance={**known, "seconds_left": left},
        rehearsal=rehearsed.records,
        slices=planner.slices(),
        work=rehearsed.work,
        schedule=schedule,
        started=started,
    )
    return node, recording


def _written(study: Study, since: float) -> set[str]:
    """Return the files that the user's own programs wrote to the working directory.

    These are files that are named in the programs' arguments and were modified after `since`, in Unix
    seconds.
    """
    named = {str(Path(word.rpartition("=")[2])) for w in study.commands for word in w.argv[1:]}
    return {name for name in named if _modified(Path(name)) >= since}


def _modified(file: Path) -> float:
    """Return the Unix seconds of a file's last modification; -inf if there is no such file."""
    with suppress(OSError):  # also if an argument cannot be a file name, such as a long script
        return file.stat().st_mtime if file.is_file() else -math.inf
    return -math.inf


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
        _require_no_coordinator(directory, label)
        try:
            begin = time.monotonic() if order.begin is None else order.begin
            with (
                given_input(study, progress) as given,
                reopened_node(machine, study, directory, label, progress, force=order.force, given=given) as (
                    node,
                    recording,
                ),
            ):
                planner = planner_then(node.study, directory)
                return _blocks(node, recording, directory, planner, begin, order, progress)[0]
        except KeyboardInterrupt:
            return Outcome(directory=directory, stopped="interrupted", interrupted=True)


def _require_no_coordinator(directory: ResultsDirectory, label: str) -> None:
    """Raise BusyError if another process coordinates workers of this run now."""
    place = directory.path / COORDINATOR
    if not place.is_dir():
        return
    seat = Claims(place, label)
    try:
        found = last_holder(place, seat.now())
    finally:
        seat.close()
    if found is not None and found.held:
        raise coordinated_elsewhere(directory, found)


def coordinated_elsewhere(directory: ResultsDirectory, found: StoredClaim | None) -> BusyError:
    """Return the error for a run that another process coordinates.

    found: the claim of that process; None if it is not known.
    """
    where = f" ({found.claim.run} on {found.host})" if found is not None else ""
    return BusyError(
        f"another process coordinates this run{where}",
        where=str(directory.path),
        remedy="end it; if it was killed, wait a minute",
    )


def planner_then(study: Study, directory: ResultsDirectory) -> SlicePlanner:
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
) -> tuple[Outcome, Coordinator | None]:
    """Run the blocks that are not on disk yet. Each is written to disk before the next begins. Returns how
    the run ended, and the coordinator that ran the blocks; None in its place if the run was interrupted."""
    from ..analysis.roofs import wanted

    known = directory.trials()
    try:
        with at_work(node, recording, directory, WRITER) as worker:
            coordinator = Coordinator(
                node.study,
                directory,
                planner,
                InThisProcess(worker),
                progress,
                known=known,
                attempts=last_attempts(known.heads),
                begin=begin,
                overrun=order.overrun,
                first_until=order.first_until,
                longer=order.longer,
                roofs=RoofMeter(
                    node,
                    # Upper bounds of this machine do not hold for other machines on which the ranks run.
                    () if node.real.nodes else wanted(node.study),
                    progress,
                ),
            )
            stopped = coordinator.run()
        return Outcome(directory=directory, stopped=stopped, interrupted=False), coordinator
    except KeyboardInterrupt:
        return Outcome(directory=directory, stopped="interrupted", interrupted=True), None
