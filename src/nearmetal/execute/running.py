"""The analysis between blocks: as often as it can change what is done next, and never dearer than a small
share of the run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ..model.plan import Plan
from ..model.record import TrialRecord
from ..model.result import Analysis
from ..model.study import Study
from ..plan import fewer_blocks

SHARE = 0.02
"""Of the run's time that may go into analyses between looks; blocks of milliseconds would wait for them."""


class RunningAnalysis:
    """What is known so far. Intervals and verdicts change at looks only, so it is made anew after the blocks
    at which the schedule looks, and else when SHARE allows: for those who watch, and for cells that lag
    behind because trials of theirs failed."""

    def __init__(self, study: Study, plan: Plan) -> None:
        # numpy and scipy take half a second to import, which the rehearsal need not wait for.
        from ..analysis import analyse, next_looks, settled_arms, should_stop

        self._study, self._plan = study, plan
        self._analyse, self._next_looks = analyse, next_looks
        self._should_stop, self._settled_arms = should_stop, settled_arms
        self._known: Analysis | None = None
        self._next_look, self._not_before = 0, 0.0

    def after(self, records: Sequence[TrialRecord], blocks: int) -> tuple[Analysis, bool]:
        """The analysis of the records, or an earlier one that says the same; whether it is new. blocks: whole
        ones among the records."""
        begin = time.monotonic()
        if self._known is not None and blocks < self._next_look and begin < self._not_before:
            return self._known, False
        self._known = self._analyse(self._study, self._plan, records, detail=False)
        ((self._next_look, _),) = self._next_looks(self._plan.expected_blocks, blocks, 1)
        end = time.monotonic()
        self._not_before = end + (end - begin) / SHARE
        return self._known, True

    @property
    def expected(self) -> int:
        """N of the look schedule."""
        return self._plan.expected_blocks

    def expect_fewer(self, blocks: int, block_seconds: Sequence[float], elapsed: float) -> int | None:
        """N anew, once half of the time is gone without a look; None to leave it. blocks: done so far;
        block_seconds: of those that this run did; elapsed: seconds of the run so far."""
        design = self._study.design
        if design.max_time is None or design.expected_blocks is not None or not block_seconds:
            return None
        ((first, _),) = self._next_looks(self.expected, 0, 1)
        if blocks >= first or elapsed < design.max_time / 2:
            return None
        fewer = fewer_blocks(self.expected, blocks, block_seconds, design.max_time - elapsed)
        if fewer == self.expected:
            return None
        self._plan = replace(self._plan, expected_blocks=fewer)
        self._known = None
        return fewer

    def settled(self, analysis: Analysis) -> frozenset[str]:
        """See analysis.settled_arms."""
        return self._settled_arms(analysis, self._study)

    def stop(self, analysis: Analysis, blocks: int, elapsed: float, block_seconds: float) -> str | None:
        """See analysis.should_stop."""
        return self._should_stop(
            analysis, self._study, blocks=blocks, elapsed=elapsed, block_seconds=block_seconds
        )
