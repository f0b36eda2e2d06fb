"""The figures: valid charts of finite numbers, thinned where large, and as files of the right kind."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.errors import RecordsError
from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.model.change import replace
from nearmetal.model.record import Status
from nearmetal.model.result import Roof
from nearmetal.records import read_trials
from nearmetal.records.codec import to_line
from nearmetal.report.charts.cells import APART, MOST_POINTS, absolute, charts_of, ecdf, floor, points
from nearmetal.report.charts.chart import FILE, PAGE, Chart
from nearmetal.report.charts.drawing import parts_of, specification, svg
from nearmetal.report.charts.series import overheads
from nearmetal.report.forms.figures import FORMATS, figures, write_figures
from nearmetal.report.record_index import RecordIndex, share_text

EMPTY = RecordIndex(())


def text_of(chart: Chart) -> str:
    return json.dumps(chart.data, allow_nan=False)


def test_every_figure_is_valid_vega_lite() -> None:
    found = figures(sample.analysis(), sample.records())
    assert {c.kind for _, c in found} == {"floor", "points", "absolute", "attribution", "ecdf"}
    assert len({name for name, _ in found}) == len(found)
    views = {(chart.view.func, chart.view.args): chart for _, chart in found}
    assert len(views) > 5
    for chart in views.values():
        for palette in (FILE, PAGE):
            chart.view(palette).to_dict(validate=True)


def test_charts_are_drawn_with_their_words_and_tooltips() -> None:
    cell = next(c for c in sample.analysis().cells if c.workload == "start")
    for chart in charts_of(cell, EMPTY):
        spec = json.loads(specification(chart, FILE))
        assert "{{" not in json.dumps(spec) and spec["height"] == chart.height
        named = {source["name"] for source in spec["data"]}
        assert named >= chart.data.keys(), "no data without a mark"
        box, inner = parts_of(svg(chart, PAGE))
        assert re.fullmatch(r"0 0 \d+ \d+", box)
        ElementTree.fromstring(f"<svg>{inner}</svg>")
        tips = [row["tip"] for rows in chart.data.values() for row in rows if "tip" in row]
        assert tips and html.unescape(inner).count("<title>") == len(tips), chart.kind
        assert all(f"<title>{tip}</title>" in html.unescape(inner) for tip in tips)
        assert "var(--" in inner and " role=" not in inner and "font-family" not in inner


def test_names_of_environments_stay_text_in_a_chart() -> None:
    evil = 'a"\\{{unit}}</svg><script>'
    cell = replace(sample.analysis().cells[0], arm=evil)
    chart = absolute(cell, EMPTY)
    assert chart is not None
    root = ElementTree.fromstring(svg(chart, FILE))
    assert evil in ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("text")]


@pytest.mark.parametrize(
    ("ends", "words"),
    [((-0.2, 0.0, 0.6), {"−20", "0", "+20", "+40", "+60"}), ((-0.5, 9.0, 99.0), {"1", "10", "100"})],
)
def test_numbers_of_an_axis_are_signed_but_for_zero_and_thinned_where_it_is_logarithmic(
    ends: tuple[float, float, float], words: set[str]
) -> None:
    low, overhead, high = ends
    cells = [replace(c, low=low, overhead=overhead, high=high) for c in sample.analysis().cells[:1]]
    chart = overheads(cells, str)
    assert chart is not None
    root = ElementTree.fromstring(svg(chart, FILE))
    assert words <= {"".join(e.itertext()) for e in root.iter() if e.tag.endswith("text")}


def test_causes_and_roofs_are_drawn_where_there_are_any() -> None:
    cell = next(c for c in sample.analysis().cells if c.attribution is not None)
    assert cell.attribution is not None
    measured = cell.attribution.parts[0]
    told = replace(cell.attribution, causes=(measured,), unexplained=measured.overhead)
    over = Roof(words="a roof", value=cell.value.centre, share=1.0, measured=0.0)
    drawn = {c.kind: c for c in charts_of(replace(cell, attribution=told, roof=over), EMPTY)}
    assert drawn["attribution"].title == "Where the time went, and why"
    assert {row["of"] for row in drawn["attribution"].data["parts"]} == {"phase", "cause"}
    (alone,) = [c for c in charts_of(cell, EMPTY) if c.kind == "attribution"]
    assert alone.title == "Where the time went"
    assert "Dashed: the upper bound" in drawn["absolute"].caption
    assert len(drawn["absolute"].data["roof"]) == 1


def test_captions_say_n_and_unit() -> None:
    cell = next(c for c in sample.analysis().cells if c.workload == "start")
    for chart in charts_of(cell, EMPTY):
        assert "n 39" in chart.caption, chart.kind
    distribution = ecdf(replace(cell, events="starts"))
    assert distribution is not None and "in µs" in distribution.caption
    assert "Not estimable at this n: p95, p99" in distribution.caption
    assert distribution.caption.startswith("Share of starts that took at most this long")
    moved = ecdf(replace(cell, events="moves"))
    assert moved is not None and moved.caption.startswith("Share of moves that took at most this long")


def test_no_number_is_infinite_before_the_first_look() -> None:
    for cell in sample.early_analysis().cells:
        for chart in charts_of(cell, EMPTY):
            text_of(chart)
            assert chart.kind != "points" or cell.workload == "cg.S" or not chart.data["interval"]
    assert floor(sample.noise_floor(5)) is None


def test_a_cell_without_blocks_has_no_chart() -> None:
    cell = replace(
        sample.early_analysis().cells[0], blocks=(), d=(), values=(), baseline_values=(), looks=(), n=0
    )
    assert charts_of(cell, EMPTY) == ()


def test_large_studies_are_thinned_and_say_so() -> None:
    cell = sample.cell("container/one", "native/one", sample.METRICS[0], blocks=20_000)
    spike = max(range(cell.n), key=lambda i: cell.d[i])
    chart = points(cell)
    assert chart is not None and len(chart.data["points"]) <= MOST_POINTS + 3
    assert "of 20,000 rounds" in chart.caption and "the figures use all" in chart.caption
    assert cell.blocks[spike] in [p["x"] for p in chart.data["points"]], "no outlier is left out"
    chart = absolute(cell, EMPTY)
    assert chart is not None and len(chart.data["values"]) <= MOST_POINTS + 4 and "Thinned" in chart.caption


def test_the_range_of_single_measurements_is_drawn_from_the_records() -> None:
    cell = sample.analysis().cells[0]
    index = RecordIndex(sample.records())
    chart = absolute(cell, index)
    assert chart is not None and "single measurements" in chart.caption
    raw = index.raw(cell.arm, 1, cell)
    (drawn,) = [r for r in chart.data["ranges"] if r["x"] == 1 + APART]
    assert len(raw) == 8
    assert (drawn["y"], drawn["high"]) == tuple(float(f"{f(raw) / 1e9:.6g}") for f in (min, max))
    assert {round(float(str(v["x"]))) for v in chart.data["values"]} == set(cell.blocks)


def test_an_interval_that_would_flatten_the_rounds_is_not_drawn() -> None:
    cell = sample.analysis().cells[0]
    chart = points(cell)
    assert chart is not None
    ends = [(float(str(k["y"])), float(str(k["high"]))) for k in chart.data["looks"]]
    assert 0 < len(ends) <= len(cell.looks), "the last one at least"
    wide = replace(cell, looks=tuple(replace(k, low=-9.0, high=9.0) for k in cell.looks))
    chart = points(wide)
    assert chart is not None and chart.data["looks"] == [] and "Grey bars" not in chart.caption


def test_the_margin_is_left_out_only_where_it_would_flatten_the_points() -> None:
    near, far = (
        next(c for c in sample.analysis().cells if c.arm == arm and c.metric == metric)
        for arm, metric in (("container/one", "triad"), ("container/two", "latency"))
    )
    for cell, shown in ((near, True), (far, False)):
        chart = points(cell)
        assert chart is not None
        assert (("Grey band: margin" in chart.caption), ("lies far outside" in chart.caption)) == (
            shown,
            not shown,
        )
        assert bool(chart.data["margin"]) is shown


def test_files_of_every_format(tmp_path: Path) -> None:
    analysis = replace(sample.analysis(), cells=sample.analysis().cells[9:10])
    written = write_figures(sample.study(), analysis, tmp_path / "figures", records=sample.records())
    assert len(written) == 3 * len(figures(analysis))
    by_format = {f: [p for p in written if p.suffix == f".{f}"] for f in FORMATS}
    for path in by_format["svg"]:
        root = ElementTree.fromstring(path.read_bytes())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert all(p.read_bytes().startswith(b"\x89PNG\r\n") for p in by_format["png"])
    assert all(p.read_bytes().startswith(b"%PDF-") for p in by_format["pdf"])
    assert [p for p in (tmp_path / "figures").iterdir() if p not in written] == []


def test_figures_that_cannot_be_written_say_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RecordsError, match="cannot write"):
        write_figures(sample.study(), sample.analysis(), tmp_path / "file")


def test_the_last_good_attempt_of_a_block_counts() -> None:
    first, *rest = (r for r in sample.records(2) if r.arm == "native/one")
    again = replace(first, attempt=2, trial="again")
    failed = replace(first, attempt=3, status=Status.FAILED, trial="failed")
    control = replace(first, aa=True, trial="aa", attempt=9)
    index = RecordIndex([again, first, failed, control, *rest])
    assert [t.trial for t in index.trials("native/one")] == ["again", *(r.trial for r in rest)]


def test_observations_are_counted_and_missing_values_are_not_zero() -> None:
    index = RecordIndex(sample.records())
    seen = index.seen("container/two")
    assert seen.transports == (("btl tcp,self; pml ob1", 39),)
    assert seen.places == (("rank 0: nm-a, CPU 0; rank 1: nm-b, CPU 1", 39),)
    assert dict(seen.disturbance)["steal"] is None
    assert seen.flagged == (("disturbed", 1),)
    assert index.own_namespaces("container/two", "native/one") == ("mnt", "net", "pid")
    assert index.own_namespaces("native-tcp/one", "native/one") == ()
    assert index.own_namespaces("nobody", "native/one") is None
    cell = next(c for c in sample.analysis().cells if c.arm == "container/two")
    lines = {line.name: line for line in index.counters(cell)}
    assert lines["node steal_seconds"].arm is None and lines["node interrupts"].arm == 900.0
    slowest = cell.blocks[max(range(cell.n), key=lambda i: cell.d[i])]
    assert lines["node context_switches"].slowest_block == 410.0 + slowest
    assert math.isclose(lines["node context_switches"].baseline or 0, 430.0)
    assert RecordIndex(()).counters(cell) == ()


def test_long_run_is_sampled_and_the_report_says_so(tmp_path: Path) -> None:
    first = next(r for r in sample.records(1) if r.arm == "native/one")
    file = tmp_path / "w.jsonl"
    with file.open("wb") as lines:
        lines.writelines(to_line(replace(first, trial=f"{b}.native/one", block=b)) for b in range(1, 1801))
    index = RecordIndex(read_trials(UntrustedDirectory(file.parent), [file.name]))
    seen = index.seen("native/one")
    assert index.count("native/one") == seen.of == 1800
    assert len(index.trials("native/one")) == seen.trials == 226  # every eighth, and the last
    ((_, said),) = seen.transports
    assert share_text(said, seen) == "in 226 of 226 trials looked at"
    assert index.trial("native/one", 1799) is not None
