"""Sweeps: curves over numbers in every form of the report, and convergence, from planted records in which
pre-copy stops converging at a known dirty rate."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from textwrap import indent
from xml.etree import ElementTree

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.analysis import analyse
from nearmetal.api.catalog import catalog
from nearmetal.lifecycle import CopyRound, convergence
from nearmetal.model.change import replace
from nearmetal.model.keys import key_or, quantity
from nearmetal.model.record import JsonValue, TrialRecord
from nearmetal.model.result import Cell, Interval
from nearmetal.model.study import Better, EventSubject, Study, SubjectFacts
from nearmetal.model.sweep import sweeps
from nearmetal.plan import make_plan
from nearmetal.report.charts.chart import FILE, Chart
from nearmetal.report.charts.curves import swept_figures
from nearmetal.report.charts.drawing import svg
from nearmetal.report.charts.lines import lines_charts
from nearmetal.report.forms.figures import line_figures
from nearmetal.report.forms.summary import summary_text
from nearmetal.report.page.document import Context, page_html
from nearmetal.report.record_index import RecordIndex
from nearmetal.report.sheet import markdown_of, text_of
from nearmetal.report.tables.events.sweeps import (
    at_text,
    convergence_lines,
    convergence_sentences,
    held,
    sweeps_json,
)
from nearmetal.report.tables.swept import swept_leaf
from nearmetal.study_file import load_text
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate
from nearmetal.units import Dimension

STUDY = """\
name: swept
question: Where does pre-copy stop converging?
environments:
  guest: {backend: qemu, image: debian-kernel, attachment: veth-bridge}
placements:
  1x1: {instances: 1, tasks: 1}
workloads:
  moved:
    subject: migrate
    methods: [offline, precopy]
    matrix: {memory: [128 MiB, 256 MiB], dirty_rate: [1 MiB/s, 64 MiB/s, 0 B/s]}
    working_set: 100 MiB
  kept: {subject: migrate, method: offline}
