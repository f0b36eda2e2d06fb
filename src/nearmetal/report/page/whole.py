"""The report as one HTML file that works offline: sections, the charts' data and the bundle together."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from ... import __version__
from ...model.record import JsonValue
from ...model.result import Analysis
from ...model.study import Study
from ...units import show_clock
from ..charts.parts import PAGE, Chart, config
from ..seen import RecordIndex
from ..sheet import Leaf, html_of
from ..tables.boot import boot_leaf
from ..tables.cells import answer_sentence, question_text
from ..tables.inside import NOTHING, InsideRecord
from ..tables.instances import instances_blocks, instances_of
from ..tables.trust import trust_in
from ..text import one_line, plural, tight
from . import curves, sections
from . import inside as inside_sections
from .markup import Markup, escape, join, json_for_script, tag


@dataclass(frozen=True, kw_only=True)
class Context:
    """The data of a page besides study and analysis.

    provenance: as in provenance.json.
    differences: those that the parity audit found, one mapping each.
    commands: lines that measure the same again.
    inside: what was counted beside the work.
    """

    records: RecordIndex
    provenance: Mapping[str, JsonValue]
    differences: Sequence[Mapping[str, JsonValue]]
    commands: Sequence[str]
    inside: InsideRecord = NOTHING


class Drawings:
    """Collects the charts of a page; a box names its chart by number."""

    def __init__(self) -> None:
        self.specs: list[JsonValue] = []

    def figure(self, chart: Chart) -> Markup:
        """The box that page.js fills, with title and caption."""
        number = len(self.specs)
        self.specs.append({"height": chart.height, **chart.spec})
        box = tag(
            "div",
            tag("div"),
            class_="chart",
            data_chart=str(number),
            role="img",
            aria_label=f"{chart.title}. {chart.caption}",
            style=f"--height: {chart.height + 40}px",
        )
        return tag(
            "figure", tag("h4", chart.title), box, tag("figcaption", tight(chart.caption)), class_=chart.kind
        )


def page_html(study: Study, analysis: Analysis, context: Context, *, bundle: str) -> str:
    """The whole page. bundle: JavaScript that defines window.vegaEmbed (report.bundle)."""
    drawings, records = Drawings(), context.records
    body = join(
        sections.verdicts(study, analysis),
        sections.noise_floor(study, analysis, drawings.figure),
        sections.cells(study, analysis, records, drawings.figure),
        curves.section(analysis.cells, drawings.figure),
        sections.time_spent(study, analysis, records),
        *_instances(study, records, drawings),
        *_boots(study, records, context, drawings),
        sections.what_ran(study, analysis, records),
        inside_sections.roofs(analysis),
        inside_sections.counted(context.inside),
        sections.parity(context.differences),
        sections.unused(analysis, context.provenance),
        sections.reproduce(study, analysis, context.commands),
        sections.provenance(context.provenance),
        sections.glossary(analysis),
    )
    found = trust_in(study, analysis.noise_floor)
    said = f"Trust in this run: {found.sentence}."
    shown = tag("p", said, class_="alert" if found.alert else "note", role="note")
    return framed(
        study=analysis.study,
        question=question_text(study, analysis),
        answer=answer_sentence(study, analysis),
        trust=shown,
        body=body,
        footer=f"seed {analysis.seed:x} · {plural(analysis.blocks, 'block')} · "
        f"{show_clock(analysis.elapsed)}",
        drawings=drawings,
        bundle=bundle,
    )


def _instances(study: Study, records: RecordIndex, drawings: Drawings) -> list[Markup]:
    """What instances counted themselves; nothing where nothing was asked."""
    blocks = instances_blocks(study, instances_of(study, records))
    leaf = Leaf(key="instances", title="What the instances counted", blocks=tuple(blocks))
    return [html_of(leaf, drawings.figure)] if blocks else []


def _boots(study: Study, records: RecordIndex, context: Context, drawings: Drawings) -> list[Markup]:
    """How guests booted; nothing where none did."""
    leaf = boot_leaf(study, records, context.provenance)
    return [] if leaf is None else [html_of(leaf, drawings.figure)]


def framed(
    *,
    study: str,
    question: str,
    answer: str,
    trust: Markup,
    body: Markup,
    footer: str,
    drawings: Drawings,
    bundle: str,
) -> str:
    """A page around its sections; the first of them has the id 'verdicts'."""
    script = _asset("page.js")
    return Template(_asset("page.html")).substitute(
        policy=_policy(bundle, script),
        version=escape(__version__),
        title=escape(f"{question} · nearmetal"),
        css=_asset("page.css"),
        study=escape(one_line(study)),
        question=escape(question),
        answer=escape(tight(answer)),
        trust=trust,
        body=body,
        footer=escape(f"nearmetal {__version__} · {footer} · this page loads nothing from anywhere"),
        charts=json_for_script({"config": config(PAGE), "specs": drawings.specs}),
        bundle=bundle,
        script=script,
    )


def _policy(*scripts: str) -> Markup:
    """A Content-Security-Policy that forbids the network, eval, and every script but the page's own two.

    Vega's own expressions are interpreted (`ast`), so that eval is not needed. Styles are inline because the
    page is one file and Vega positions its charts by style attributes.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts
    )
    return Markup(
        "default-src 'none'; connect-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"base-uri 'none'; form-action 'none'; script-src {hashes}"
    )


def _asset(name: str) -> str:
    return files("nearmetal.report.page").joinpath(name).read_text(encoding="utf-8")
