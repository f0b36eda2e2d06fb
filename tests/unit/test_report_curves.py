"""Metrics that differ by a number in their names: a curve with its best point, in all forms of the report."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.model.change import replace
from nearmetal.model.result import Analysis, Cell, Interval
from nearmetal.model.study import Better
from nearmetal.report.charts.chart import FILE
from nearmetal.report.charts.curves import curve_figures, curves, figure_of, sentences
from nearmetal.report.charts.drawing import svg
from nearmetal.report.charts.lines import lines_charts
from nearmetal.report.forms.figures import line_figures
from nearmetal.report.forms.markdown import markdown_text
from nearmetal.report.forms.terminal import terminal_text
from nearmetal.report.page.document import Context, page_html
from nearmetal.report.record_index import RecordIndex

NATIVE = {16: 10e9, 32: 12e9, 64: 11e9}
BOX = {16: 9e9, 32: 10e9, 64: 10.5e9}


def around(value: float) -> Interval:
    return Interval(centre=value, low=value * 0.99, high=value * 1.01)


def cells(stem: str, base: Mapping[int, float], own: Mapping[int, float], *, best: bool) -> list[Cell]:
    like = replace(
        sample.analysis().cells[0],
        arm="box/1x2",
        baseline="native/1x2",
        workload="hpl",
        unit="FLOP/s",
        better=Better.HIGHER,
    )
    names = [f"{stem}{at}" for at in base] + (["best"] if best else [])
    values = [*zip(base.values(), own.values(), strict=True), *([(12e9, 10.5e9)] if best else [])]
    return [
        replace(like, metric=name, baseline_value=around(b), value=around(v))
        for name, (b, v) in zip(names, values, strict=True)
    ]


SWEEP = cells("nb", NATIVE, BOX, best=True)
SAID = "hpl over nb: best in native/1x2 at 32 (12.0 GFLOP/s), in box/1x2 at 64 (10.5 GFLOP/s)"


def swept() -> Analysis:
    return replace(sample.analysis(), cells=tuple(SWEEP))


def test_a_curve_and_its_best_point_on_each_side() -> None:
    (curve,) = curves(SWEEP)
    assert (curve.workload, curve.over, curve.unit) == ("hpl", "nb", "FLOP/s")
    assert [(p.side, p.at, p.value.centre) for p in curve.points] == [
        *(("native/1x2", at, v) for at, v in NATIVE.items()),
        *(("box/1x2", at, v) for at, v in BOX.items()),
    ]
    assert sentences(SWEEP) == (SAID,)
    drawn = figure_of(curve)
    assert drawn is not None and SAID in drawn.caption and "bars are their intervals" in drawn.caption
    (chart,) = lines_charts(drawn)
    texts = [e.get("aria-label", "") for e in ElementTree.fromstring(svg(chart, FILE)).iter()]
    marks = [text for text in texts if text.startswith(("native/1x2, ", "box/1x2, "))]
    assert len(marks) == 6 and marks[1] == "native/1x2, 32: 12.0 GFLOP/s [11.9 GFLOP/s … 12.1 GFLOP/s]"


def test_further_arms_share_the_baseline() -> None:
    further = [replace(c, arm="lxc/1x2") for c in SWEEP]
    (curve,) = curves(SWEEP + further)
    assert [p.side for p in curve.points].count("native/1x2") == 3 and len(curve.points) == 9
    drawn = figure_of(curve)
    assert drawn is not None
    (chart,) = lines_charts(drawn)
    points = [row["side"] for row in chart.data["points"]]
    assert points == ["native/1x2"] * 3 + ["box/1x2"] * 3 + ["lxc/1x2"] * 3


def test_curve_without_a_best_direction_names_no_best_point() -> None:
    (curve,) = curves(cells("latency-", NATIVE, BOX, best=False))
    assert curve.over == "latency" and curve.sentence() == ""


@pytest.mark.parametrize("stem", ["p", "read-p"])
def test_percentiles_and_few_points_are_no_curve(stem: str) -> None:
    assert curves(cells(stem, NATIVE, BOX, best=False)) == ()
    assert curves(cells("nb", {16: 1.0, 32: 2.0}, {16: 1.0, 32: 2.0}, best=True)) == ()
    assert curves(sample.analysis().cells) == () and curve_figures(sample.analysis().cells) == ()


def test_values_that_are_not_known_are_left_out() -> None:
    unknown = Interval(centre=float("nan"), low=float("nan"), high=float("nan"))
    (curve,) = curves([replace(c, value=unknown, baseline_value=unknown) for c in SWEEP])
    assert curve.sentence() == "" and figure_of(curve) is None
    open_ends = replace(SWEEP[0], value=Interval(centre=9e9, low=0.0, high=float("inf")))
    (curve,) = curves([open_ends, *SWEEP[1:]])
    drawn = figure_of(curve)
    assert drawn is not None
    (chart,) = lines_charts(drawn)
    assert len(chart.data["points"]) == 6 and len(chart.data["ends"]) == 5


def test_every_form_of_the_report_has_it() -> None:
    study = sample.study()
    said = terminal_text(study, swept(), results_dir="results/x", report=None, width=120).plain
    assert SAID in said
    assert "best in native/1x2 at 32" in markdown_text(study, swept())
    assert "curve-hpl-nb-vs-native-1x2" in {name for name, _ in line_figures(study, swept())}
    context = Context(records=RecordIndex([]), provenance={}, differences=[], commands=[])
    page = page_html(study, swept(), context)
    assert 'id="curves"' in page and "native/1x2, 32: 12.0 GFLOP/s" in page
