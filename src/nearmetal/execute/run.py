"""The run: a rehearsal that fixes the number of blocks, then block after block until the stop rule speaks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from ..errors import RunError, UsageError
from ..host.boot_records import boot_records
from ..host.energy import energy_files
from ..host.lock import machine_lock
from ..host.provenance import boot_state, provenance
from ..model.record import TOO_SHORT, JsonValue, Status, TrialRecord
from ..model.result import Analysis
from ..model.roof import roof_record
from ..model.study import Arm, Limits, Study
from ..plan import LONGEST_BLOCK, SlicePlanner, block_pace, make_block, make_plan
from ..records import ResultsDirectory, TrialWriter, by_attempt, completed_blocks, last_attempts
from ..samplers import Sampler
from .audit import applications_said, audit_arms, limits_found, met_differently, parity, storage_found
from .bases import base_record
from .block import run_block
from .inside import counted_everywhere, inside_record, offered_events
from .interrupt import interruptible
from .machine import Machine
from .progress import BlockDone, Progress
from .roofs import measured_roofs
from .running import RunningAnalysis
from .session import Session, new_label, open_session, sweep, usable_arms
from .standing import Standing

REHEARSAL = 0
CHEAP_REHEARSAL = 0.05
"""Share of the time budget that further rehearsals may take; without a budget, LONGEST_BLOCK."""
REHEARSALS = 3
"""At most."""
WRITER = "local"
BLOCKS_WITHIN = 40
"""Blocks that a time budget is shared among."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended. directory: None when it was interrupted before anything was measured; stopped: why, in
    words; interrupted: by a signal, everything saved."""

    directory: ResultsDirectory | None
    stopped: str
    interrupted: bool


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a person asked for, beside the study. parent: where results directories go; text: the study file
    as it will be frozen; command: shown to a second run that finds the machine taken; force: run beside
    another run."""

    parent: Path
    text: str
    command: str
    force: bool


def start_run(machine: Machine, study: Study, order: Order, progress: Progress) -> Outcome:
    """Create a results directory, rehearse, and run the study in it until its stop rule speaks.

    Raises BusyError when another run holds the machine, before anything is started.
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


def _start(machine: Machine, study: Study, order: Order, label: str, progress: Progress) -> Outcome:
    arms, backends, absent = usable_arms(machine, study, progress)
    study = narrowed(study, arms)
    begin = time.monotonic()
    with open_session(machine, study, backends, label, progress) as session:
        networks = {arm: network for (arm, aa), network in session.networks.items() if not aa}
        roofs = measured_roofs(machine, study, label, session.scratch, networks, progress)
        directory = ResultsDirectory.create(order.parent, study.name, study_yaml=order.text)
        session = replace(session, logs=directory.path / "logs")
        progress.phase("rehearsal: block 0, discarded")
        rehearsal = _rehearse(session)
        for text in rehearsal.notes:
            progress.note(text)
        planner = SlicePlanner(study, rehearsal.warm, rehearsal.seconds)
        slices = planner.slices()
        offered = offered_events(machine.host, machine.tools)
        session = replace(session, events=counted_everywhere(session.events, rehearsal.every))
        directory.freeze(
            seed=study.design.seed,
            arms=tuple(arms),
            provenance={
                **provenance(machine.host),
                "tools": {**asdict(machine.built), "directory": str(machine.built.directory)},
                "images": {n: s.record() for n, s in session.software.items() if s.image is not None},
                "parity": rehearsal.parity,
                "not_here": dict(absent),
                "cpu_order": {"cpus": list(machine.cpus), "cores": machine.cores},
                "storage": rehearsal.storage,
                "limits": rehearsal.limits,
                "network": session.network_record(),
                "boots": boot_records(machine.host) if session.bases else {},
                "guests": {name: base_record(b) for name, b in session.bases.items()},
                "inside": inside_record(session, offered),
                "roofs": [roof_record(roof) for roof in roofs],
                "mpi": _mpi_asked(machine, study),
                "run": label,
                "rehearsal_seconds": rehearsal.seconds,
            },
            rehearsal=rehearsal.every,
            slices=slices,
        )
        return _blocks(session, directory, planner, begin, progress)


def _mpi_asked(machine: Machine, study: Study) -> dict[str, JsonValue]:
    """The machine's mpirun may be of another MPI than the study's."""
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
    """Go on where a run ended: torn blocks are run again as a whole, then further ones as the budget allows.

    Raises BusyError when another run holds the machine, UsageError when the machine is in another state than
    the run was in, RunError when an arm of the run cannot run here now.
    """
    label = new_label()
    with (
        interruptible(partial(sweep, progress, label)),
        machine_lock(label, command=order.command, force=order.force),
    ):
        try:
            return _resume(machine, study, directory, label, progress)
        except KeyboardInterrupt:
            return Outcome(directory=directory, stopped="interrupted", interrupted=True)


def _resume(
    machine: Machine, study: Study, directory: ResultsDirectory, label: str, progress: Progress
) -> Outcome:
    arms, backends, absent = usable_arms(machine, study, progress)
    for name in directory.plan().arms:
        if name not in arms:
            raise RunError(
                f"arm {name} of this run cannot run here now: {absent[name]}", where=str(directory.path)
            )
    study = narrowed(study, directory.plan().arms)
    begin = time.monotonic()
    _same_boot_state(machine, directory)
    with open_session(machine, study, backends, label, progress) as session:
        _same_images(session, directory)
        directory.reopen()
        session = replace(
            session,
            logs=directory.path / "logs",
            events=_events_then(directory),
        )
        return _blocks(session, directory, _planner_then(study, directory), begin, progress)


def _planner_then(study: Study, directory: ResultsDirectory) -> SlicePlanner:
    """As after this run's rehearsal."""
    seconds = directory.provenance.get("rehearsal_seconds")
    blocks = [records for _, records in sorted(by_attempt(directory.rehearsal()).items())]
    return SlicePlanner(study, blocks[1:] or blocks, seconds if isinstance(seconds, float) else 0.0)