design: {baselines: [guest], mode: plain}
"""
MIB = 1 << 20
SPEEDS = {"1MiB_s": 1, "64MiB_s": 64, "0B_s": math.inf}
OFFLINE, PRECOPY = "guest-offline/1x1", "guest-precopy/1x1"
BY_ITSELF: list[JsonValue] = [[128 * MIB, 0.0], [8 * MIB, 0.0]]
THROTTLED: list[JsonValue] = [[128 * MIB, 0.0], [100 * MIB, 0.0], [100 * MIB, 0.2], [99 * MIB, 0.3]]


def study() -> Study:
    return load_text(STUDY, "swept.yaml", None, seed=1)


def around(value: float) -> Interval:
    return Interval(centre=value, low=value * 0.9, high=value * 1.1)


def cells() -> list[Cell]:
    """Total time is memory / 1 GB/s offline; by pre-copy it is that and a second more at full speed."""
    like = replace(
        sample.analysis().cells[0],
        arm=PRECOPY,
        environment="guest-precopy",
        baseline=OFFLINE,
        unit="s",
        better=Better.LOWER,
    )
    out = []
    for memory in (128, 256):
        for speed, at in SPEEDS.items():
            base = memory * MIB / 1e9
            own = base + (1.0 if math.isinf(at) else 0.0)
            name = f"moved-{memory}MiB-{speed}"
            out += [
                replace(like, workload=name, metric=m, baseline_value=around(base), value=around(own))
                for m in ("total", "stopped", "silence", "sent")
            ]
    return out


def trial(block: int, *, ended: bool = True) -> TrialRecord:
    facts: dict[str, dict[str, JsonValue]] = {
        f"moved-{memory}MiB-{speed}": {
            "method": "precopy",
            "moves": [
                {
                    "method": "precopy",
                    "copied": THROTTLED if math.isinf(at) else BY_ITSELF,
                    "ended": ended or not math.isinf(at),
                }
            ],
        }
        for memory in (128, 256)
        for speed, at in SPEEDS.items()
    }
    like = sample.records()[0]
    return replace(like, arm=PRECOPY, block=block, aa=False, facts=facts, trial=f"{block}")


def index(*, ended: bool = True) -> RecordIndex:
    return RecordIndex([trial(0), trial(1, ended=ended)])


def test_workloads_of_a_matrix_are_one_sweep_with_its_keys() -> None:
    (found,) = sweeps(study())
    assert (found.name, found.keys, len(found.workloads)) == ("moved", ("memory", "dirty_rate"), 6)
    assert found.at["moved-256MiB-0B_s"] == (256 * MIB, math.inf)
    assert held(found, "moved-256MiB-0B_s", "memory") == "dirty rate full speed"


@dataclass(frozen=True, kw_only=True)
class Paused(EventSubject):
    pause: float = key_or(0.0, quantity(Dimension.TIME, 0, 10), "ending: how long it pauses", "20 ms")


def test_quantities_of_any_subject_can_be_swept() -> None:
    facts = SubjectFacts(name="ending", metrics=("ending",), workload=Paused)
    events = tuple(Paused(name=f"e-{n}", facts=facts, pause=n / 1000) for n in (10, 20))
    (found,) = sweeps(replace(study(), workloads=events))
    assert (found.keys, found.at) == (("pause",), {"e-10": (0.01,), "e-20": (0.02,)})
    assert at_text(found.axes["pause"], 0.02) == "20 ms"


def test_a_curve_for_each_metric_over_each_key_with_every_environment_once() -> None:
    figures = swept_figures(study(), cells())
    assert [f.title for f in figures] == [
        f"moved: {metric} over {key}"
        for metric in ("total", "stopped", "silence")
        for key in ("memory", "dirty rate")
    ]
    over_memory, over_rate = figures[:2]
    assert [p.title for p in over_rate.panels] == ["memory 128 MiB", "memory 256 MiB"]
    assert [p.title for p in over_memory.panels] == [
        f"dirty rate {rate}" for rate in ("1 MiB/s", "64 MiB/s", "full speed")
    ]
    (panel, _) = over_rate.panels
    assert {side: [at for at, _ in points] for side, points in panel.lines.items()} == {
        side: [1 * MIB, 64 * MIB, math.inf] for side in ("guest-offline", "guest-precopy")
    }
    assert [v.centre for _, v in panel.lines["guest-precopy"]] == pytest.approx(
        [0.128 * 1.048576, 0.128 * 1.048576, 1 + 0.128 * 1.048576]
    )


def texts_and_marks(chart: Chart) -> tuple[list[str], list[str]]:
    """The texts of a drawn chart, and what its marks say."""
    drawing = list(ElementTree.fromstring(svg(chart, FILE)).iter())
    marks = [e.get("aria-label", "") for e in drawing]
    texts = [e.text or "" for e in drawing if e.tag.endswith("text")]
    return texts, [mark for mark in marks if mark.startswith("guest-")]


def test_a_chart_for_each_value_that_is_held_says_its_values_in_words() -> None:
    charts = lines_charts(swept_figures(study(), cells())[1])
    assert [c.title for c in charts] == [f"moved: total over dirty rate, memory {m} MiB" for m in (128, 256)]
    texts, marks = texts_and_marks(charts[0])
    assert len(marks) == 6 and marks[0].startswith("guest-offline, 1 MiB/s: ")
    assert {"guest-offline", "guest-precopy", "1 MiB/s", "64 MiB/s", "full speed"} <= set(texts)
    assert "dirty rate, log scale" in texts


def test_a_value_without_a_limit_is_apart_from_the_line() -> None:
    chart = lines_charts(swept_figures(study(), cells())[1])[0]
    (apart,) = {row["x"] for row in chart.data["points"]} - {row["x"] for row in chart.data["lines"]}
    assert [row["x"] for row in chart.data["lines"]] == [1 * MIB, 64 * MIB] * 2
    assert isinstance(apart, float) and 2 * 64 * MIB < apart < 64 * 64 * MIB


def test_files_of_the_curves_have_names_of_their_own() -> None:
    names = [name for name, _ in line_figures(study(), replace(sample.analysis(), cells=tuple(cells())))]
    assert "curve-moved-total-memory-0-dirty-rate-1-MiB-s" in names and len(names) == len(set(names)) == 3 * (
        3 + 2
    )


def test_convergence_by_what_the_rounds_show() -> None:
    shrunk = convergence([CopyRound(left=256 * MIB), CopyRound(left=20 * MIB)])
    assert shrunk.alone and shrunk.evidence == "2 rounds of 268, 21 MB"
    stalled = convergence([CopyRound(left=left * MIB) for left in (256, 100, 99)])
    assert not stalled.alone and stalled.evidence.endswith("the last one did not shrink")
    throttled = convergence([CopyRound(left=256 * MIB), CopyRound(left=9 * MIB, throttle=0.4)])
    assert not throttled.alone and "throttled by up to 40 %" in throttled.evidence
    with pytest.raises(ValueError, match="without rounds"):
        convergence([])
    with pytest.raises(ValueError, match="not a round"):
        CopyRound.from_record(["many", 0])


def test_largest_dirty_rate_at_which_precopy_converges_is_reported() -> None:
    said = convergence_sentences(study(), index())
    assert said == tuple(
        f"guest-precopy, memory {memory} MiB: pre-copy converges by itself up to dirty rate 64 MiB/s, and "
        "does not at dirty rate full speed (2 of 2 moves): 4 rounds of 134, 105, 105, 104 MB, and its CPUs "
        "were throttled by up to 30 %."
        for memory in (128, 256)
    )
    lines = convergence_lines(study(), index(ended=False))
    assert [p.alone for p in lines[0].points] == [2, 2, 0]
    every = [trial(0), trial(1)]
    for record in every:
        for found in record.facts.values():
            moves = found["moves"]
            assert isinstance(moves, list) and isinstance(moves[0], dict)
            moves[0]["copied"] = BY_ITSELF
    assert "at every dirty rate that was measured" in convergence_sentences(study(), RecordIndex(every))[0]


def test_every_form_of_the_report_has_it() -> None:
    analysis = replace(sample.analysis(), cells=tuple(cells()))
    leaf = swept_leaf(study(), analysis, index())
    assert leaf is not None
    for text in (text_of(leaf), markdown_of(leaf)):
        assert "full speed" in text and "guest-precopy, memory 256 MiB" in text
    form = json.loads(json.dumps(sweeps_json(study(), cells(), index()), allow_nan=False))
    assert len(form["curves"]) == 3 * (3 + 2) and len(form["convergence"]) == 2
    assert form["convergence"][0]["points"][2] == {
        "at": {"memory": 128 * MIB, "dirty_rate": None},
        "moves": 2,
        "converged_alone": 0,
        "evidence": "4 rounds of 134, 105, 105, 104 MB, and its CPUs were throttled by up to 30 %",
    }
    assert {p["arm"] for p in form["curves"][0]["points"]} == {OFFLINE, PRECOPY}
    first = summary_text(
        study(),
        analysis,
        machine="m",
        when="today",
        results_dir="results/x",
        report=None,
        width=100,
        moves=convergence_sentences(study(), index()),
    ).plain
    assert "does not at dirty rate full speed" in " ".join(first.split())


SIZES = """\
name: sizes
question: How does the throughput grow?
environments: {native: {backend: native}, box: {backend: namespaces}}
placements: {1x2: {instances: 1, tasks: 2}}
workloads:
  ep: {kernel: ep, class: S}
