"""Estimates how long a run takes, or the rest of a run that is to be resumed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count, islice

from ..environments.registry import get_backend
from ..host import LocalHost
from ..model.plan import GROWING, Block, Schedule
from ..model.study import Study
from ..node.survey.accelerator import foreseen_accelerators
from ..plan import looks_over_sets, make_block
from ..records import ResultsDirectory, completed_blocks
from ..run.budget import LONGER as LONGER
from ..run.budget import no_verdict, too_short, two_looks
from ..run.cost_cache import stored_costs
from ..run.estimate import PREPARATION, estimate
from ..run.estimate import RunEstimate as RunEstimate
from ..run.run import left_out_lines
from ..subjects.registry import without_unable
from .results import analysed

SHOWN = 3
"""Maximum number of blocks of a preview if no number is requested."""


@dataclass(frozen=True, kw_only=True)
class PartProgress:
    """The state of a run that is to be resumed.

    schedule: the blocks after which verdicts are given.
    done: numbers of its complete blocks.
    block_seconds: median seconds of a block, 0 if there is none.
    """

    schedule: Schedule
    done: frozenset[int]
    block_seconds: float


def begun_of(study: Study, found: ResultsDirectory) -> PartProgress:
    """Return the state of a run that is to be resumed.

    study: the study of the run, with the time budget and number of blocks that it is to be resumed with.
    """
    records = list(found.trials())
    return PartProgress(
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


@dataclass(frozen=True, kw_only=True)
class PlanPreview:
    """Preview of a run that starts or resumes a study.

    study: the study, without the workloads that an environment cannot run on any machine.
    unable: why they cannot run, by name of the environment.
    estimate: estimated time of the run.
    blocks: the next blocks.
    short: a note if the time budget is too short for verdicts; None if it is long enough.
    notes: all notes for the user, `short` among them.
    """

    study: Study
    unable: dict[str, str]
    estimate: RunEstimate
    blocks: tuple[Block, ...]
    short: str | None
    notes: tuple[str, ...]


def previewed(
    study: Study, *, blocks: int | None = None, begun: PartProgress | None = None, longer: str = LONGER
) -> PlanPreview:
    """Return how a run of a study would begin, or go on. Nothing is started.

    blocks: number of blocks in the result; None for at most SHOWN.
    begun: the state of the run that is to be resumed; None for a new run.
    longer: the option that gives a longer time budget, for a note.
    """
    study, unable = able(study)
    guess = estimated(study, begun)
    schedule, done = _foreseen_schedule(study), frozenset[int]()
    if begun is not None:
        schedule, done = begun.schedule, begun.done
    short = too_short(
        study,
        schedule,
        spent=guess.rehearsal_seconds,
        done=len(done),
        block_seconds=guess.mean_seconds(two_looks(study, schedule)[1]),
        longer=longer,
    )
    notes = (short, no_verdict(study, schedule), *left_out_lines(study, unable), *study.risks)
    numbers = islice((n for n in count(1) if n not in done), blocks or min(SHOWN, guess.blocks))
    return PlanPreview(
        study=study,
        unable=unable,
        estimate=guess,
        blocks=tuple(make_block(study, n) for n in numbers),
        short=short,
        notes=tuple(filter(None, notes)),
    )


def _foreseen_schedule(study: Study) -> Schedule:
    """Return the schedule of the analyses of a new run.

    If machines are drawn from a whole inventory, their number is unknown, because the inventory is not read
    here. The usual schedule is then returned.
    """
    nodes = study.design.nodes
    return GROWING if nodes is None or not nodes.names else looks_over_sets(study, len(nodes.names))


def estimated(study: Study, begun: PartProgress | None) -> RunEstimate:
    """Return the estimate of a run.

    begun: the state of a run that is to be resumed. Its remaining blocks are then estimated, from the
        duration of those that were measured.
    """
    guess = estimate(study, stored_costs(study, LocalHost()))
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
