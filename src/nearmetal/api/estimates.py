"""Estimates how long a run takes, or the rest of a run that is to be resumed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..environments.registry import get_backend
from ..host import LocalHost
from ..model.plan import Schedule
from ..model.study import Study
from ..node.survey.accelerator import foreseen_accelerators
from ..plan import make_block
from ..records import ResultsDirectory, completed_blocks
from ..run.estimate import PREPARATION, RunEstimate, estimate
from ..run.kept_costs import kept_costs
from ..subjects.registry import without_unable
from .results import analysed


@dataclass(frozen=True, kw_only=True)
class Begun:
    """The state of a run that is to be resumed.

    schedule: the blocks after which verdicts are given.
    done: numbers of its complete blocks.
    block_seconds: median seconds of a block, 0 if there is none.
    """

    schedule: Schedule
    done: frozenset[int]
    block_seconds: float


def begun_of(study: Study, found: ResultsDirectory) -> Begun:
    """Return the state of a run that is to be resumed.

    study: the study of the run, with the time budget and number of blocks that it is to be resumed with.
    """
    records = list(found.trials())
    return Begun(
        schedule=found.plan().schedule,
        done=frozenset(completed_blocks(records, len(make_block(study, 0).trials))),
        block_seconds=analysed(found).analysis.block_seconds,
    )


def foreseen(study: Study) -> Study:
    """Return a study as it is expected to run on this machine: guests are emulated if the processor has no
    virtualisation. Nothing is started."""
    return foreseen_accelerators(study, LocalHost())


def able(study: Study) -> tuple[Study, dict[str, str]]:
    """Return a study without what its environments cannot run on any machine, and the reasons by name of the
    environment; see without_unable(). Nothing is started."""
    if not any(w.event for w in study.workloads):
        return study, {}
    return without_unable(study, {e.backend: get_backend(e.backend) for e in study.environments})


def estimated(study: Study, begun: Begun | None) -> RunEstimate:
    """Return the estimate of a run.

    begun: the state of a run that is to be resumed. Its remaining blocks are then estimated, from the
        duration of those that were measured.
    """
    guess = estimate(study, kept_costs(study, LocalHost()))
    if begun is None:
        return guess
    seconds = begun.block_seconds or guess.block_seconds
    left = study.design.max_blocks - len(begun.done)
    if study.design.max_time is not None:
        left = min(left, math.floor((study.design.max_time - PREPARATION) / seconds))
    left = max(0, left)
    return RunEstimate(
        blocks=left,
        least_blocks=left,
        block_seconds=seconds,
        rehearsal_seconds=PREPARATION,
        done=len(begun.done),
    )
