"""The page in a real browser, offline: the answer without script, details that open, phone, dark, print."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright
from tests.golden import sample_analysis as sample
from tests.patience import PATIENCE

from nearmetal.analysis import analyse
from nearmetal.api.studies import study_from
from nearmetal.model.record import JsonValue
from nearmetal.model.study import Better, KernelWorkload
from nearmetal.plan import make_plan
from nearmetal.report.write import write_report
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

pytestmark = [pytest.mark.no_run, pytest.mark.beside]

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# WCAG 2.1: contrast of every visible text with what lies behind it, worst first.
CONTRAST = """
() => {
  const parse = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3])).concat(1);
  const luminance = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest("script,style")) continue;
    if (element.getClientRects().length === 0) continue;
    const style = getComputedStyle(element);
    const back = behind(element);
    const paint = element.closest("svg") ? style.fill : style.color;
    if (paint === "none") continue;
    const [a, b] = [luminance(over(parse(paint), back)), luminance(back)].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sample report, as a file: address."""
    governors: dict[str, JsonValue] = {"native/one": "performance", "container/one": "powersave"}
    page, *_ = write_report(
        tmp_path_factory.mktemp("report"),
        sample.study(),
        sample.analysis(),
        sample.records(),
        {
            "cpu": {"model": "EPYC", "flags": ["avx2"] * 60},
            "kernel": "6.18",
            "parity": {"differences": [{"fact": "governor", "values": governors}]},
        },
        commands=[
            "nearmetal quick --seed 32570 --a-rather-long-option /and/a/long/path/of/a/results/directory"
        ],
    )
    return page.as_uri()


@pytest.fixture(scope="module")
def quick_report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of the built-in study quick, of simulated records: address. It has every verdict, and its
    sentences are as long as real ones."""
    study = study_from("quick", 1)
    stream = ("copy", "scale", "add", "triad")
    metrics = [SimulatedMetric(workload="start", metric="start", unit="s", better=Better.LOWER, value=5e-4)]
    for w in study.workloads:
        if isinstance(w, KernelWorkload):
            of_kernel = {"stream": stream, "pingpong": (w.name,)}.get(w.kernel, ("rate",))
            for m in w.metrics or of_kernel:
                unit, better = ("s", Better.LOWER) if m == "latency" else ("op/s", Better.HIGHER)
                metrics.append(
                    SimulatedMetric(workload=w.name, metric=m, unit=unit, better=better, value=1e-6)
                )
    messages = {"latency.latency": 29.0, "bandwidth.bandwidth": 3.2, "is.rate": 1.1, "cg.rate": 0.93}
    container = {"start.start": 9.7, "stream-2m.triad": 0.03, "stream-2m-4k.triad": 0.028, "cg.rate": 0.031}
    plan = make_plan(study, blocks=27)
    records = simulate(
        study,
        plan,
        metrics=metrics,
        overheads={
            "native-tcp/1x2": messages,
            "namespaces/1x2": container,
            "namespaces/2x1": {**messages, "start.start": 16.0, "stream-2m.add": 0.03},
        },
        spread=Spread(instance=0.012),
    )
    provenance: dict[str, JsonValue] = {
        "cpu": {"model": "AMD EPYC 7713 64-Core Processor", "usable": [0, 1]},
        "memory": {"bytes": 24 << 30},
        "kernel": {"release": "6.18.44"},
        "versions": {"mpi": "Open MPI 4.1.4"},
    }
    page, *_ = write_report(
        tmp_path_factory.mktemp("quick"),
        study,
        analyse(study, plan, records),
        records,
        provenance,
        commands=["nearmetal quick --seed 1"],
        when="25 Nov 2026",
    )
    return page.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    program = shutil.which("chromium")
    assert program, "chromium is not installed: apt install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=list(ARGUMENTS), timeout=1000 * PATIENCE
        )
        yield started
        started.close()


