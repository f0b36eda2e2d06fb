"""One block by itself, for tests of what happens in a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nearmetal.model.record import TrialRecord
from nearmetal.node.arms.running_arm import RunningArm
from nearmetal.node.node import Node
from nearmetal.run.block import Recording, Rehearsal, run_block
from nearmetal.run.decide import Verifications, next_block
from nearmetal.run.fitting import WorkFit
from nearmetal.workloads.protocol import EVENTS


def nothing(_: Sequence[RunningArm]) -> None:
    """An audit that asks nothing."""


def run_one(
    node: Node,
    number: int = 1,
    attempt: int = 1,
    audit: Callable[[Sequence[RunningArm]], None] = nothing,
) -> list[TrialRecord]:
    """The records of one block: every kernel verified, the work of its slices fitted.

    audit: called with the arms of a group while their instances run and nothing is timed yet.
    """
    order = next_block(
        node.study,
        number,
        attempt,
        slices={},
        work={},
        settled={},
        verifications=Verifications(),
        verify_all=True,
    )
    return list(
        run_block(
            node,
            order,
            Recording(logs=node.scratch, events=EVENTS if node.study.design.perf_events else ()),
            Rehearsal(audit=audit, fit=WorkFit(node).fit),
        )
    )
