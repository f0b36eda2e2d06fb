"""The verdict table as a LaTeX tabular in the booktabs style. It needs only \\usepackage{booktabs}."""

from __future__ import annotations

import unicodedata

from ...model.result import Analysis, Verdict
from ...model.study import Study
from ..tables.answer import answer_sentences
from ..tables.cells import (
    WORDS,
    ComparisonGroup,
    Entry,
    left_out_text,
    margin_text,
    verdict_table,
)
from ..tables.emulation import emulation_warnings
from ..tables.nodes import alert_sentences, scope_sentence
from ..tables.trust import trust_in
from ..text import one_line, plural

_TEXT = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    '"': "''",  # \\textquotedbl would need T1 fonts
    "|": r"\textbar{}",
    "×": r"$\times$",
    "−": r"$-$",
    "±": r"$\pm$",
    "…": r"\dots{}",
    "→": r"$\rightarrow$",
    "µ": r"$\mu$",
    "μ": r"$\mu$",
    "–": "--",
    "—": "---",
    "“": "``",
    "”": "''",
    "\u00a0": "~",
    "\u202f": r"\,",
    "▲": r"$\bigtriangleup$",
    "▼": r"$\bigtriangledown$",
    "²": "$^2$",
    "³": "$^3$",
    "·": r"$\cdot$",
    "°": r"$^\circ$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "∞": r"$\infty$",
}
_SYMBOLS = {
    Verdict.SLOWER: r"$\bigtriangleup$",
    Verdict.FASTER: r"$\bigtriangledown$",
    Verdict.EQUIVALENT: "$=$",
    Verdict.NONE: "?",
    Verdict.INCONSISTENT: "!",
}


def escape(text: str) -> str:
    """Escape a text for pdflatex without further packages. An unsupported letter becomes (U+....)."""
    out = []
    for c in one_line(text):
        if c in _TEXT:
            out.append(_TEXT[c])
        elif c.isascii():
            out.append(c)
        else:
            plain = "".join(x for x in unicodedata.normalize("NFKD", c) if x.isascii())
            out.append("".join(_TEXT.get(x, x) for x in plain) or f"(U+{ord(c):04X})")
    # "[" after a row's end would be read as its optional argument.
    return "".join(out).replace("[", "{[}").replace("]", "{]}")


def latex_text(study: Study, analysis: Analysis) -> str:
    """Return a tabular for a table environment. Comments above it explain the numbers."""
    left_out = left_out_text(analysis)
    margin = ", ".join(dict.fromkeys(margin_text(c.margin) for c in analysis.cells))
    comments = (
        "\\usepackage{booktabs} in the preamble",
        *answer_sentences(study, analysis),
        *emulation_warnings(analysis),
        f"Noise: {trust_in(study, analysis.noise_floor).sentence}",
        f"Margin {margin}; {plural(analysis.blocks, 'round')}; seed {analysis.seed}",
        "Interval: anytime-valid, of the time-equivalent overhead; n counts rounds",
        *([left_out] if left_out else []),
        *(text for text in (scope_sentence(analysis), *alert_sentences(study, analysis)) if text),
    )
    lines = [
        *(f"% {one_line(c)}" for c in comments),
        r"\begin{tabular}{@{}lrrlrll@{}}",
        r"\toprule",
        r"metric & baseline & overhead & interval & $n$ & verdict & likely cause \\",
        *(line for group in verdict_table(study, analysis) for line in _group(group)),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _group(group: ComparisonGroup) -> list[str]:
    out = []
    for column in group.columns:
        head = f"{column.full}, against {group.baseline.full}"
        out += [r"\midrule", rf"\multicolumn{{7}}{{@{{}}l}}{{\textit{{{escape(head)}}}}} \\"]
        out += [
            f"{escape(line.label)} & {escape(line.baseline)} & {_cells(entry)} \\\\"
            for line, entry in group.entries(column)
        ]
    return out


def _cells(e: Entry) -> str:
    verdict = f"{_SYMBOLS[e.cell.verdict]} {WORDS[e.cell.verdict]}"
    return " & ".join(map(escape, (e.overhead, e.interval, e.n.removeprefix("n ")))) + (
        f" & {verdict} & {escape(e.note)}"
    )
