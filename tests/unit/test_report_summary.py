"""The answer on one screen: how large it is, what it says, what it leaves out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.model.node_results import SetEvidence
from nearmetal.model.result import Analysis, Cell, Interval, Unused, Verdict
from nearmetal.model.study import CommandWorkload, Environment, Study
from nearmetal.report.forms.markdown import markdown_text
from nearmetal.report.forms.summary import LINES, WIDTH, summary_text
from nearmetal.report.tables.answer import answer, figures
from nearmetal.report.tables.nodes import short_sentence


def text(study: Study, analysis: Analysis, width: int = 100) -> str:
    return summary_text(
        study,
        analysis,
        machine="a machine",
        when="20 Nov 2026",
        results_dir="results/quick",
        report="results/quick/report.html",
        width=width,
    ).plain


def program(metrics: dict[str, float], environments: list[str]) -> tuple[Study, Analysis]:
    """A study of one program in many environments. metrics: the overhead of each, every one decided."""
    known = sample.analysis()
    of_arm = next(c for c in known.cells if c.verdict is Verdict.EQUIVALENT)
    study = sample.study()
    own = tuple(Environment(name=n, backend="native", placements=("one",)) for n in ["native", *environments])
    study = replace(
        study,
        environments=own,
        workloads=(CommandWorkload(name="app", argv=("./app",)),),
        design=replace(study.design, baselines=("native",)),
    )
    cells = [
        replace(
            of_arm,
            arm=f"{e}/one",
            environment=e,
            baseline="native/one",
            workload="app",
            metric=metric,
            overhead=overhead + i / 1000,
            low=overhead - 0.01,
            high=overhead + 0.01,
            verdict=Verdict.SLOWER if overhead > 0.05 else Verdict.EQUIVALENT,
        )
        for i, e in enumerate(environments)
        for metric, overhead in metrics.items()
    ]
    return study, replace(known, cells=tuple(cells))


@pytest.mark.parametrize("width", [80, 100, 200])
def test_summary_fits_on_one_screen(width: int) -> None:
    lines = text(sample.study(), sample.analysis(), width).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= min(width, WIDTH)


def test_the_sentence_names_the_costs_largest_first() -> None:
    shown = text(sample.study(), sample.analysis())
    (line,) = [x for x in shown.splitlines() if x.startswith("container, 2 containers")]
    assert "slower" in line
    assert line.index("latency ×59") < line.index("CG.S ×3.90")


def test_no_table_is_shown_without_intervals_and_no_interval_is_infinite() -> None:
    early = sample.early_analysis()
    cells = tuple(replace(c, low=-1.0, high=math.inf, verdict=Verdict.NONE) for c in early.cells)
    shown = text(sample.study(), replace(early, cells=cells))
    assert "no interval yet" in shown and "▲" not in shown
    assert "∞" not in text(sample.study(), early)


def test_usage_of_a_program_shares_a_row_and_wall_time_comes_first() -> None:
    usage = dict.fromkeys(("user", "system", "max_rss", "read", "written"), 0.0)
    study, analysis = program({"wall": 0.2, **usage}, ["box"])
    found = answer(study, analysis)
    assert found is not None
    assert [row.label for row in found.rows] == ["wall", "CPU, memory, I/O (5)"]
    (arm,) = found.arms
    assert arm.word == "slower" and arm.parts[0].startswith("wall +20")


def test_usage_does_not_decide_what_is_said_of_an_environment() -> None:
    study, analysis = program({"wall": 0.0, "system": 0.3}, ["box"])
    found = answer(study, analysis)
    assert found is not None and found.arms[0].word == "equal"
    assert [part.partition(" ")[0] for part in found.arms[0].parts] == ["wall", "but"]


def test_fewer_bytes_are_called_less_not_faster() -> None:
    study, analysis = program({"wall": 0.2, "size": 0.0, "events": 0.0}, ["box"])
    cells = [
        replace(c, unit=unit, verdict=Verdict.FASTER, overhead=-0.9, low=-0.91, high=-0.89) if unit else c
        for c, unit in zip(analysis.cells, ("", "B", "op/s"), strict=True)
    ]
    found = answer(study, replace(analysis, cells=tuple(cells)))
    assert found is not None
    assert found.arms[0].parts[:3] == ("wall +20.0 %", "size −90.0 % (less)", "events −90.0 % (faster)")


def test_the_sentence_names_the_metrics_of_a_row_that_differ() -> None:
    usage = dict.fromkeys(("user", "max_rss", "read", "written"), 0.0)
    found = answer(*program({"wall": 0.0, "system": 0.3, **usage}, ["box"]))
    assert found is not None
    assert "but CPU, memory, I/O (system) +30.0 %" in found.arms[0].parts


def test_many_environments_are_ranked() -> None:
    study, analysis = program({"wall": 0.0}, ["e", "d", "c", "b", "a"])
    lines = text(study, analysis).splitlines()
    at = lines.index(next(x for x in lines if x.startswith("wall   native")))
    assert [x.split()[0] for x in lines[at + 1 : at + 6]] == ["e", "d", "c", "b", "a"]


def test_like_metrics_show_how_many_differ_and_their_range() -> None:
    cells = [c for c in sample.analysis().cells if c.arm == "container/two"]
    equal = [c for c in cells if c.verdict is Verdict.EQUIVALENT]
    assert figures(cells).verdict is Verdict.SLOWER
    slower = [c for c in cells if c.verdict is Verdict.SLOWER]
    assert figures(cells).overhead == f"{len(slower)} of {len(cells)}"
    several: list[Cell] = [replace(equal[0], metric=m) for m in "ab"]
    assert (figures(several).overhead, figures(several).interval) == ("all", "−0.7 … +0.1 %")
    wide = replace(equal[0], verdict=Verdict.NONE, low=-0.2, high=0.3)
    assert figures([*several, wide]).interval == "−20 … +30 %"
    assert figures([*several, wide]).overhead == "1 of 3"


def test_intervals_are_below_the_figures_if_there_is_no_room_beside_them() -> None:
    study, analysis = program({"wall": 0.0, "user": 0.1}, ["podman", "runc", "bubblewrap"])
    beside, below = (text(study, analysis, width).splitlines() for width in (100, 80))
    row = next(i for i, line in enumerate(below) if line.startswith("wall "))
    assert "−1.0" not in below[row] and below[row + 1].count("−1.0 … +1.0") == 3
    assert next(x for x in beside if x.startswith("wall ")).count("−1.0 … +1.0") == 3


def test_intervals_lose_their_spaces_before_they_leave_the_line() -> None:
    study, analysis = program({"wall": 0.0, "user": 0.1}, ["podman", "runc", "bubblewrap"])
    rows = [line for line in text(study, analysis).splitlines() if line.startswith(("wall", "user"))]
    needed = max(map(len, rows))
    tight = text(study, analysis, needed - 1).splitlines()
    assert next(x for x in tight if x.startswith("wall ")).count("−1.0…+1.0") == 3


def test_a_range_of_values_is_as_precise_as_it_is_wide() -> None:
    known = sample.analysis()
    one = next(c for c in known.cells if c.workload == "stream-large")

    def baseline(**values: float) -> str:
        cells = tuple(
            replace(one, metric=m, unit="B/s", baseline_value=replace(one.baseline_value, centre=v))
            for m, v in values.items()
        )
        found = answer(sample.study(), replace(known, cells=cells))
        assert found is not None
        (row,) = found.rows
        return row.baseline

    assert baseline(copy=51.34e9, add=57.81e9) == "51 … 58 GB/s"
    assert baseline(copy=0.3e9, add=57.81e9) == "300 MB/s … 57.8 GB/s"
    assert baseline(copy=51.34e9, add=51.3401e9) == "51.3 GB/s"


def test_where_no_time_is_known_the_next_step_says_why() -> None:
    study, analysis = program({"wall": 0.0}, ["box"])

    def shown(cells: list[Cell]) -> str:
        return " ".join(text(study, replace(analysis, cells=tuple(cells))).split())

    why = "there is no interval yet; the first comes after 8 rounds"
    wide = [replace(c, verdict=Verdict.NONE, seconds_needed=None) for c in analysis.cells]
    assert (
        "Next 1 figure of 1 undecided; a longer run alone will not help: quieten the machine, then go on by: "
        "nearmetal resume results/quick" in shown(wide)
    )
    early = [replace(c, low=-math.inf, high=math.inf, reason=why) for c in wide]
    assert f"Next 1 figure of 1 undecided: {why}: nearmetal resume results/quick" in shown(early)


def test_a_command_that_is_suggested_is_whole() -> None:
    shown = summary_text(
        sample.study(),
        sample.analysis(),
        machine="m",
        when="now",
        results_dir="results/a directory with a long name and spaces/quick-2026-11-20T10-03-00",
        report=None,
        width=80,
    ).plain
    command = "nearmetal resume 'results/a directory with a long name and spaces/quick-2026-11-20T10-03-00'"
    assert command in shown


def test_open_figures_are_listed_apart_from_settled_sentences() -> None:
    study, analysis = program({"wall": 0.001, "user": 0.002}, ["podman"])
    cells = tuple(
        replace(c, verdict=Verdict.NONE, seconds_needed=600.0) if c.metric == "user" else c
        for c in analysis.cells
    )
    shown = text(study, replace(analysis, cells=cells))
    assert "the sentences above are settled; the undecided figure needs about 20 min more" in shown
    everything = tuple(replace(c, verdict=Verdict.NONE, seconds_needed=600.0) for c in analysis.cells)
    shown = text(study, replace(analysis, cells=everything))
    assert "are settled" not in shown and "1 of 2 undecided figures needs about 20 min more" in shown


def test_without_anything_to_compare_the_failure_is_said() -> None:
    lost = Unused(what="trials of a/1", reason="ring: ended with 3: no licence", count=9, failed=True)
    shown = text(sample.study(), replace(sample.analysis(), cells=(), unused=(lost,)))
    assert "Failed: ring: ended with 3: no licence" in shown
    assert "Next    read results/quick/logs" in shown and "every figure is decided" not in shown


def test_drawn_machines_that_are_slow_are_named_on_the_first_screen_and_in_markdown() -> None:
    study, analysis = program({"wall": 0.3}, ["box"])
    ratio = Interval(low=1.04, centre=1.05, high=1.06)
    slow = SetEvidence(
        machines=("c",), baseline="native", workload="ep", metric="rate", n=9, others=9, ratio=ratio
    )
    found = replace(analysis, sets=(slow, replace(slow, machines=("b", "e"))))
    assert short_sentence(found) == ("c is slow; the link between b and e is slow", True)
    assert "- c is slow: the baseline takes" in markdown_text(study, found)
    assert short_sentence(analysis) == ("", False)
