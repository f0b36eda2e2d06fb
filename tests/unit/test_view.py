"""What a run says while it goes on: which comparison is furthest from a verdict, and the time left."""

from __future__ import annotations

import io
import math
from dataclasses import replace

from tests.golden import sample_analysis as sample

from nearmetal.analysis import furthest
from nearmetal.cli.view import View, headline
from nearmetal.model.result import Cell, Verdict
from nearmetal.node.progress import BlockDone

BASE = replace(sample.analysis().cells[0], verdict=Verdict.NONE)


def cell(name: str, low: float, high: float, overhead: float = 0.0) -> Cell:
    return replace(BASE, workload=name, low=low, high=high, overhead=overhead)


def names(cells: list[Cell]) -> list[str]:
    return [c.workload for c in furthest(cells)]


def test_the_furthest_from_a_verdict_is_not_the_widest() -> None:
    """A latency of 37 times the baseline's is wide, and as good as decided."""
    cells = [
        cell("latency x37", 0.0299, 60.0),
        cell("wide", -0.2, 0.2),
        cell("nearly equivalent", -0.031, 0.01),
        cell("narrow", -0.04, 0.04),
    ]
    assert names(cells) == ["wide", "narrow", "nearly equivalent", "latency x37"]


def test_before_an_interval_the_estimate_nearest_to_the_margin_comes_first() -> None:
    cells = [
        cell("factor", -1.0, math.inf, 36.0),
        cell("on the margin", -1.0, math.inf, 0.03),
        cell("alike", -1.0, math.inf, 0.0),
        cell("with an interval", -0.2, 0.2),
        cell("always fails", math.inf, math.inf, math.inf),
    ]
    assert names(cells) == ["on the margin", "alike", "factor", "always fails", "with an interval"]


def done(left: float | None, rounds: int | None = None) -> BlockDone:
    early = sample.early_analysis()
    return BlockDone(number=5, seconds=2.0, elapsed=12.0, rounds=rounds, left=left, analysis=early)


def test_time_left_is_said_where_there_is_a_budget() -> None:
    assert headline(done(78.0)).startswith("round 5 · 0:00:12 gone, at most 0:01:18 left · ")
    assert headline(done(None)).startswith("round 5 · 0:00:12 gone · ")
    assert headline(done(78.0, 44)).startswith("round 5 of about 44 · 0:00:12 gone, at most 0:01:18 left · ")


def test_furthest_comparison_is_named_in_a_pipe() -> None:
    out = io.StringIO()
    with View(out) as view:
        view.block(done(78.0))
    lines = out.getvalue().splitlines()
    assert len(lines) == 2 and lines[1].startswith("  furthest from a verdict: ")
    assert lines[1].endswith("no interval yet (n = 5)")
