"""The report as one HTML file that works offline: sections and drawn charts together."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Self

from ... import __version__
from ...model.record import JsonValue
from ...model.result import Analysis
from ...model.study import Study
from ...units import show_clock
from ..charts.chart import PAGE, Chart
from ..charts.curves import curve_figures
from ..charts.drawing import parts_of, svg
from ..charts.engine import drawing_thread
from ..charts.steps import steps_charts
from ..record_index import RecordIndex
from ..sheet import Block, Leaf, Words, html_of
from ..tables.answer import absent_environments, machine_line
from ..tables.cells import question_text, side
from ..tables.events.clients import clients_grids
from ..tables.events.sentences import event_sentences
from ..tables.inside import NOTHING, InsideRecord
from ..tables.instances import instances_blocks, instances_of
from ..tables.swept import event_leaves
from ..text import one_line, plural, tight
from . import first, sections
from . import inside as inside_sections
from .markup import Markup, escape, join, tag


@dataclass(frozen=True, kw_only=True)
class Context:
    """The data of a page, apart from study and analysis.

    provenance: as in provenance.json.
    differences: differences that the parity audit found, one mapping each.
    commands: command lines that repeat the measurement.
    when: the day of the run, as text.
    inside: counters that were read during the run.
    """

    records: RecordIndex
    provenance: Mapping[str, JsonValue]
    differences: Sequence[Mapping[str, JsonValue]]
    commands: Sequence[str]
    when: str = ""
    inside: InsideRecord = NOTHING


class Drawings:
    """Collects the charts and the folded contents of a page until the page is finished.

    A thread draws the charts while the page is made. The page stores folded contents compressed, and page.js
    unpacks them when a reader opens the fold.

    On exit from the context, charts that are not drawn yet are cancelled. After Ctrl-C the program would
    otherwise wait for them before it ends.
    """

    def __init__(self) -> None:
        self._drawn: list[Future[Markup]] = []
        self._parts: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for drawing in self._drawn:
            drawing.cancel()  # has no effect on a chart that is drawn or being drawn

    def figure(self, chart: Chart) -> Markup:
        """Start to draw a chart, and return its figure with title and caption. finished() inserts the
        drawing."""
        place = Markup(_PLACE.format(len(self._drawn)))
        self._drawn.append(drawing_thread().submit(_drawing, chart))
        inner = (tag("h4", chart.title), place, tag("figcaption", tight(chart.caption)))
        return tag("figure", *inner, class_=f"chart {chart.kind}")

    def later(self, content: Markup) -> Markup:
        """Store content, and return the box that page.js fills with it when a reader opens the fold around
        it."""
        self._parts.append(content)
        return tag("div", class_="inside", data_part=str(len(self._parts) - 1))

    def finished(self, body: Markup) -> tuple[Markup, Markup]:
        """Return the body with its charts, and the stored contents as JSON, compressed by zlib, in base64."""
        parts = [self._filled(part) for part in self._parts]
        text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
        # Level 9 takes three times as long, and makes the text only 1 % smaller.
        return self._filled(body), Markup(base64.b64encode(zlib.compress(text.encode(), 6)).decode())

    def _filled(self, text: str) -> Markup:
        return Markup(_PLACED.sub(lambda found: self._drawn[int(found[1])].result(), text))


_PLACE = "<svg data-chart={}></svg>"
_PLACED = re.compile(_PLACE.format(r"(\d+)"))


def _drawing(chart: Chart) -> Markup:
    box, inner = parts_of(svg(chart, PAGE))
    label = f"{chart.title}. {chart.caption}"
    return tag("svg", Markup(inner), viewBox=box, fill="none", role="img", aria_label=label)


def page_html(study: Study, analysis: Analysis, context: Context) -> str:
    """Return the whole page."""
    with Drawings() as drawings:
        return _page(study, analysis, context, drawings)


def _page(study: Study, analysis: Analysis, context: Context, drawings: Drawings) -> str:
    def fold(key: str, title: str, blocks: Sequence[Block]) -> Markup:
        leaf = Leaf(key=key, title=title, blocks=tuple(blocks))
        return html_of(leaf, drawings.figure, fold=True) if blocks else Markup("")

    def title(arm: str) -> str:
        return side(study, arm).title

    records = context.records
    counted = instances_blocks(study, instances_of(study, records))
    numbers = {(c.arm, c.workload, c.metric): i for i, c in enumerate(analysis.cells)}
    body = join(
        first.table(study, analysis, numbers),
        sections.verdicts(study, analysis),
        sections.cells(study, analysis, records, drawings.figure, drawings.later),
        sections.nodes(study, analysis),
        sections.noise_floor(study, analysis, drawings.figure),
        fold("curves", "Curves", curve_figures(analysis.cells)),
        sections.time_spent(study, analysis, records),
        fold("instances", "What the instances counted", counted),
        *(
            html_of(leaf, drawings.figure, fold=True)
            for leaf in event_leaves(study, analysis, records, context.provenance)
        ),
        sections.what_ran(study, analysis, records),
        fold(
            "steps",
            "Steps of events",
            [
                *steps_charts(study, records, title),
                *(Words(text=text) for text in event_sentences(study, records)),
                *clients_grids(study, records),
            ],
        ),
        inside_sections.roofs(analysis),
        inside_sections.counted(context.inside),
        sections.parity(context.differences),
        sections.unused(analysis, context.provenance),
        sections.reproduce(study, analysis, context.commands),
        sections.provenance(context.provenance),
        sections.glossary(analysis),
    )
    return framed(
        study=analysis.study,
        question=question_text(study, analysis),
        head=first.head(
            study,
            analysis,
            machine=machine_line(context.provenance),
            when=context.when,
            absent=absent_environments(context.provenance),
        ),
        body=body,
        footer=f"seed {analysis.seed} · {plural(analysis.blocks, 'round')} · {show_clock(analysis.elapsed)}",
        drawings=drawings,
    )


def framed(
    *,
    study: str,
    question: str,
    head: Markup,
    body: Markup,
    footer: str,
    drawings: Drawings,
) -> str:
    """Return a whole HTML page.

    head: the part of the page below the question.
    body: the sections below the head.
    footer: text at the end of the page.
    drawings: the charts and folded contents of the body.
    """
    script = _asset("page.js")
    drawn, packed = drawings.finished(body)
    return Template(_asset("page.html")).substitute(
        policy=_policy(script),
        version=escape(__version__),
        title=escape(f"{question} · nearmetal"),
        css=_asset("page.css"),
        study=escape(one_line(study)),
        question=escape(question),
        head=head,
        body=drawn,
        footer=escape(f"nearmetal {__version__} · {footer} · this page loads nothing from anywhere"),
        packed=packed,
        script=script,
    )


def _policy(script: str) -> Markup:
    """Return a Content-Security-Policy that forbids the network, eval, and every script but the page's own.

    Styles are inline because the page is one file.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup(
        "default-src 'none'; connect-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"base-uri 'none'; form-action 'none'; script-src 'sha256-{digest}'"
    )


def _asset(name: str) -> str:
    return files("nearmetal.report.page").joinpath(name).read_text(encoding="utf-8")
