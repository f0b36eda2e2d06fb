"""A run in which nothing is left to measure says so before anything is started, and how to go on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.test_report_summary import program

from nearmetal.api import measuring as api_measuring
from nearmetal.api.measuring import bounded, no_more_rounds
from nearmetal.api.results import Results
from nearmetal.cli.measure import measuring
from nearmetal.cli.measure.measuring import _ended, changed
from nearmetal.cli.options import RunOptions
from nearmetal.model.change import replace
from nearmetal.model.result import Verdict


def results() -> Results:
    """A run in which every figure is decided."""
    study, analysis = program({"wall": 0.3}, ["box"])
    stored = cast(Any, SimpleNamespace(path=Path("my results/a")))
    noise = replace(analysis.noise_floor, cells=())
    return Results(
        stored=stored, study=study, analysis=replace(analysis, noise_floor=noise), trials=cast(Any, ())
    )


@pytest.mark.parametrize(
    ("width", "blocks", "said", "next_"),
    [
        (None, None, "every comparison has its verdict", "for narrower intervals: {} --width 0.38%"),
        ("80%", None, "every interval is at most ±80 % wide", "for narrower intervals: {} --width 0.38%"),
        ("0.1%", 39, "39 rounds are done", "for more rounds: {} --max-blocks 78"),
    ],
)
def test_a_run_that_is_over_says_how_to_go_on(
    width: str | None, blocks: int | None, said: str, next_: str
) -> None:
    found = results()
    study = changed(found.study, RunOptions(width=width))
    stop = no_more_rounds(found, bounded(study, blocks))
    assert stop is not None
    first, then = _ended(found, stop).splitlines()
    assert first == f"nothing is left to measure after 39 rounds: {said}"
    assert then == "  next: " + next_.format("nearmetal resume 'my results/a'")


def test_a_run_with_open_figures_goes_on() -> None:
    found = results()
    assert no_more_rounds(found, changed(found.study, RunOptions(width="0.1%"))) is None
    (cell,) = found.analysis.cells
    undecided = replace(cell, verdict=Verdict.NONE, low=-0.1, high=0.5)
    open_ = replace(found, analysis=replace(found.analysis, cells=(undecided,)))
    assert no_more_rounds(open_, found.study) is None
    none_yet = replace(found, analysis=replace(found.analysis, blocks=0))
    assert no_more_rounds(none_yet, found.study) is None


def test_a_reader_that_has_gone_leaves_a_complete_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as in `nearmetal run --json | head -n 1`."""
    done: list[str] = []

    def nobody_reads(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(measuring, "analysed", lambda directory, quiet: results())
    monkeypatch.setattr(measuring, "print_result", nobody_reads)
    monkeypatch.setattr(api_measuring, "write_report", lambda found: done.append("report"))
    directory = SimpleNamespace(path=Path("a"), close=lambda: done.append("closed"))
    outcome = cast(Any, SimpleNamespace(directory=directory, interrupted=False, stopped="it is over"))
    with pytest.raises(BrokenPipeError):
        measuring.finish(outcome, RunOptions())
    assert done == ["report", "closed"]
