"""The analysis between blocks. It is always computed when it can change the next block, and otherwise only as
often as a small fraction of the run's time allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model.looks import next_looks
from ..model.plan import NodeState, Plan
from ..model.result import Analysis, VerdictState
from ..model.study import Study
from ..records import Trials

if TYPE_CHECKING:
    from .folded import FoldedSoFar

SHARE = 0.02
"""Maximum fraction of the run's time for analyses between looks. Without it, blocks of a few milliseconds
would wait for the analysis."""


class RunningAnalysis:
    """The latest analysis of a running study.

    Intervals and verdicts change at looks only, so a new analysis is made after the blocks at which the
    schedule has a look. Further analyses are limited to the fraction SHARE of the time. They serve the
    display, and the cells whose looks are late because of failed trials.
    """

    # numpy and scipy take a second to load. The first block need not wait for this, so they are imported
    # below.

    def __init__(self, study: Study, plan: Plan) -> None:
        self._study, self._plan = study, plan
        self._folded: FoldedSoFar | None = None
        self._known: Analysis | None = None
        self._next_look, self._not_before = 0, 0.0

    def after(self, trials: Callable[[], Trials], blocks: int) -> tuple[Analysis, bool]:
        """Return the analysis of all trials, or an earlier one that is still valid, and whether it is new.

        trials: returns the trials that are on disk.
        blocks: number of whole blocks among the trials.
        """
        from ..analysis import conclude

        begin = time.monotonic()
        if self._known is not None and blocks < self._next_look and begin < self._not_before:
            return self._known, False
        if self._folded is None:
            from .folded import FoldedSoFar

            self._folded = FoldedSoFar(self._study)
        found = trials()
        folded = self._folded.fold(self._plan, found)
        self._known = conclude(self._study, self._plan, found.heads, folded, detail=False)
        ((self._next_look, _),) = next_looks(self._plan.schedule, blocks, 1)
        end = time.monotonic()
        self._not_before = end + (end - begin) / SHARE
        return self._known, True

    def give_up(self, block: int) -> None:
        """Leave a block out of the analysis; see model.plan.Plan.missing."""
        self._plan = replace(self._plan, missing=self._plan.missing | {block})
        self._known = None

    def ran_on(self, run: str, node: NodeState) -> None:
        """Record the node of a worker before its first block is analysed; see model.plan.Plan.nodes."""
        self._plan = replace(self._plan, nodes={**self._plan.nodes, run: node})

    def verdicts(self, analysis: Analysis) -> VerdictState:
        """Return the verdicts of an analysis that the next block depends on; see analysis.verdict_state()."""
        from ..analysis import verdict_state

        return verdict_state(analysis, self._study)
