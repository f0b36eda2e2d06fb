"""One block of a session by itself, for tests of what happens in a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nearmetal.model.record import TrialRecord
from nearmetal.node.node import Session
from nearmetal.node.trial import Standing
from nearmetal.run.block import Rehearsal, run_block
from nearmetal.run.decide import Verifications, next_block
from nearmetal.run.fitting import WorkFit


def nothing(_: Sequence[Standing]) -> None:
    """An audit that asks nothing."""


def run_one(
    session: Session,
    number: int = 1,
    attempt: int = 1,
    audit: Callable[[Sequence[Standing]], None] = nothing,
) -> list[TrialRecord]:
    """The records of one block: every kernel verified, the work of its slices fitted.

    audit: called with the arms of a group while their instances run and nothing is timed yet.
    """
    order = next_block(
        session.study,
        number,
        attempt,
        slices={},
        work={},
        settled={},
        verifications=Verifications(),
        verify_all=True,
    )
    return list(run_block(session, order, Rehearsal(audit=audit, fit=WorkFit(session).fit)))
