"""The page: one file, in order, escaped, with a policy that lets nothing out."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from functools import cache
from pathlib import Path
from threading import Event

import pytest
from tests.golden import sample_analysis as sample
from tests.page import Page
from tests.unit.planted_trouble import CONNECTION, TROUBLE
from tests.unit.test_report_summary import program

from nearmetal.analysis import analyse
from nearmetal.errors import RecordsError
from nearmetal.model.change import replace
from nearmetal.model.record import JsonValue
from nearmetal.model.result import Analysis, Unused, Verdict
from nearmetal.model.scope import Scope
from nearmetal.model.study import Study
from nearmetal.model.workloads.profile import CallProfile, PeerProfile, RankProfile
from nearmetal.plan import make_plan
from nearmetal.report.charts.cells import floor
from nearmetal.report.charts.chart import Chart
from nearmetal.report.charts.engine import drawing_thread
from nearmetal.report.forms.markdown import markdown_text
from nearmetal.report.page import document, sections
from nearmetal.report.page.document import Context, Drawings, page_html
from nearmetal.report.page.forest import forest
from nearmetal.report.record_index import RecordIndex
from nearmetal.report.tables.answer import answer
from nearmetal.report.write import write_report
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

EVIL = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m\"'"
PROVENANCE: dict[str, JsonValue] = {
    "cpu": {"model": "EPYC", "cores": 2, "flags": ["avx2", "sse4_2"]},
    "kernel": "6.18",
    "not_here": {"container/three": "no cgroup may be made"},
    "empty": {},
}


def drawn() -> tuple[str, Page]:
    """The page of the sample, and what a browser reads of it."""
    context = Context(
        records=RecordIndex(sample.records()),
        provenance=PROVENANCE,
        differences=[{"fact": "governor", "values": {"native/one": "performance", "container/one": None}}],
        commands=("nearmetal quick --seed 32570",),
    )
    html = page_html(sample.study(), sample.analysis(), context)
    return html, Page(html)


page = cache(drawn)


def few(analysis: Analysis) -> Analysis:
    """The analysis with few figures, whose charts are drawn in little time."""
    return replace(analysis, cells=analysis.cells[:4])


def test_the_sections_stand_in_order() -> None:
    _, p = page()
    named = [
        "verdicts",
        "cells",
        "noise-floor",
        "seen",
        "parity",
        "unused",
        "reproduce",
        "provenance",
        "glossary",
    ]
    assert [a["id"] for a in p.all("details") if a.get("class") == "fold"] == named
    places = [
        p.text.index(s) for s in ("What does a container cost", "pingpong latency ×59.1", "Every figure")
    ]
    assert places == sorted(places)


def test_the_first_screen_needs_no_script() -> None:
    html, _ = page()
    first = html[: html.index('<details class="fold"')]
    assert "<script" not in first
    for arm in ("native-tcp", "container, 1 container", "container, 2 containers"):
        assert f"<dt>{arm}</dt>" in first
    assert first.count("<svg") == 2, "for wide and for narrow screens"
    wide = first[first.index("<svg") : first.index("</svg>")]
    intervals = re.findall(r'<line [^>]*class="interval \w+"', wide)
    compared = [
        c for c in sample.analysis().cells if c.baseline.startswith("native/") and math.isfinite(c.high)
    ]
    assert len(intervals) == len(compared)
    assert 'class="margin"' in wide and "Noise" in first


def labels_of(study: Study, analysis: Analysis) -> list[str]:
    """The headings and the labels of the wide figure, in their order."""
    found = answer(study, analysis)
    assert found is not None
    drawn = forest(found)
    return re.findall(r'class="(?:head|label)">([^<]*)<', drawn[: drawn.index("</svg>")])


@pytest.mark.parametrize("names", [["b", "a"], ["e", "d", "c", "b", "a"]])
def test_environments_are_ranked_in_one_figure_by_metric(names: list[str]) -> None:
    study, analysis = program({"wall": 0.0, "rate": 0.3}, names)
    worst = replace(analysis.cells[0], overhead=0.9, high=0.95)
    assert analysis.cells[0].arm == f"{names[0]}/one"
    ranked = replace(analysis, cells=(worst, *analysis.cells[1:]))
    assert labels_of(study, ranked) == ["wall", *names[1:], names[0], "rate", *names]


def test_the_metrics_of_a_single_environment_are_one_group() -> None:
    assert labels_of(*program({"wall": 0.0, "rate": 0.3}, ["box"])) == ["box", "wall", "rate"]


def profile(rank: int, seconds: float, messages: int) -> RankProfile:
    return RankProfile(
        rank=rank,
        complete=True,
        before=0.0,
        init=seconds / 8,
        compute=seconds,
        communication=seconds / 4,
        finalize=0.0,
        calls={
            "MPI_Send": CallProfile(count=messages, seconds=seconds / 16, bytes=8 * messages),
            "MPI_Wait": CallProfile(count=messages, seconds=seconds / 8, bytes=0),
        },
        peers=(PeerProfile(rank=1 - rank, messages=messages, bytes=8 * messages),),
    )


def test_profiled_workloads_stand_arm_by_arm() -> None:
    """Medians over trials; seconds are means over ranks, messages are those of all ranks."""
    records = [
        replace(r, profile={EVIL: (profile(0, 1.0 + r.block, 1500), profile(1, 3.0 + r.block, 2500))})
        for r in sample.records(blocks=3)
        if r.arm in ("native/one", "container/two")
    ]
    context = Context(records=RecordIndex(records), provenance={}, differences=(), commands=())
    two = [c for c in sample.analysis().cells if c.arm == "container/two" and c.baseline == "native/one"][:2]
    p = Page(page_html(sample.study(), replace(sample.analysis(), cells=tuple(two)), context))
    assert "time-spent" in [a["id"] for a in p.all("details") if "id" in a]
    begin = p.text.index("Where the time went")
    said = p.text[begin : p.text.index("What was really run")]
    assert said.count("500 ms") == 2  # (3 + 5) / 2 / 8, in both arms
    assert said.count("1.0 s (20 %)") == 2 and said.count("4.0 s") == 2
    assert said.count("8,000") == 2 and said.count("4,000") == 2 and said.count("32 kB") == 2
    assert "MPI_Wait" in said and "native" in said and "container" in said
    assert "\u202e" not in said and not p.all("img")


def test_every_cell_is_there_and_linked() -> None:
    _, p = page()
    count = len(sample.analysis().cells)
    cells = [a["id"] for a in p.all("details") if a.get("class") == "cell"]
    links = [a["href"] for a in p.all("a") if a["href"].startswith("#cell-")]
    assert sorted(cells) == sorted({x.removeprefix("#") for x in links})
    assert len(set(cells)) == count == len(cells)
    ids = [a["id"] for _, a in p.elements if "id" in a]
    assert len(ids) == len(set(ids))


def test_page_loads_nothing_from_the_network() -> None:
    html, p = page()
    assert not [a for _, a in p.elements if "src" in a or "srcset" in a or "action" in a]
    assert all(a["href"].startswith("#") for _, a in p.elements if "href" in a)
    assert not re.search(r"@import|url\(", html)
    assert not p.all("link") and not p.all("iframe")


def test_the_policy_allows_only_the_pages_own_script() -> None:
    _, p = page()
    policy = next(a["content"] for a in p.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert "unsafe" not in rules["script-src"] and rules["img-src"] == "data:"
    runnable = [s for s, a in zip(p.scripts, p.all("script"), strict=True) if "type" not in a]
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in runnable}
    assert hashes == set(rules["script-src"].split()) and len(hashes) == 1


def test_every_chart_is_drawn_and_has_a_name() -> None:
    html, p = page()
    kinds = [a.get("class", "") for a in p.all("figure")]
    assert kinds[:2] == ["forest", "chart floor"] and kinds.count("chart ecdf") == 4
    charts = [a for a in p.all("svg") if a.get("fill") == "none"]
    assert len(charts) == sum(kind.startswith("chart ") for kind in kinds) > 2 * len(sample.analysis().cells)
    assert all(a["role"] == "img" and a["aria-label"] for a in charts)
    visible = html[html.index('<figure class="chart floor">') :]
    assert "var(--base)" in visible[: visible.index("</figure>")], "without a script, and in every theme"
    assert "vega" not in html.lower() and "eval(" not in html


def test_a_large_study_draws_its_most_important_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = sample.analysis().cells
    material = [i for i, c in enumerate(cells) if c.verdict in (Verdict.SLOWER, Verdict.FASTER)]
    monkeypatch.setattr(sections, "MOST_DRAWN", len(material))
    _, p = drawn()
    assert p.text.count("Overhead by round") == len(material) < len(cells)
    assert p.text.count("not on the page") == len(cells) - len(material)


def test_verdicts_are_readable_without_colour() -> None:
    html, _ = page()
    chips = re.findall(r'<span class="chip \w+">([^<]*)</span>', html)
    assert set(chips) == {"▲ material", "▼ faster", "= equivalent", "? no verdict yet", "! inconsistent"}


def test_page_shows_machine_transport_and_failures() -> None:
    _, p = page()
    for said in (
        "btl tcp,self; pml ob1 (in 39 of 39 trials)",
        "rank 1: nm-b, CPU 1",
        "governor",
        "container/one: unavailable",
        "container/three",
        "no cgroup may be made",
        "torn by an interruption",
        "nearmetal quick --seed 32570",
        "cpu",
        "avx2, sse4_2",
        "p99",
        "not estimable at n",
        "Half the width of an interval",
        "its slowest round",
    ):
        assert said in p.text, said


def test_hostile_text_stays_text() -> None:
    study = sample.study(name=EVIL, question=EVIL)
    cells = tuple(
        replace(c, arm=EVIL, baseline=EVIL, workload=EVIL, metric=EVIL, reason=EVIL, unit=EVIL)
        for c in sample.analysis().cells[:8]
    )
    analysis = replace(
        sample.analysis(question=EVIL),
        study=EVIL,
        cells=cells,
        unused=(Unused(what=EVIL, reason=EVIL, count=1),),
        disturbance={EVIL: 0.1},
    )
    records = [
        replace(r, arm=EVIL, transport={EVIL: EVIL}, flags=(EVIL,), counters={Scope.parse(EVIL): {EVIL: 1.0}})
        for r in sample.records(2)
    ]
    context = Context(
        records=RecordIndex(records),
        provenance={EVIL: {EVIL: EVIL}},
        differences=[{EVIL: EVIL}],
        commands=[EVIL],
    )
    html = page_html(study, analysis, context)
    p = Page(html)
    assert not p.all("img") and "\u202e" not in html and "\x1b" not in html
    assert not [a for _, a in p.elements if any(k.startswith("on") for k in a)]
    assert len(p.scripts) == 2
    assert "alert(1)" in p.text


def test_an_empty_study_has_a_page_too() -> None:
    nothing = replace(
        sample.analysis(),
        cells=(),
        unused=(),
        noise_floor=replace(sample.noise_floor(), cells=(), proven=False),
    )
    context = Context(records=RecordIndex(()), provenance={}, differences=(), commands=())
    p = Page(page_html(sample.study(), nothing, context))
    for said in ("Nothing could be compared yet", "not known: the baseline", "Everything that ran was used"):
        assert said in p.text, said


def test_an_untrusted_machine_is_said_first() -> None:
    noise = replace(sample.noise_floor(), trusted=False, proven=False, reason="drift")
    context = Context(records=RecordIndex(()), provenance={}, differences=(), commands=())
    p = Page(page_html(sample.study(), replace(few(sample.analysis()), noise_floor=noise), context))
    assert p.text.index("not trustworthy: drift") < p.text.index("Every figure")


def test_the_report_appears_whole(tmp_path: Path) -> None:
    page, *_ = write_report(
        tmp_path / "r",
        sample.study(),
        sample.analysis(),
        sample.records(),
        PROVENANCE,
        commands=["nearmetal quick"],
    )
    names = sorted(p.name for p in (tmp_path / "r").iterdir())
    assert names == ["report.csv", "report.html", "report.md", "report.tex"]
    assert page.read_text().rstrip().endswith("</html>")
    before = page.read_bytes()
    (tmp_path / "r" / "report.md").unlink()
    (tmp_path / "r" / "report.md").mkdir()
    with pytest.raises(RecordsError, match="cannot write"):
        write_report(tmp_path / "r", sample.study(), sample.analysis(), (), {}, commands=[])
    assert page.read_bytes() != before, "each file is replaced by itself"
    assert not [p for p in (tmp_path / "r").iterdir() if p.name.endswith(".tmp")]
    assert page.stat().st_size < 1_000_000


def test_page_shows_the_analysis_of_simulated_records() -> None:
    """What analysis makes of simulated records is what the page says."""
    study = sample.study()
    metrics = [
        SimulatedMetric(workload=m.workload, metric=m.metric, unit=m.unit, better=m.better, value=m.native)
        for m in sample.METRICS
    ]
    plan = make_plan(study, blocks=30)
    records = simulate(
        study, plan, metrics=metrics, overheads={"container/two": {"pingpong.latency": 9.0}}, spread=Spread()
    )
    context = Context(records=RecordIndex(records), provenance={}, differences=(), commands=())
    p = Page(page_html(study, analyse(study, plan, records), context))
    text = " ".join(p.text.split())
    assert re.search(r"container, 2 containers ?slower pingpong latency ×(9\.9|10)", text)
    assert "Noise low: native differs from itself" in text


def test_tcp_trouble_is_shown_where_there_was_any() -> None:
    network = replace(
        TROUBLE,
        retransmitted=35.5,
        rto=0.204,
        waited=4.08,
        extra_seconds=4.4,
        drops={"queueing discipline tbf on port1 of hub": 1234.0},
        shared=True,
    )
    plain = few(sample.analysis())
    first = plain.cells[0]
    lossy = replace(plain, cells=(replace(first, network=network), *plain.cells[1:]))
    records = [
        replace(r, connections=(CONNECTION, replace(CONNECTION, retransmitted=0, local="10.99.0.9:9")))
        if r.arm == first.arm
        else r
        for r in sample.records()
    ]
    context = Context(records=RecordIndex(records), provenance={}, differences=[], commands=[])
    text = Page(page_html(sample.study(), lossy, context)).text
    assert text.count("TCP trouble") == 1
    assert "20 TCP time-outs and 35.5 segments sent again (baseline: 0 and 0)" in text
    assert "At 204 ms (the smallest RTO seen) each, the time-outs waited 4.1 s, of 4.4 s more in all" in text
    assert "Most packets were dropped by queueing discipline tbf on port1 of hub: 1,234 in a trial." in text
    assert "other programs' traffic is in it" in text
    assert "instance.a: 10.99.0.2:1 to 10.99.0.3:2" in text and "10.99.0.9" not in text
    markdown = markdown_text(sample.study(), lossy)
    assert "## TCP trouble" in markdown and "## TCP trouble" not in markdown_text(sample.study(), plain)


def test_charts_that_wait_are_not_drawn_after_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Chart] = []
    monkeypatch.setattr(document, "_drawing", drawn.append)
    chart, busy = floor(sample.analysis().noise_floor), Event()
    assert chart is not None
    drawing_thread().submit(busy.wait)
    try:
        with pytest.raises(KeyboardInterrupt), Drawings() as drawings:
            drawings.figure(chart)
            raise KeyboardInterrupt
    finally:
        busy.set()
    drawing_thread().submit(int).result()
    assert drawn == []
