"""Block 0, the rehearsal. It fills caches, shows what fails, verifies every kernel, fits the work of a slice,
and audits that the arms see the same machine.

Its trials are kept, but never used in an analysis.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import RunError
from ..model.plan import Work
from ..model.record import JsonValue, Status, TrialRecord
from ..model.study import Limits
from ..node.node import Node
from ..node.running_arm import RunningArm
from .audit import applications_said, audit_arms, limits_found, met_differently, parity, storage_found
from .block import Recording, Rehearsal, run_block
from .decide import Verifications, next_block
from .fitting import WorkFit

REHEARSAL = 0


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """What the rehearsal found.

    seconds: how long its block took, without the audit.
    parity, storage, limits: see run.audit.
    records: records of its trials.
    work: units of work in a slice.
    notes: notes for the reader of the result.
    """

    seconds: float
    parity: dict[str, JsonValue]
    storage: dict[str, JsonValue]
    limits: dict[str, JsonValue]
    records: tuple[TrialRecord, ...]
    work: Work
    notes: tuple[str, ...]


def rehearse(node: Node, recording: Recording) -> Rehearsed:
    """Run block 0. Raises RunError if every arm fails in it."""
    facts: dict[str, dict[str, str]] = {}
    storage: dict[str, JsonValue] = {}
    limits: dict[str, JsonValue] = {}
    audit_seconds = 0.0
    fit = WorkFit(node)

    def audit(arms: Sequence[RunningArm]) -> None:
        nonlocal audit_seconds
        at = time.monotonic()
        facts.update(audit_arms(node, arms))
        storage.update({a.trial.arm.name: storage_found(a) for a in arms if a.volumes})
        limits.update({a.trial.arm.name: limits_found(a) for a in arms if a.environment.limits != Limits()})
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
    begin = time.monotonic()
    records = tuple(run_block(node, order, recording, Rehearsal(audit=audit, fit=fit.fit)))
    seconds = time.monotonic() - begin - audit_seconds
    failed = [r for r in records if r.status is Status.FAILED]
    if len(failed) == len(records):
        raise RunError(f"every arm failed in the rehearsal: {failed[0].reason}")
    said = applications_said(records)
    for arm, told in said.items():
        facts.setdefault(arm, {}).update(told)
    return Rehearsed(
        seconds=seconds,
        parity=parity(facts),
        storage=storage,
        limits=limits,
        records=records,
        work=fit.work,
        notes=met_differently(said),
    )
