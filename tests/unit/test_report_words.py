"""The verdict table in words: every verdict has symbol and word, every ratio its baseline, n and interval."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.analysis.noise_floor import noise_floor
from nearmetal.model.result import Analysis, Cell, NoiseFloor, Unused, Verdict
from nearmetal.model.study import EventSubject, Placement, Study, SubjectFacts
from nearmetal.records.json_files import to_json
from nearmetal.report.forms.csv_form import csv_text
from nearmetal.report.forms.json_form import json_form
from nearmetal.report.forms.latex import latex_text
from nearmetal.report.forms.markdown import markdown_text
from nearmetal.report.forms.summary import summary_text
from nearmetal.report.forms.terminal import terminal_text
from nearmetal.report.tables.answer import NOTHING, _where, answer_sentences, machine_line
from nearmetal.report.tables.cells import (
    SYMBOLS,
    WORDS,
    bounded,
    cause_text,
    effect,
    failure_text,
    metric_label,
    next_steps,
    question_text,
    verdict_table,
    verdict_text,
)
from nearmetal.report.tables.floors import floors
from nearmetal.report.tables.trust import Grade, trust_in


def one_cell(verdict: Verdict) -> Cell:
    return replace(sample.analysis().cells[0], verdict=verdict)


def forms(analysis: Analysis) -> dict[str, str]:
    study = sample.study()
    form = json_form(study, analysis, results_dir="r")
    return {
        "markdown": markdown_text(study, analysis),
        "latex": latex_text(study, analysis),
        "csv": csv_text(analysis),
        "json": json.dumps(form, ensure_ascii=False, allow_nan=False),
        "terminal": terminal_text(study, analysis, results_dir="r", report=None, width=120).plain,
    }


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_symbol_and_a_word_of_its_own(verdict: Verdict) -> None:
    assert verdict_text(verdict) == f"{SYMBOLS[verdict]} {WORDS[verdict]}"
    assert len(set(SYMBOLS.values())) == len(set(WORDS.values())) == len(Verdict)
    said = forms(replace(sample.analysis(), cells=(one_cell(verdict),)))
    assert verdict_text(verdict) in said["terminal"]
    assert verdict_text(verdict) in said["markdown"]
    assert WORDS[verdict] in said["latex"]
    assert verdict.value in said["csv"] and verdict.value in said["json"]


def test_every_comparison_appears_once_with_its_baseline() -> None:
    analysis = sample.analysis()
    groups = verdict_table(sample.study(), analysis)
    entries = [e for g in groups for line in g.lines for e in line.entries.values()]
    assert sorted(e.number for e in entries) == list(range(len(analysis.cells)))
    assert [g.baseline.arm for g in groups] == ["native/one", "native-tcp/one"]
    for g in groups:
        assert all(e.cell.baseline == g.baseline.arm for line in g.lines for e in line.entries.values())
        assert all(line.baseline for line in g.lines)


def test_factors_begin_at_twice_the_time() -> None:
    cell = sample.analysis().cells[0]
    assert effect(replace(cell, overhead=0.99, low=0.97, high=1.01))[0].endswith("%")
    assert effect(replace(cell, overhead=2.9, low=2.4, high=3.4)) == ("×3.9", "[3.4 … 4.4]")


def test_an_open_end_is_said_in_every_form() -> None:
    cell = replace(one_cell(Verdict.NONE), low=-1.0, high=0.2, smallest_material=math.inf)
    assert not bounded(cell)
    said = forms(replace(sample.analysis(), cells=(cell,)))
    assert all("−∞" in said[form] for form in ("terminal", "markdown"))
    assert r"$-$$\infty$" in said["latex"]
    assert '"low": null' in said["json"]
    assert next(csv.DictReader(io.StringIO(said["csv"])))["low"] == "-inf"


@pytest.mark.parametrize("low", [-math.inf, -1.0])
def test_tables_leave_out_what_has_no_interval_and_say_how_much_and_why(low: float) -> None:
    known = sample.analysis().cells[1]
    open_cell = replace(one_cell(Verdict.NONE), low=low, high=math.inf, reason="2 of at least 8 rounds")
    said = forms(replace(sample.analysis(), cells=(open_cell, known)))
    for form in ("terminal", "markdown", "latex"):
        assert "Left out: 1 figure (2 of at least 8 rounds)" in said[form]
        assert metric_label(known) in said[form] and metric_label(open_cell) not in said[form]
        assert "no interval" not in said[form] and "∞" not in said[form]
    assert "Left out" not in forms(sample.analysis())["terminal"]
    assert '"low": null' in said["json"] and '"high": null' in said["json"]
    row = next(csv.DictReader(io.StringIO(said["csv"])))
    assert (row["low"], row["high"]) == ("-inf", "inf")


def test_json_refuses_what_has_no_form() -> None:
    assert to_json({"a": (1, math.nan, Verdict.SLOWER)}) == {"a": [1, None, "material: slower"]}
    with pytest.raises(TypeError, match="object has no JSON form"):
        to_json(object())


def test_json_cells_carry_what_scripts_rely_on() -> None:
    form = json_form(sample.study(), sample.analysis(), results_dir="results/x")
    assert form["results_dir"] == "results/x"
    cells = form["cells"]
    assert isinstance(cells, list) and len(cells) == len(sample.analysis().cells)
    named = (
        "environment placement attachment baseline workload metric unit n overhead low high margin verdict"
    )
    for cell in cells:
        assert isinstance(cell, dict) and set(named.split()) <= set(cell)


def test_csv_is_data_and_starts_no_formula() -> None:
    cell = replace(one_cell(Verdict.NONE), workload='=HYPERLINK("x")', metric="a,b\n", reason="@x")
    rows = list(csv.DictReader(io.StringIO(csv_text(replace(sample.analysis(), cells=(cell,))))))
    assert rows[0]["workload"] == '\'=HYPERLINK("x")' and rows[0]["metric"] == "a,b"
    assert float(rows[0]["overhead"]) == cell.overhead
    assert [r["noise_floor"] for r in rows].count("true") == len(sample.METRICS)


def summary(study: Study, analysis: Analysis) -> str:
    """The first screen of a terminal, as one line without the gaps of its columns."""
    text = summary_text(study, analysis, machine="m", when="w", results_dir="r", report=None, width=100)
    return " ".join(text.plain.split())


def test_every_form_has_the_sentences_of_the_terminal() -> None:
    study, analysis = sample.study(), sample.analysis()
    native, one, two = answer_sentences(study, analysis)
    assert native.startswith("native-tcp is slower: pingpong latency ×44.1; CG.S ×3.19; ")
    assert one.startswith("container with 1 container is faster: pingpong bandwidth −8.1 %; ")
    shown = summary(study, analysis)
    for sentence in (native, one, two):
        assert sentence.partition(": ")[2].partition(";")[0] in shown
    form = json_form(study, analysis, results_dir="r")["answer"]
    assert isinstance(form, list)
    assert [(a["arm"], a["word"]) for a in form if isinstance(a, dict)] == [
        ("native-tcp/one", "slower"),
        ("container/one", "faster"),
        ("container/two", "slower"),
    ]
    assert [a["sentence"] for a in form if isinstance(a, dict)] == [native, one, two]
    assert all(f"- {sentence}\n" in markdown_text(study, analysis) for sentence in (native, one))
    assert all(f"% {sentence}\n" in latex_text(study, analysis) for sentence in (native, one))


def test_every_form_says_that_nothing_could_be_compared() -> None:
    study, nothing = sample.study(), replace(sample.analysis(), cells=())
    assert answer_sentences(study, nothing) == (NOTHING,)
    assert json_form(study, nothing, results_dir="r")["answer"] == []
    assert all(NOTHING in f(study, nothing) for f in (summary, markdown_text, latex_text))


def test_the_question_is_made_where_there_is_none() -> None:
    analysis = sample.analysis()
    assert (
        question_text(sample.study(question=""), analysis) == "What does container cost compared with native?"
    )
    assert question_text(sample.study(), replace(analysis, question="Why?")) == "Why?"


def test_noise_floor_is_the_widest_interval_of_its_group_without_outliers() -> None:
    floor = sample.noise_floor()
    found = {f.group: f for f in floors(sample.study(), floor)}
    assert list(found) == ["compute", "memory", "MPI", "start"]
    compute = [c for c in floor.cells if c.workload in ("ep.S", "cg.S")]
    widths = [(c.high - c.low) / 2 for c in compute]
    assert found["compute"].half_width == max(widths) and not found["compute"].apart
    wide = [replace(c, low=-0.6, high=5.0) if c.metric == "latency" else c for c in floor.cells]
    mpi = {f.group: f for f in floors(sample.study(), replace(floor, cells=tuple(wide)))}["MPI"]
    assert mpi.text == f"{found['MPI'].text.replace('0.8', '0.6')} (1 of 2 wider: pingpong.latency ±280.0 %)"
    early = floors(sample.study(), sample.noise_floor(5))
    assert all(f.text == f"{f.group} not known yet" for f in early)


def test_a_subject_declares_its_group_in_the_noise_floor() -> None:
    study, noise = sample.study(), sample.noise_floor()
    starts = SubjectFacts(name="ready", metrics=("start",), floor_group="instances")
    event = next(w for w in study.workloads if isinstance(w, EventSubject))
    others = tuple(w for w in study.workloads if w is not event)
    grouped = replace(study, workloads=(replace(event, facts=starts), *others))
    assert [f.group for f in floors(grouped, noise)] == ["compute", "memory", "MPI", "instances"]


def test_an_untrusted_machine_is_said_before_the_table() -> None:
    noise = replace(sample.noise_floor(), trusted=False, proven=False, reason="steal 12 %")
    analysis = replace(sample.analysis(), noise_floor=noise)
    text = terminal_text(sample.study(), analysis, results_dir="r", report=None, width=100).plain
    assert text.index("not trustworthy: steal 12 %") < text.index("container, 1 container")


def test_one_statement_of_trust_is_in_every_form() -> None:
    study, sound = sample.study(), sample.noise_floor()
    noise = {
        Grade.LOW: sound,
        Grade.HIGH: replace(sound, proven=False, cause="the hypervisor took CPU away (steal)"),
        Grade.NOT_TRUSTWORTHY: replace(sound, trusted=False, proven=False, reason="native differs"),
        Grade.UNKNOWN: NoiseFloor(cells=(), trusted=True, proven=False, reason=""),
    }
    for grade, floor in noise.items():
        analysis = replace(sample.analysis(), noise_floor=floor)
        trust = trust_in(study, floor)
        assert trust.grade is grade and trust.sentence.startswith(f"{grade}: ")
        form = json_form(study, analysis, results_dir="r")["noise_floor"]
        assert isinstance(form, dict)
        assert (form["grade"], form["sentence"]) == (grade.value, trust.sentence)
        assert set(form) == {"grade", "sentence", "cause", "groups", "cells"}
        assert trust.sentence in terminal_text(study, analysis, results_dir="r", report=None, width=500).plain
        assert trust.sentence in markdown_text(study, analysis).replace("\\", "")
        assert trust.sentence in summary(study, analysis)
        assert trust.sentence in latex_text(study, analysis)
    assert "steal" in trust_in(study, noise[Grade.HIGH]).sentence
    assert trust_in(study, sample.noise_floor(5)).sentence.startswith("not known yet")


def test_the_metric_that_makes_a_run_noisy_is_named() -> None:
    study = sample.study()
    noise = sample.noise_floor()
    one, *others = noise.cells
    near = [replace(c, low=-0.005, high=0.005, verdict=Verdict.EQUIVALENT) for c in (one, *others)]
    wide = replace(one, metric="wide", low=-0.11, high=0.11, verdict=Verdict.NONE)
    found = trust_in(study, replace(noise, cells=(*near, wide), trusted=True, proven=False))
    assert found.grade is Grade.HIGH
    assert "wide ±11.0 %" in found.sentence


def test_a_narrow_difference_away_from_zero_is_named_by_its_far_end() -> None:
    """±1.8 % alone would not say why noise is high at a margin of 3 %."""
    noise = sample.noise_floor()
    one, *others = noise.cells
    near = [replace(c, low=-0.005, high=0.005, verdict=Verdict.EQUIVALENT) for c in others]
    away = replace(one, workload="ring", metric="wall", low=-0.004, high=0.032, verdict=Verdict.NONE)
    found = trust_in(sample.study(), replace(noise, cells=(*near, away), trusted=True, proven=False))
    assert "native may differ from itself by up to 3.2 % (ring.wall)" in found.sentence


def of_a_program(**verdicts: Verdict) -> NoiseFloor:
    """The A/A cells of a program: wall time ±0.5 %, CPU times and memory ±14.3 % and narrower."""
    one = sample.noise_floor().cells[0]
    widths = {"wall": 0.005, "user": 0.143, "system": 0.12, "max_rss": 0.001, "read": 0.004}
    cells = [
        replace(
            one,
            workload="program",
            metric=m,
            low=-w,
            high=w,
            verdict=verdicts.get(m, Verdict.EQUIVALENT if w < one.margin else Verdict.NONE),
        )
        for m, w in widths.items()
    ]
    return noise_floor(sample.study(), cells, {})


def test_secondary_figures_grade_no_run() -> None:
    """Wall time of a program decides; noisy CPU times are named, and make the run no worse."""
    study = sample.study()
    found = trust_in(study, of_a_program())
    assert found.sentence == (
        "low: native differs from itself by less than 3 %: programs ±0.5 %; "
        "wider but secondary: program.user ±14.3 % and 1 more"
    )
    (floor,) = floors(study, of_a_program())
    assert floor.text == "programs ±0.5 % (2 of 5 wider: program.user ±14.3 %)"
    differs = trust_in(study, of_a_program(system=Verdict.SLOWER))
    assert differs.grade is Grade.LOW
    assert "do not use these secondary figures, in which native differs from itself: program.system" in (
        differs.sentence
    )


def test_figures_that_decide_grade_a_run() -> None:
    study = sample.study()
    assert trust_in(study, of_a_program(wall=Verdict.NONE)).grade is Grade.HIGH
    assert trust_in(study, of_a_program(wall=Verdict.SLOWER)).grade is Grade.NOT_TRUSTWORTHY
    named = replace(study, design=replace(study.design, primary=("program.user",)))
    cells = of_a_program().cells
    assert trust_in(named, noise_floor(named, cells, {})).grade is Grade.HIGH
    usage = [c for c in cells if c.metric != "wall"]
    assert trust_in(study, noise_floor(study, usage, {})).grade is Grade.HIGH, "nothing else could decide"


def test_events_beside_kernels_grade_no_run() -> None:
    study, noise = sample.study(), sample.noise_floor()
    noisy = [
        replace(c, low=-0.07, high=0.07, verdict=Verdict.NONE) if c.workload == "start" else c
        for c in noise.cells
    ]
    found = trust_in(study, noise_floor(study, noisy, {}))
    assert found.grade is Grade.LOW and "; wider but secondary: start ±7.0 %" in found.sentence
    alone = [c for c in noisy if c.workload == "start"]
    assert trust_in(study, noise_floor(study, alone, {})).grade is Grade.HIGH


def test_next_step_names_the_command_to_type() -> None:
    (step,) = next_steps(sample.analysis(), "results/x")
    assert step.startswith("? 1 figure is undecided and needs about 20 s more:  ")
    assert step.endswith("nearmetal resume results/x")
    unknown = replace(one_cell(Verdict.NONE), seconds_needed=None)
    (step,) = next_steps(replace(sample.analysis(), cells=(unknown,)), "results/x")
    assert step == "? 1 figure is undecided:  nearmetal resume results/x"
    assert next_steps(replace(sample.analysis(), cells=(one_cell(Verdict.SLOWER),)), "x") == ()


def test_a_cause_is_named_only_where_there_is_something_to_explain() -> None:
    material = next(c for c in sample.analysis().cells if c.attribution)
    assert cause_text(material) == "MPI without shared memory"
    assert cause_text(replace(material, verdict=Verdict.EQUIVALENT)) == ""
    far = replace(material, verdict=Verdict.NONE, blocks_needed=1148, seconds_needed=6840.0)
    assert cause_text(far) == "about 1.9 h more; quieten the machine first"
    assert cause_text(replace(far, blocks_needed=3, seconds_needed=20.0)) == "about 20 s more"


@pytest.mark.parametrize("width", [40, 60, 79, 80, 100, 132, 250])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    analysis = sample.analysis()
    text = terminal_text(sample.study(), analysis, results_dir="r", report=None, width=width)
    longest = max(text.plain.splitlines(), key=len)
    # Below 60 columns a verdict line may stand out; it is never cut.
    assert len(longest) <= max(width, 60), longest
    assert text.plain.count("n 39") == len(analysis.cells)


@pytest.mark.parametrize(
    ("cpus", "limits", "line"),
    [
        ({"a/1x1": {"omp": 2}, "b/1x1": {"omp": 2}}, "", "2 cores · 2 CPUs for each environment"),
        (
            {"a/1x1": {"omp": 2}, "b/1x1": {"omp": 2}},
            "0.5 CPUs",
            "2 cores · 2 CPUs for each environment, limited to 0.5 CPUs",
        ),
        ({"a/1x1": {"cg": 1, "omp": 2}, "b/1x1": {}}, "", "2 cores · 1 CPU or 2 CPUs for each environment"),
        ({"a/1x1": {"omp": 2}, "b/1x2": {"omp": 1}}, "", "2 cores · a/1x1 2 CPUs, b/1x2 1 CPU"),
        ({}, "", "2 cores"),
        ({"a": ["2"], "b": {"omp": "2"}}, "", "2 cores"),
    ],
)
def test_the_line_about_the_machine_says_how_many_cpus_each_environment_had(
    cpus: dict[str, Any], limits: str, line: str
) -> None:
    description = {"cpu": {"usable": [0, 1]}, "cpus": cpus, "caller_limits": {"words": limits}}
    assert machine_line(description) == line


def test_plain_text_holds_no_terminal_codes() -> None:
    text = terminal_text(sample.study(), sample.analysis(), results_dir="r", report=None, width=80)
    assert "\x1b" not in text.plain
    assert text.spans, "a terminal gets colour too"


def test_a_hostile_name_reaches_no_terminal() -> None:
    cell = replace(one_cell(Verdict.NONE), workload="\x1b[2Jevil", unit="\x07", reason="\x07\u202eliar")
    for name, said in forms(replace(sample.analysis(), cells=(cell,))).items():
        assert "\x1b" not in said and "\x07" not in said, name
        assert name == "json" or "\u202e" not in said, name


def test_failures_are_listed_by_reason_below_the_table() -> None:
    failed = [
        Unused(what=f"{arm}/one: w.m", reason="no number\x1b[31m", count=2, failed=True) for arm in "ab"
    ]
    more = [Unused(what=f"a/one: w.{n}", reason=f"reason {n}", count=1, failed=True) for n in range(6)]
    rehearsed = Unused(what="trials of block 0", reason="rehearsal", count=3)
    analysis = replace(sample.analysis(), unused=(*failed, rehearsed, *more))
    text = terminal_text(sample.study(), analysis, results_dir="r", report=None, width=100).plain
    assert "Failed: a/one: w.m (2 ×), b/one: w.m (2 ×): no number" in text and "\x1b" not in text
    assert "reason 3" in text and "reason 4" not in text and "2 further reasons in the report" in text
    assert "Logs: r/logs" in text and "rehearsal" not in text


def test_every_verdict_is_shown_with_the_number_of_failures() -> None:
    cell = sample.analysis().cells[0]
    some = replace(cell, failed=3, failed_blocks=(41, 43), baseline_failed_blocks=(43, 44))
    words = "fails in 2 of 42 rounds; its baseline fails in 2 of 42 rounds"
    assert failure_text(cell) == "" and failure_text(some) == words
    for verdict in (Verdict.SLOWER, Verdict.EQUIVALENT, Verdict.INCONSISTENT):
        assert cause_text(replace(some, verdict=verdict)).startswith(words)
    undecided = replace(some, verdict=Verdict.NONE, reason=f"{words}; why not", seconds_needed=None)
    assert cause_text(undecided) == f"{words}; why not"
    assert cause_text(replace(undecided, seconds_needed=200.0)) == f"{words}; about 3 min more"


def test_an_interval_that_is_infinite_as_a_whole_says_fails() -> None:
    """Where most trials failed, both of its ends are."""
    cell = sample.analysis().cells[0]
    lost = tuple(range(40, 140))
    none = replace(
        cell, overhead=math.inf, low=math.inf, high=math.inf, failed=100, failed_blocks=lost, n=139
    )
    assert effect(none) == ("fails", "[100 of 139]")
    slow = replace(none, overhead=-1.0, low=-1.0, high=-1.0, failed_blocks=(), baseline_failed_blocks=lost)
    assert effect(slow) == ("fails", "[100 of 139]")
    said = forms(replace(sample.analysis(), cells=(none,)))
    assert all("fails" in said[form] for form in ("terminal", "markdown"))


def test_placements_with_equal_instances_are_named_by_their_tasks() -> None:
    study = sample.study()
    (box,) = (e for e in study.environments if e.name == "container")
    shapes = {"1x1": (1, 1), "1x2": (1, 2), "2x1": (2, 1)}
    places = tuple(Placement(name=n, instances=i, tasks=t) for n, (i, t) in shapes.items())

    def told(*names: str) -> list[str]:
        own = replace(box, placements=names)
        asked = replace(study, environments=(own,), placements=tuple(p for p in places if p.name in names))
        return [_where(asked, f"container/{name}") for name in names]

    assert told("1x2") == [""]
    assert told("1x2", "2x1") == ["1 container", "2 containers"]
    assert told("1x1", "1x2") == ["1 container × 1 task", "1 container × 2 tasks"]
