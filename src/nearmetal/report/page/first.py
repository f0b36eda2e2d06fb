"""The first screen of the page: the answer in sentences, one figure and one table. It needs no script."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.result import Analysis
from ...model.study import Study
from ...units import show_clock
from ..tables.answer import AnswerRow, ArmAnswer, absent_sentences, answer, figures, no_answer
from ..tables.cells import bare_metal_text
from ..tables.emulation import emulation_warnings
from ..tables.nodes import alert_sentences, scope_sentence
from ..tables.trust import trust_in
from ..text import plural, tight
from .forest import forest
from .markup import Markup, cards, column_head, join, row_head, tag
from .sections import CHIP


def head(study: Study, analysis: Analysis, *, machine: str, when: str, absent: Mapping[str, str]) -> Markup:
    """Return the part of the page below the question: machine and date, a sentence for each environment,
    trust, figure.

    machine, when: on which machine and at what time the run was made.
    absent: environments that were not measured, with the reason.
    """
    rounds = f"{plural(analysis.blocks, 'round')} in {show_clock(analysis.elapsed)}"
    bare = bare_metal_text(study)
    lines = " · ".join(part for part in (machine, when, rounds) if part), bare and f"{bare}."
    meta = join(*(tag("p", line, class_="meta") for line in lines if line))
    warnings = [tag("p", text, class_="alert", role="note") for text in emulation_warnings(analysis)]
    found = answer(study, analysis)
    trust = trust_in(study, analysis.noise_floor)
    caption = tag(
        "p",
        tag("b", "Noise "),
        tight(trust.sentence),
        class_="alert" if trust.alert else "noise",
        role="note" if trust.alert else None,
    )
    scope = scope_sentence(analysis)
    of_nodes = [
        *([tag("p", tag("b", "Nodes "), scope, class_="noise")] if scope else []),
        *(tag("p", text, class_="alert", role="note") for text in alert_sentences(study, analysis)),
    ]
    if found is None:
        return join(meta, *warnings, tag("p", no_answer(study), class_="answer"), caption)
    missing = [tag("p", sentence, class_="quiet") for sentence in absent_sentences(absent)]
    sentences = tag("dl", *(part for arm in found.arms for part in _sentence(arm)), class_="answers")
    first, last = (caption, "") if trust.alert else ("", caption)
    return join(meta, *warnings, first, sentences, *missing, forest(found), *of_nodes, last)


def _sentence(arm: ArmAnswer) -> tuple[Markup, Markup]:
    parts = "; ".join(tight(part) for part in arm.parts)
    return tag("dt", arm.name), tag("dd", tag("b", arm.word, class_=f"word {arm.word}"), " ", parts)


def table(study: Study, analysis: Analysis, numbers: Mapping[tuple[str, str, str], int]) -> Markup:
    """Return the table with a row for each metric or group of metrics, and a column for each environment.

    numbers: number of the detail view of a figure, by arm, workload and metric.
    """
    found = answer(study, analysis)
    if found is None or not found.table:
        return Markup("")
    caption = "The same figures. They compare times, for rates too: ×2 is twice as long."
    base = found.baseline.environment
    rows = (
        (
            row_head(row.label),
            tag("td", row.baseline, class_="number", role="cell", data_label=base),
            *(_figure(row, arm, numbers) for arm in found.arms),
        )
        for row in found.table
    )
    heads = map(column_head, ("", base, *(arm.name for arm in found.arms)))
    return cards(heads, rows, caption, kind="answer-table", caption=True)


def _figure(row: AnswerRow, arm: ArmAnswer, numbers: Mapping[tuple[str, str, str], int]) -> Markup:
    cells = row.cells.get(arm.arm)
    if cells is None:
        return tag("td", "not measured", class_="quiet", role="cell", data_label=arm.name)
    shown = figures(cells)
    text = join(tag("b", shown.overhead or "no interval"), f" {shown.interval}")
    number = numbers.get((cells[0].arm, cells[0].workload, cells[0].metric)) if len(cells) == 1 else None
    linked = number is not None
    link = tag("a" if linked else "span", text, href=f"#cell-{number}" if linked else None, class_="effect")
    chip = tag("span", shown.symbol, class_=f"chip {CHIP[shown.verdict]}", title=shown.verdict.value)
    return tag("td", link, " ", chip, role="cell", data_label=arm.name)
