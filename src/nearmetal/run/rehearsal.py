"""Block 0, the rehearsal. It fills caches, finds failures, verifies every kernel, determines the work of a
slice, and checks that all arms see the same machine.

Its trials are stored, but never used in an analysis."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import REMEDY, RunError, UsageError
from ..model.plan import Work
from ..model.record import JsonValue, Status, TrialRecord
from ..model.study import Limits, Study
from ..node.arms.running_arm import RunningArm
from ..node.node import Node
from ..node.progress import Progress
from ..node.trial import DiskWrites
from ..plan import make_block
from .audit import (
    application_facts,
    audit_arms,
    limits_found,
    parity,
    served_differently,
    storage_found,
    working_directory_found,
)
from .block import Recording, Rehearsal, run_block
from .decide import Verifications, next_block
from .fitting import WorkFit
from .unlike_storage import unlike_storage

REHEARSAL = 0


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """Results of the rehearsal.

    seconds: duration of block 0, without the audit and without determining the work of a slice.
    parity, storage, limits: see run.audit.
    records: records of its trials.
    work: units of work in a slice.
    failed: arms that failed in the rehearsal and again in a second attempt, with the reason.
    working_directories: by arm, the mount that contains the working directory of the user's own programs.
    unlike: arms in which the files of a program are in memory while those in the baseline are on a disk, or
        vice versa, with the reason.
    notes: notes for the user.
    """

    seconds: float
    parity: dict[str, JsonValue]
    storage: dict[str, JsonValue]
    limits: dict[str, JsonValue]
    records: tuple[TrialRecord, ...]
    work: Work
    failed: Mapping[str, str]
    working_directories: dict[str, JsonValue]
    unlike: Mapping[str, str]
    notes: tuple[str, ...]


def rehearse(
    node: Node, recording: Recording, progress: Progress, work: Work | None = None, *, by_hand: bool = False
) -> Rehearsed:
    """Run block 0. Arms that fail in it are run a second time.

    work: units of work in a slice, if the plan of the run is already fixed; None to determine them here.
    by_hand: whether the programs have been run by hand, which takes the place of the A/A arms.

    Raises RunError if every arm fails.
    """
    facts: dict[str, dict[str, str]] = {}
    storage: dict[str, JsonValue] = {}
    limits: dict[str, JsonValue] = {}
    directories: dict[str, JsonValue] = {}
    writes: dict[str, Mapping[str, DiskWrites]] = {}
    audit_seconds = 0.0
    fit = WorkFit(node, work or {})

    def audit(arms: Sequence[RunningArm]) -> None:
        nonlocal audit_seconds
        at = time.monotonic()
        facts.update(audit_arms(node, arms))
        storage.update({a.trial.arm.name: storage_found(a) for a in arms if a.volumes})
        limits.update({a.trial.arm.name: limits_found(a) for a in arms if a.environment.limits != Limits()})
        if node.study.commands:
            directories.update({a.trial.arm.name: working_directory_found(a) for a in arms})
        writes.update({a.trial.arm.name: a.trial.found.disk_writes for a in arms})  # set when they run
        audit_seconds += time.monotonic() - at

    order = next_block(
        node.study,
        REHEARSAL,
        1,
        slices={},
        work={},
        settled={},
        verifications=Verifications(),
        verify_all=True,
    )
    if by_hand:
        kept = tuple(trial for trial in order.block.trials if not trial.aa)
        order = replace(order, block=replace(order.block, trials=kept))
    begin = time.monotonic()
    records = tuple(run_block(node, order, recording, Rehearsal(audit=audit, fit=fit.fit)))
    seconds = time.monotonic() - begin - audit_seconds - fit.seconds
    failed = _failed(records)
    if all(r.status is Status.FAILED for r in records):
        raise _error("every environment failed in the rehearsal: ", [next(iter(failed.values()))])
    if failed:
        progress.phase(f"{', '.join(failed)} failed in the rehearsal and is tried again")
        sound = {r.arm for r in records} - failed.keys()
        again = replace(order, attempt=2, block=make_block(node.study, REHEARSAL, without=sound))
        failed = _failed(tuple(run_block(node, again, recording, Rehearsal(audit=audit, fit=fit.fit))))
    reported = application_facts(records)
    for arm, own in reported.items():
        facts.setdefault(arm, {}).update(own)
    return Rehearsed(
        seconds=seconds,
        parity=parity(facts),
        storage=storage,
        limits=limits,
        records=records,
        work=fit.work,
        failed=failed,
        working_directories=directories,
        unlike=unlike_storage(node.study, writes, directories),
        notes=served_differently(reported),
    )


def _failed(records: Sequence[TrialRecord]) -> dict[str, str]:
    """Return the arms that failed, with the reason."""
    return {r.arm: r.reason for r in records if r.status is Status.FAILED}


def without_failed(study: Study, rehearsed: Rehearsed) -> Study:
    """Return the study without the arms that failed in the rehearsal. No time is then spent on trials that
    fail.

    Raises RunError if the first baseline failed, or if nothing is left to compare with it.
    """
    left = study.with_arms([arm.name for arm in study.arms() if arm.name not in rehearsed.failed])
    first = study.design.baselines[0]
    reasons = [f"{arm} failed in the rehearsal: {why}" for arm, why in rehearsed.failed.items()]
    if first not in left.design.baselines:
        raise _error("", reasons)
    if study.comparisons() and not left.comparisons():
        raise _error(f"nothing is left to compare with {first}: ", reasons)
    return left


def _error(head: str, reasons: Sequence[str]) -> RunError:
    """Return the error about failed arms, with all their reasons and remedies.

    reasons: texts of errors, each with its remedy.
    """
    parts = [reason.partition(REMEDY) for reason in reasons]
    remedies = dict.fromkeys(remedy for *_, remedy in parts if remedy)
    return RunError(head + "; ".join(what for what, *_ in parts), remedy="; ".join(remedies))


def without_unlike(study: Study, rehearsed: Rehearsed, remedy: str) -> Study:
    """Return the study without the arms whose files cannot be compared with those of the baseline: one side
    has the files of a program in memory, the other on a disk.

    remedy: how to make them comparable, for the error.

    Raises UsageError if nothing is left to compare.
    """
    left = study.with_arms([arm.name for arm in study.arms() if arm.name not in rehearsed.unlike])
    if study.comparisons() and not left.comparisons():
        raise UsageError(f"nothing is left to compare: {'; '.join(rehearsed.unlike.values())}", remedy=remedy)
    return left