def _events_then(directory: ResultsDirectory) -> tuple[str, ...]:
    """The perf events that this run counts: the same in all of its blocks."""
    inside = directory.provenance.get("inside")
    events = inside.get("perf_events") if isinstance(inside, dict) else None
    return tuple(str(e) for e in events) if isinstance(events, list) else ()


def _same_boot_state(machine: Machine, directory: ResultsDirectory) -> None:
    """Blocks of another kernel, microcode or governor are no replicates of those on disk."""
    then, now = boot_state(directory.provenance), boot_state(provenance(machine.host))
    changed = [key for key in now if json.dumps(now[key]) != json.dumps(then.get(key))]
    if changed:
        raise UsageError(
            f"the machine is not in the state of this run any more: {', '.join(changed)} changed",
            where=str(directory.path),
            remedy="run the study afresh, and compare the two: nearmetal compare",
        )


def _same_images(session: Session, directory: ResultsDirectory) -> None:
    """Blocks in another tree are no replicates of those on disk."""
    then = directory.provenance.get("images")
    for name, software in session.software.items():
        known = then.get(name) if isinstance(then, dict) else None
        digest = known.get("digest") if isinstance(known, dict) else None
        if software.image is not None and digest not in (None, software.image.digest):
            raise UsageError(
                f"image {name} is not the one of this run any more: it was built or imported again",
                where=str(directory.path),
                remedy="run the study afresh, and compare the two: nearmetal compare",
            )


def narrowed(study: Study, arms: Sequence[str] | dict[str, Arm]) -> Study:
    """The study with only the environments, and of them the placements, that take part."""
    environments = tuple(
        replace(e, placements=kept)
        for e in study.environments
        if (kept := tuple(p for p in e.placements if f"{e.name}/{p}" in arms))
    )
    names = {e.name for e in environments}
    design = replace(study.design, baselines=tuple(b for b in study.design.baselines if b in names))
    return replace(study, environments=environments, design=design)


@dataclass(frozen=True, kw_only=True)
class _Rehearsal:
    """every: records of all of its blocks; warm: of those that the plan rests on, without the first one from
    cold caches where there are others; seconds: of one of these."""

    seconds: float
    parity: dict[str, JsonValue]
    storage: dict[str, JsonValue]
    limits: dict[str, JsonValue]
    every: tuple[TrialRecord, ...]
    warm: tuple[tuple[TrialRecord, ...], ...]
    notes: tuple[str, ...]


def _rehearse(session: Session) -> _Rehearsal:
    """A block that is not used, and where that is cheap more of them: it fills caches, shows what fails, and
    tells how long a block takes and how noisy its slices are."""
    facts: dict[str, dict[str, str]] = {}
    storage: dict[str, JsonValue] = {}
    limits: dict[str, JsonValue] = {}
    audit_seconds = 0.0

    def audit(standing: Sequence[Standing]) -> None:
        nonlocal audit_seconds
        at = time.monotonic()
        facts.update(audit_arms(session, standing))
        storage.update({s.arm.name: storage_found(session, s) for s in standing if s.volumes})
        limits.update({s.arm.name: limits_found(s) for s in standing if s.arm.environment.limits != Limits()})
        audit_seconds += time.monotonic() - at

    def rehearse(attempt: int) -> tuple[float, tuple[TrialRecord, ...]]:
        begin = time.monotonic()
        records = _rehearsed(session, attempt, audit if attempt == 1 else None)
        return time.monotonic() - begin - (audit_seconds if attempt == 1 else 0.0), records

    # The first is dearer than any other block: caches were cold. And one alone may meet a quiet spell.
    blocks = [rehearse(1)]
    limit = session.study.design.max_time
    left = LONGEST_BLOCK if limit is None else CHEAP_REHEARSAL * limit
    while len(blocks) < REHEARSALS and blocks[-1][0] < left:
        blocks.append(rehearse(len(blocks) + 1))
        left -= blocks[-1][0]
    every = tuple(r for _, records in blocks for r in records)
    used = blocks[1:] or blocks
    said = applications_said(every)
    for arm, told in said.items():
        facts.setdefault(arm, {}).update(told)
    return _Rehearsal(
        seconds=median(seconds for seconds, _ in used),
        parity=parity(facts),
        storage=storage,
        limits=limits,
        every=every,
        warm=tuple(records for _, records in used),
        notes=met_differently(said),
    )