WORKLOADS
design: {baseline: native, seed: 1}
"""


def of_workloads(text: str) -> Study:
    return load_text(SIZES.replace("WORKLOADS", indent(text, "  ")), "sizes.yaml", catalog())


@pytest.mark.parametrize(
    ("workloads", "found"),
    [
        ("mpi: {kernel: pingpong, matrix: {bytes: [8 B, 1 KiB]}}", []),
        (
            "mpi: {kernel: pingpong, matrix: {bytes: [1 KiB, 8 B, 1 MiB]}}",
            [("mpi", "bytes", ["mpi-1KiB", "mpi-8B", "mpi-1MiB"])],
        ),
        (
            "mpi: {kernel: pingpong, matrix: {bytes: [0 B, 8 B, 64 B, 1 KiB], pages: [huge, 4k]}}",
            [
                ("mpi-huge", "bytes", ["mpi-8B-huge", "mpi-64B-huge", "mpi-1KiB-huge"]),
                ("mpi-4k", "bytes", ["mpi-8B-4k", "mpi-64B-4k", "mpi-1KiB-4k"]),
            ],
        ),
        (
            "mpi: {kernel: pingpong, matrix: {bytes: [8 B, 64 B, 1 KiB], trips: [2, 4]}}",
            [
                ("mpi", "bytes", ["mpi-8B-2", "mpi-64B-2", "mpi-1KiB-2"]),
                ("mpi", "bytes", ["mpi-8B-4", "mpi-64B-4", "mpi-1KiB-4"]),
            ],
        ),
        ("mpi: {kernel: pingpong, zip: {bytes: [8 B, 64 B, 1 KiB], trips: [2, 4, 8]}}", []),
        ("a: {kernel: tcp, bytes: 8 B}\nb: {kernel: tcp, bytes: 64 B}\nc: {kernel: udp, bytes: 1 KiB}", []),
        (
            "a: {kernel: tcp, bytes: 8 B}\nb: {kernel: tcp, bytes: 64 B}\nc: {kernel: tcp, bytes: 1 KiB}",
            [("tcp", "bytes", ["a", "b", "c"])],
        ),
        (
            "moved: {subject: checkpoint, matrix: {memory: [16 MiB, 32 MiB]}}",
            [("moved", "memory", ["moved-16MiB", "moved-32MiB"])],
        ),
    ],
)
def test_workloads_that_differ_in_one_number_are_a_line(
    workloads: str, found: list[tuple[str, str, list[str]]]
) -> None:
    own = [
        (s.name, key, list(names))
        for s in sweeps(of_workloads(workloads))
        for key in s.keys
        for names in s.lines(key)
    ]
    assert own == found


def test_sweeps_have_different_names() -> None:
    lines = [
        f"{key}{n}: {{kernel: tcp, bytes: {size} B, measure: {measure}}}"
        for key, measure in (("a", "latency"), ("b", "bandwidth"))
        for n, size in enumerate((8, 64, 512))
    ]
    assert [s.name for s in sweeps(of_workloads("\n".join(lines)))] == ["tcp", "b0"]


def test_a_page_draws_the_curve_of_measured_sizes_once() -> None:
    own = of_workloads("mpi: {kernel: pingpong, measure: bandwidth, matrix: {bytes: [1 MiB, 8 B, 1 KiB]}}")
    rates = {"mpi-8B": 8e6, "mpi-1KiB": 4e8, "mpi-1MiB": 2e9}
    metrics = [
        SimulatedMetric(workload=name, metric="bandwidth", unit="B/s", better=Better.HIGHER, value=rate)
        for name, rate in rates.items()
    ]
    plan = make_plan(own, blocks=12)
    records = simulate(own, plan, metrics=metrics, overheads={"box/1x2": 1.0}, spread=Spread())
    analysis = analyse(own, plan, records)
    (figure,) = swept_figures(own, analysis.cells)
    (panel,) = figure.panels
    assert panel.unit == "B/s" and tuple(panel.lines) == ("native", "box") and "n 12" in figure.caption
    for side, slower in (("native", 1), ("box", 2)):
        assert [at for at, _ in panel.lines[side]] == [8, 1024, 1 << 20]
        assert [v.centre for _, v in panel.lines[side]] == [
            pytest.approx(rate / slower, rel=0.05) for rate in rates.values()
        ]
    for guest, said in (("TCG, no KVM", "emulated"), ("Xen in a virtual machine: KVM", "nested")):
        (of_guest,) = swept_figures(own, [replace(c, guest=guest) for c in analysis.cells])
        assert of_guest.caption == f"{figure.caption} Guests {said} ({guest})."
    index = RecordIndex(records)
    context = Context(records=index, provenance={}, differences=(), commands=())
    page = page_html(own, analysis, context).replace("\u00a0", " ")
    assert "<h4>mpi: bandwidth over bytes</h4>" in page
    assert page.count("over bytes</h4>") == page.count('class="chart lines"') == 1
    assert swept_figures(own, [c for c in analysis.cells if c.workload != "mpi-8B"]) == ()


def test_parameters_of_kernels_are_swept_too_from_three_values_on() -> None:
    text = """\
