"""Sound machines, on which the baseline does not differ from itself: how many are distrusted for chance.

Without a correction a study of fifteen metrics whose differences have a standard deviation of 15 % calls some
8 % of sound machines untrustworthy."""

from __future__ import annotations

import math

import numpy as np

from nearmetal.analysis.decision import Criteria, decide
from nearmetal.analysis.fold.comparisons import Paired
from nearmetal.analysis.fold.pieces import Compared
from nearmetal.model.plan import GROWING
from nearmetal.model.result import Verdict

RUNS, METRICS, BLOCKS, DEVIATION = 300, 15, 41, 0.15
ODD = (Verdict.SLOWER, Verdict.FASTER, Verdict.INCONSISTENT)


def verdict(d: np.ndarray[tuple[int], np.dtype[np.float64]], alpha: float) -> Verdict:
    blocks = np.arange(1, d.size + 1)
    none = frozenset[int]()
    unknown = np.empty(0)
    both = Compared(
        blocks=blocks,
        alike=np.ones(d.size, dtype=np.bool_),
        lengths=np.ones(d.size, dtype=np.int64),
        d=d,
        env_values=np.exp(d),
        base_values=np.ones(d.size),
        difference=unknown,
        centres=unknown,
        variances=unknown,
        env_slice=unknown,
        base_slice=unknown,
        shares={},
    )
    paired = Paired(
        both=both,
        judged_blocks=blocks,
        judged=d,
        env_failed=none,
        base_failed=none,
        unlike=none,
        left_out=none,
        failures={},
    )
    criteria = Criteria(schedule=GROWING, alpha=alpha, node_alpha=alpha, margin=0.03, min_blocks=0)
    return decide(paired, criteria).verdict


def test_sound_machines_are_trusted() -> None:
    rng = np.random.default_rng(83)
    uncorrected = corrected = 0
    for _ in range(RUNS):
        rows = DEVIATION * rng.normal(size=(METRICS, BLOCKS))
        odd = [row for row in rows if verdict(row, 0.05) in ODD]
        uncorrected += bool(odd)
        corrected += any(verdict(row, 0.05 / METRICS) in ODD for row in odd)
    assert corrected / RUNS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / RUNS)
    assert corrected / RUNS < uncorrected / RUNS / 2
    assert uncorrected / RUNS > 0.04
