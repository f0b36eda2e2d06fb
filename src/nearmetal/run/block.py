"""One block: either all its arms run at the same time and take turns in slices, or its plain trials run one
after the other."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..host.removal import discard_tree
from ..meters.groups import GroupMeters, Window
from ..model.plan import NextBlock, TrialSpec
from ..model.record import GROUP_PHASE, Fold, Row, Status, TrialRecord
from ..model.study import KernelWorkload, Mode
from ..node.arms.running_arm import RunningArm, arm_around, running_arm
from ..node.node import Node
from ..node.trial import Guard, Trial
from ..records import safe_name
from ..samplers import Sampler
from ..subjects.contract import TrialGroup
from ..subjects.kernel import KernelJob
from ..subjects.registry import subject_of, subjects_of
from ..subjects.rounds import sound


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The data that are recorded about the trials of a run, and their directory.

    logs: directory for the output of each trial.
    events: perf events that the ranks count.
    sampler: sampler of system counters; None in the rehearsal.
    """

    logs: Path
    events: tuple[str, ...] = ()
    sampler: Sampler | None = None


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Additional steps of block 0, each called while instances are running.

    audit: called for each TrialGroup with its running arms, before anything is timed.
    fit: determines the work of a slice; see TrialGroup.
    """

    audit: Callable[[Sequence[RunningArm]], None]
    fit: Callable[[KernelWorkload, Sequence[KernelJob]], Mapping[int, int]]


def run_block(
    node: Node, order: NextBlock, recording: Recording, rehearsal: Rehearsal | None = None
) -> Iterator[TrialRecord]:
    """Run every trial of a block, and yield the records of each group of trials when the group ends. A group
    is the whole block if its arms take turns in slices, else a single trial.

    A failed trial is a record like any other, with its reason. If the block is interrupted, whatever was
    running is undone, and no record of the interrupted group is yielded.
    """
    trials = order.block.trials
    together = node.study.design.mode is Mode.SLICES
    groups = [trials] if together else [(t,) for t in trials]
    if rehearsal is not None:  # the work of a slice is fitted on the baseline before the other arms use it
        first = node.study.design.baselines[0]
        groups.sort(key=lambda group: node.arms[group[0].arm].environment.name != first)
    rng = random.Random(order.block.slice_seed)
    for specs in groups:
        group = TrialGroup(
            node=node,
            order=order,
            trials=tuple(_trial(node, spec, order, recording.logs) for spec in specs),
            rng=rng,
            fit=None if rehearsal is None else rehearsal.fit,
        )
        yield from _run_group(group, recording, rehearsal)


def _trial(node: Node, spec: TrialSpec, order: NextBlock, logs: Path) -> Trial:
    directory = node.scratch / f"b{spec.block}-{spec.position}-{order.attempt}"
    directory.mkdir()
    work = None if node.work is None else node.work / directory.name
    if work is not None:
        work.mkdir()
    arm = node.arms[spec.arm]
    return Trial(
        spec=spec,
        arm=arm,
        node=node,
        nodes=node.nodes_of(arm.placement, order.block.number),
        left_out=order.left_out.get(spec.arm, frozenset()),
        directory=directory,
        work=work,
        log=logs / safe_name(spec.id),
    )


def _run_group(group: TrialGroup, recording: Recording, rehearsal: Rehearsal | None) -> list[TrialRecord]:
    begin = time.monotonic()
    subjects = [make(group, workloads) for make, workloads in subjects_of(group.node.study.workloads)]
    with ExitStack() as stack:
        for trial in group.trials:
            if trial.work is not None:
                stack.callback(discard_tree, trial.work)
        for subject in subjects:
            subject.before_start()
        wanted = group.trials if rehearsal is not None else _with_instances(group)
        arms = _start_all(wanted, stack)
        if rehearsal is not None:
            rehearsal.audit([arm for arm in arms.values() if arm.trial.sound])
        meters = GroupMeters(
            group.node,
            tuple(arms.values()),
            stack,
            events=recording.events,
            sampler=recording.sampler,
            alone=len(group.trials) == 1,
        )
        for subject in subjects:
            subject.while_running(meters.arms)
        for arm in arms.values():
            if arm.companion is not None and arm.trial.sound:
                with arm.guard():
                    arm.companion.require_sound()
        window = meters.close()
    seconds = time.monotonic() - begin
    for trial in group.trials:
        trial.found.phases[GROUP_PHASE] = seconds
    for subject in subjects:
        subject.after(arms)
    return [_record(trial, window, group) for trial in group.trials]


def _with_instances(group: TrialGroup) -> tuple[Trial, ...]:
    """Return the trials for which instances have to be started: all except those in which every subject
    starts its own instances."""
    subjects = [(w, subject_of(w)) for w in group.node.study.workloads]
    return tuple(t for t in group.trials if any(t.takes(w) and not s.own_instances for w, s in subjects))


def _start_all(trials: Sequence[Trial], stack: ExitStack) -> dict[str, RunningArm]:
    """Start the instances of every arm in the order of the block. Virtual machines start before the instances
    inside them.

    Returns the arms that started, by trial id and in the order of the block.
    """
    arms: dict[str, RunningArm] = {}
    for trial in sorted(sound(trials), key=lambda t: t.arm.environment.inside is not None):
        with Guard(trial):
            arms[trial.id] = stack.enter_context(running_arm(trial, arm_around(trial, arms.values())))
    return {t.id: arms[t.id] for t in trials if t.id in arms}


def _nothing_usable(rows: Sequence[Row]) -> str:
    """Return why no row of a trial can be used; '' if at least one can, or if there are no rows."""
    reasons = [r.reason for r in rows if r.status is Status.FAILED]
    return f"{rows[0].workload}: {reasons[0]}" if reasons and len(reasons) == len(rows) else ""


def _record(trial: Trial, window: Window, group: TrialGroup) -> TrialRecord:
    found, counted, order = trial.found, window.of(trial.id), group.order
    failure = found.failure or _nothing_usable(found.rows)
    return TrialRecord(
        run=group.node.label,
        trial=trial.id,
        block=trial.spec.block,
        attempt=order.attempt,
        arm=trial.arm.name,
        aa=trial.spec.aa,
        position=trial.spec.position,
        begin=window.begin,
        end=window.end,
        fold=Fold.PAIRED if len(group.trials) > 1 else Fold.MEDIAN,
        status=Status.FAILED if failure else Status.OK,
        reason=failure,
        rows=tuple(found.rows),
        places=found.places,
        transport={**found.transport, **counted.transport},
        counters=counted.counters,
        disturbance=window.disturbance,
        flags=window.flags,
        phases=found.phases,
        pages=found.pages,
        network=counted.network,
        connections=counted.connections,
        profile=found.profile,
        facts=found.facts,
        members=len(order.block.trials),
        left_out=tuple(sorted(trial.left_out)),
    )