name: sizes
question: How does the latency grow?
environments: {native: {backend: native}, box: {backend: namespaces}}
placements: {1x2: {instances: 1, tasks: 2}}
workloads:
  send: {kernel: pingpong, measure: latency, matrix: {bytes: [1 B, 1 KiB, 1 MiB]}}
  two: {kernel: stream, matrix: {elements: [1 M, 2 M]}}
design: {baseline: native}
"""
    own = load_text(text, "sizes.yaml", None, seed=1)
    (found,) = sweeps(own)
    assert (found.name, found.keys) == ("send", ("bytes",))
    like = replace(cells()[0], arm="box/1x2", baseline="native/1x2", metric="latency")
    measured = [
        replace(like, workload=name, value=around(1e-6 * (at + 1))) for name, (at,) in found.at.items()
    ]
    (figure,) = swept_figures(own, measured)
    assert figure.title == "send: latency over bytes"
    assert [figure.panels[0].text(at) for at, _ in figure.panels[0].lines["box"]] == ["1 B", "1 KiB", "1 MiB"]
    assert convergence_lines(own, RecordIndex([])) == ()


def test_a_study_without_a_sweep_has_no_section() -> None:
    assert swept_leaf(sample.study(), sample.analysis(), RecordIndex(sample.records())) is None
    assert sweeps_json(sample.study(), sample.analysis().cells, RecordIndex([])) == {
        "curves": [],
        "convergence": [],
    }