def _rehearsed(
    session: Session, attempt: int, audit: Callable[[Sequence[Standing]], None] | None
) -> tuple[TrialRecord, ...]:
    block = make_block(session.study, REHEARSAL)
    records = tuple(run_block(session, block, attempt, while_standing=audit))
    failed = [r for r in records if r.status is Status.FAILED]
    if len(failed) == len(records) and attempt == 1:
        raise RunError(f"every arm failed in the rehearsal: {failed[0].reason}")
    return records


def _blocks(
    session: Session, directory: ResultsDirectory, planner: SlicePlanner, begin: float, progress: Progress
) -> Outcome:
    """Run the blocks that are not on disk yet; each is on disk before the next begins."""
    machine = session.machine
    sampling = Sampler(
        directory.path / "samples",
        writer=WRITER,
        host=machine.host,
        program=machine.tools / "nm-sample",
        also=energy_files(),
        period=session.study.design.sample_every,
    )
    try:
        with directory.writer(WRITER) as writer, sampling as sampler:
            stopped = _loop(replace(session, sampler=sampler), directory, planner, writer, begin, progress)
        return Outcome(directory=directory, stopped=stopped, interrupted=False)
    except KeyboardInterrupt:
        return Outcome(directory=directory, stopped="interrupted", interrupted=True)


def _loop(
    session: Session,
    directory: ResultsDirectory,
    planner: SlicePlanner,
    writer: TrialWriter,
    begin: float,
    progress: Progress,
) -> str:
    """Block after block until the stop rule speaks: why it did."""
    study, planned = session.study, directory.plan()
    running = RunningAnalysis(study, make_plan(study, schedule=planned.schedule))
    records = list(directory.trials().records)
    attempts = last_attempts(records)
    members = len(make_block(study, REHEARSAL).trials)
    done = completed_blocks(records, members)
    for whole in by_attempt(records).values():
        if len(whole) == members:
            planner.saw(whole)
    session = replace(session, slices=planner.slices())
    told: set[str] = set()
    number, block_seconds = 0, 0.0
    while True:
        analysis, fresh = running.after(records, len(done))
        if block_seconds and fresh:
            _tell_block(analysis, block_seconds, begin, study, progress)
        if session.sampler is not None and session.sampler.problem is not None:
            _tell_once(f"no more samples: {session.sampler.problem}", told, progress)
        elapsed = time.monotonic() - begin
        stopped = running.stop(analysis, len(done), elapsed, block_seconds)
        if stopped is not None:
            return stopped
        number = next(n for n in count(number + 1) if n not in done)
        settled = running.settled(analysis)
        if settled:
            _tell_once(
                f"decided, and left out of further blocks: {', '.join(sorted(settled))}", told, progress
            )
        at = time.monotonic()
        block = make_block(study, number, without=settled)
        if not settled:  # which arms are left tells what was found, which no block's slices may follow from
            left = None if study.design.max_time is None else study.design.max_time - elapsed
            longest = block_pace(BLOCKS_WITHIN, len(done), left)
            session = replace(session, slices=planner.slices(longest))
        whole = []
        for record in run_block(session, block, attempts.get(number, 0) + 1):
            writer.append(record)
            whole.append(record)
            for reason in (record.reason, *(r.reason and f"{r.workload}: {r.reason}" for r in record.rows)):
                if reason and not reason.endswith(TOO_SHORT):
                    _tell_once(f"{record.arm} failed: {reason}", told, progress)
        records += whole
        block_seconds = time.monotonic() - at
        if not settled:
            planner.saw(whole)
            planner.took(session.slices, block_seconds)
        done.add(number)


def _tell_once(text: str, told: set[str], progress: Progress) -> None:
    """Each text once: a workload that fails every time would drown the rest."""
    if text not in told:
        told.add(text)
        progress.note(text)


def _tell_block(analysis: Analysis, seconds: float, begin: float, study: Study, progress: Progress) -> None:
    elapsed = time.monotonic() - begin
    budget = study.design.max_time
    progress.block(
        BlockDone(
            number=analysis.blocks,
            seconds=seconds,
            elapsed=elapsed,
            left=None if budget is None else max(budget - elapsed, 0.0),
            analysis=analysis,
        )
    )