@contextmanager
def opened(
    browser: Browser, address: str, *, width: int = 1280, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Page]:
    """The page in an offline context; leaving it checks that nothing was asked for and nothing went wrong."""
    complaints: list[str] = []
    asked: list[str] = []
    context = browser.new_context(
        offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    page.on("console", lambda m: complaints.append(f"{m.type}: {m.text}"))
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.on("request", lambda r: asked.append(r.url))
    page.goto(address)
    try:
        yield page
        assert complaints == []
        assert [a for a in asked if not a.startswith(("file:", "data:"))] == []
    finally:
        context.close()


def not_accessible(page: Page) -> list[tuple[str, list[str]]]:
    """Rules of WCAG 2.2, levels A and AA, that the page breaks, with the elements, by axe-core."""
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    found = Axe().run(page, options={"runOnly": {"type": "tag", "values": tags}}).response
    assert found["passes"], "no rule was applied"
    return [(v["id"], [str(n["target"]) for n in v["nodes"]]) for v in found["violations"]]


def open_all(page: Page) -> None:
    """Open every cell and wait until all are filled."""
    page.click("#cells > summary")
    page.click("#open-all")
    page.wait_for_function("() => document.querySelectorAll('details.cell[open]').length > 0")
    filled(page)


def filled(page: Page) -> None:
    """Wait until the opened cells have their insides."""
    page.wait_for_function("() => document.querySelectorAll('details.cell[open] > [data-part]').length === 0")


def open_cell(page: Page, number: int) -> None:
    """Open the cell of this place on the page, and the section that holds it."""
    if page.locator("#cells").get_attribute("open") is None:
        page.click("#cells > summary")
    page.locator("details.cell").nth(number).locator(":scope > summary").click()
    filled(page)


def drawn(page: Page, selector: str) -> int:
    """Count the visible charts below selector. Each holds marks and fits its figure."""
    filled(page)
    charts = page.locator(f"{selector} figure.chart > svg:has(path, line):visible")
    for chart in charts.all():
        box, around = chart.bounding_box(), chart.locator("..").bounding_box()
        assert box and around and 100 < box["width"] <= around["width"] + 1 and box["height"] > 40
    return charts.count()


@pytest.mark.parametrize("address", ["report", "quick_report"])
def test_the_answer_is_on_the_first_screen_without_script(
    browser: Browser, address: str, request: pytest.FixtureRequest
) -> None:
    """Question, machine and date, sentences, and the whole figure with its axis."""
    for width, height in ((1280, 800), (390, 844)):
        context = browser.new_context(
            java_script_enabled=False, offline=True, viewport={"width": width, "height": height}
        )
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        page.goto(request.getfixturevalue(address))
        assert page.title().startswith("What does a container cost ")
        shown = page.locator(f"figure.forest svg.{'wide' if width > 700 else 'narrow'}")
        tops = [page.locator(s).first.bounding_box() for s in ("h1", ".meta", "dl.answers")]
        boxes = [*tops, shown.bounding_box()]
        heights = [box["y"] for box in boxes if box]
        assert len(heights) == 4 and heights == sorted(heights)
        assert boxes[3] and boxes[3]["y"] + boxes[3]["height"] <= height, "the figure is whole"
        ticks = [tick.bounding_box() for tick in shown.locator("text.tick").all()]
        assert ticks and all(tick and tick["y"] + tick["height"] <= height for tick in ticks)
        if address == "quick_report":
            dated = "2 cores, 24 GiB, Linux 6.18, Open MPI 4.1.4 · 25 Nov 2026"
            assert dated in page.locator(".meta").first.inner_text().replace("\u00a0", " ")
        assert page.locator("details.fold[open]").count() == 0
        context.close()


def test_the_page_is_small_and_short(browser: Browser, report: str) -> None:
    assert Path(report.removeprefix("file://")).stat().st_size < 1_000_000
    with opened(browser, report, width=390) as page:
        assert page.evaluate("document.documentElement.scrollHeight") < 6000
        assert drawn(page, "main") == 0, "all charts are in closed sections"
        page.click("#noise-floor > summary")
        assert drawn(page, "#noise-floor") == 1


def test_a_cell_opens_by_keyboard_and_draws_its_charts(browser: Browser, report: str) -> None:
    with opened(browser, report) as page:
        cell = page.locator("details.cell").nth(5)
        page.click("#cells > summary")
        for _ in range(60):
            page.keyboard.press("Tab")
            if cell.locator("summary").evaluate("e => e === document.activeElement"):
                break
        else:
            pytest.fail("the fifth cell is not reached by Tab")
        page.keyboard.press("Enter")
        assert cell.get_attribute("open") is not None
        name = f"#{cell.get_attribute('id')}"
        # rounds with interval, absolute values, distribution of start times
        assert drawn(page, name) == 3
        tip = page.locator(f"{name} figure.points title").first
        assert (tip.text_content() or "").startswith("round 1: ")
        text = page.locator(f"{name} figure.ecdf").inner_text()
        assert "n 39" in text.replace("\u00a0", " ")
        page.keyboard.press("Enter")
        assert cell.get_attribute("open") is None


def test_a_link_in_the_table_opens_its_cell(browser: Browser, report: str) -> None:
    with opened(browser, report) as page:
        page.click("#verdicts > summary")
        page.locator("table.verdicts a[href='#cell-3']").click()
        page.wait_for_selector("#cell-3[open]")
        assert page.evaluate("document.activeElement.parentElement.id") == "cell-3"
        assert drawn(page, "#cell-3") == 3
    with opened(browser, f"{report}#cell-7") as page:
        page.wait_for_selector("#cell-7[open]")


def test_every_chart_is_there(browser: Browser, report: str) -> None:
    with opened(browser, report) as page:
        open_all(page)
        count = page.locator("#cells figure").count()
        assert count > 2 * len(sample.analysis().cells)
        assert drawn(page, "#cells") == count
        page.click("#open-all")
        assert page.locator("details.cell[open]").count() == 0


def test_a_section_shows_its_chart_without_script(browser: Browser, report: str) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    page.goto(report)
    page.click("#noise-floor > summary")
    chart = page.locator("#noise-floor figure.chart > svg")
    assert chart.is_visible() and chart.locator("text").count() > 10
    context.close()


def colour(page: Page, selector: str, name: str) -> str:
    return str(page.locator(selector).first.evaluate(f"e => getComputedStyle(e).{name}"))


def test_colours_of_a_drawn_chart_follow_the_theme(browser: Browser, report: str) -> None:
    seen = set()
    for scheme, media in (("light", "screen"), ("dark", "screen"), ("light", "print")):
        with opened(browser, report, scheme=scheme) as page:  # type: ignore[arg-type]
            page.click("#noise-floor > summary")
            page.emulate_media(media=media)  # type: ignore[arg-type]
            line, text = "#noise-floor line[stroke='var(--base)']", "#noise-floor figure text"
            seen.add((colour(page, line, "stroke"), colour(page, text, "fill")))
    assert len(seen) == 3 and not any("0, 0, 0)" in line for line, _ in seen)


@pytest.mark.parametrize("width", [320, 390, 760, 1280])
def test_no_element_overflows_the_page(browser: Browser, report: str, width: int) -> None:
    with opened(browser, report, width=width) as page:
        open_cell(page, 17)
        drawn(page, "details.cell[open]")
        page.evaluate(
            "document.querySelectorAll('details.fold, details.plain').forEach(d => { d.open = true; })"
        )
        wide = page.evaluate(
            """() => [...document.querySelectorAll("main *, header *, footer *")].filter((e) =>
                 !e.closest(".scroll, pre, svg, .skip") && e.getBoundingClientRect().right > innerWidth + 0.5
               ).map((e) => e.tagName + "." + e.className)"""
        )
        assert wide == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width < 700:
            inside = "[...document.querySelectorAll('table.cards')].every(t => t.scrollWidth <= innerWidth)"
            assert page.evaluate(inside), "on a phone tables are cards and do not scroll sideways"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible(browser: Browser, report: str, scheme: Literal["light", "dark"]) -> None:
    with opened(browser, report, scheme=scheme) as page:
        for number in (3, 8, 17):
            open_cell(page, number)
        drawn(page, "details.cell[open]")
        found = page.evaluate(CONTRAST)
        assert len(found) > 300
        assert [f for f in found if f[0] < 4.5] == []
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (int(back[4:].split(",")[0]) < 60) is (scheme == "dark")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_meets_wcag_aa(
    browser: Browser, report: str, scheme: Literal["light", "dark"], width: int
) -> None:
    with opened(browser, report, width=width, scheme=scheme) as page:
        page.evaluate(
            "document.querySelectorAll('details.fold, details.plain').forEach(d => { d.open = true; })"
        )
        open_cell(page, 3)
        drawn(page, "details.cell[open]")
        assert not_accessible(page) == []


def test_page_prints_in_light_colours_with_open_cells_only(
    browser: Browser, report: str, tmp_path: Path
) -> None:
    with opened(browser, report, scheme="dark") as page:
        open_cell(page, 3)
        drawn(page, "details.cell[open]")
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.set_viewport_size({"width": 718, "height": 1047})  # A4 within Chromium's margins
        figure = page.locator("figure.forest svg.wide").bounding_box()
        assert figure and figure["y"] + figure["height"] < 1047, "the whole figure is on the first sheet"
        assert page.evaluate("document.documentElement.scrollWidth") <= 718
        assert (
            page.locator("details.cell").nth(0).is_hidden()
            and page.locator("details.cell").nth(3).is_visible()
        )
        assert [f for f in page.evaluate(CONTRAST) if f[0] < 4.5] == []
        assert page.pdf(path=tmp_path / "report.pdf", format="A4").startswith(b"%PDF")
