"""Makes the study that tries a suggested change: the unchanged arm, the arm with the change, and their
baseline, for one workload. No I/O."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...analysis.causes.suggestions import CHEAPER, SHORT_RTO
from ...errors import UsageError
from ...model.result import Analysis, Cell, Change, Verdict
from ...model.study import Arm, NodeLink, Pinning, Placement, Storage, StorageKind, Study
from ..studies import draw_seed

if TYPE_CHECKING:
    from ..results import Results

TRIED = "tried"
"""Suffix of the name of the environment that has the change, and of its placement if that is changed."""
PLACE_FOR_FILES = "/var/tmp"


@dataclass(frozen=True, kw_only=True)
class TryResult:
    """Whether a change helped.

    helps: None if not decided.
    words: the answer for the user.
    cell: the arm with the change compared with the unchanged arm; None if no block has both.
    """

    helps: bool | None
    words: str
    cell: Cell | None


@dataclass(frozen=True, kw_only=True)
class SuggestedChange:
    """A change that may reduce an overhead.

    cell: the cell with the overhead.
    words: the change, for the user.
    study: compares the arm that has the change with the unchanged one.
    """

    cell: Cell
    words: str
    study: Study

    def result(self, analysis: Analysis) -> TryResult:
        """Return whether the change helped.

        analysis: of a run of the study.
        """
        return answer(analysis, self.cell)


def triable(analysis: Analysis) -> list[Cell]:
    """Return the cells with a change that a study can try, largest overhead first."""
    found = [c for c in analysis.cells if _change(c) is not None]
    return sorted(found, key=lambda c: -c.overhead)


def chosen(analysis: Analysis, wanted: str, where: str) -> Cell:
    """Return the cell selected by `wanted`.

    wanted: its key, 'arm:workload.metric', 'workload.metric' or 'arm'; '' for the cell with the largest
        overhead.

    Raises UsageError if no cell matches.
    """
    cells = triable(analysis)
    if not cells:
        raise UsageError(
            "no material overhead here has a cause with a change that could be tried",
            where=where,
            remedy=f"nearmetal analyze {shlex.quote(where)} shows what was found",
        )
    named = [c for c in cells if not wanted or wanted in _names(c)]
    if not named:
        raise UsageError(
            f"--cell: nothing to try for {wanted!r}",
            where=where,
            remedy=f"one of {', '.join(_names(c)[1] for c in cells)}",
        )
    return named[0]


def _names(cell: Cell) -> tuple[str, ...]:
    metric = f"{cell.workload}.{cell.metric}"
    return cell.key, f"{cell.arm}:{metric}", metric, cell.arm


def _change(cell: Cell) -> Change | None:
    return None if cell.attribution is None else cell.attribution.change


def suggested_change(found: Results, wanted: str, seed: int | None) -> SuggestedChange:
    """Return a change that a result suggests, with the study that tries it.

    wanted: as in chosen().
    seed: seed of the study; None to draw one.

    Raises UsageError if no cell matches.
    """
    cell = chosen(found.analysis, wanted, str(found.directory))
    suggestion = cell.attribution.suggestion if cell.attribution is not None else None
    return SuggestedChange(
        cell=cell,
        words=suggestion.words if suggestion is not None else "",
        study=try_study(found.study, cell, seed=draw_seed() if seed is None else seed),
    )


def try_study(study: Study, cell: Cell, *, seed: int) -> Study:
    """Return the study that tries the change of a cell.

    Raises UsageError if the cell has no change to try.
    """
    change = _change(cell)
    if change is None:
        raise UsageError(f"{cell.key} has no change to try")
    arms = {arm.name: arm for arm in study.arms()}
    arm, baseline = arms[cell.arm], arms[cell.baseline]
    tried = _changed(arm, change)
    environments = {
        a.environment.name: replace(a.environment, placements=(a.placement.name,))
        for a in (baseline, arm, tried)
    }
    # If the change alters the transport, the changed arm cannot be compared with the old baseline, only with
    # the arm itself.
    alike = tried.transport is baseline.transport and baseline.environment.name != arm.environment.name
    baselines = (arm.environment.name, *((baseline.environment.name,) if alike else ()))
    return replace(
        study,
        name="try",
        question=f"Does it help {cell.workload} in {arm.environment.name} to change {change.value}?",
        environments=tuple(environments.values()),
        placements=tuple({p.name: p for p in (baseline.placement, arm.placement, tried.placement)}.values()),
        workloads=tuple(w for w in study.workloads if w.name == cell.workload),
        design=replace(
            study.design,
            baselines=baselines,
            seed=seed,
            expected_blocks=None,
            max_blocks=1000,
            primary=(f"{cell.workload}.{cell.metric}",),
        ),
    )


def _changed(arm: Arm, change: Change) -> Arm:
    e, place = arm.environment, arm.placement
    named = f"{e.name}-{TRIED}"
    match change:
        case Change.CPU:
            e = replace(e, limits=replace(e.limits, cpu_quota=None))
        case Change.CPU_SHARES:
            e = replace(e, limits=replace(e.limits, cpu_shares=None))
        case Change.MEMORY:
            e = replace(e, limits=replace(e.limits, memory=None))
        case Change.RTO_MIN:
            e = replace(e, network=replace(e.network, rto_min=SHORT_RTO))
        case Change.ATTACHMENT:
            e = replace(e, attachment=CHEAPER)
        case Change.STORAGE:
            e = replace(e, storage=Storage(kind=StorageKind.BIND, path=PLACE_FOR_FILES))
        case Change.PINNING:
            place = _placed(place, pinning=Pinning.RANK)
        case Change.ONE_INSTANCE:
            one = replace(place, nodes=1, link=NodeLink(), node_kind=None, instances=1, tasks=place.ranks)
            place = _placed(one, pinning=place.pinning)
    return Arm(environment=replace(e, name=named), placement=place)


def _placed(place: Placement, *, pinning: Pinning) -> Placement:
    return replace(place, name=f"{place.name}-{TRIED}", pinning=pinning)


def answer(analysis: Analysis, original: Cell) -> TryResult:
    """Return the result of a run of try_study().

    original: the cell that the study was made from.
    """
    cell = _tried_cell(analysis.cells, original)
    if cell is None:
        return TryResult(helps=None, words="not known: no round has both", cell=None)
    answers = {
        Verdict.FASTER: (True, "it helps"),
        Verdict.SLOWER: (False, "it makes it worse"),
        Verdict.EQUIVALENT: (False, "it changes nothing that matters"),
        Verdict.NONE: (None, f"not decided yet: {cell.reason}"),
        Verdict.INCONSISTENT: (None, "inconsistent: the machine changed during the run"),
    }
    helps, words = answers[cell.verdict]
    return TryResult(helps=helps, words=words, cell=cell)


def _tried_cell(cells: Sequence[Cell], original: Cell) -> Cell | None:
    for c in cells:
        same = (c.workload, c.metric, c.baseline) == (original.workload, original.metric, original.arm)
        if same and c.environment == f"{original.environment}-{TRIED}":
            return c
    return None
