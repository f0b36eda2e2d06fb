"""Writes the report to the directory of the records. Each file appears complete or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..model.record import JsonValue, TrialRecord
from ..model.result import Analysis
from ..model.study import Study
from ..records.disk import failure, write_file
from ..samplers import costs_in
from .forms.csv_form import csv_text
from .forms.latex import latex_text
from .forms.markdown import markdown_text
from .page.whole import Context, page_html
from .seen import RecordIndex
from .sheet import markdown_of
from .tables.inside import inside_of
from .tables.swept import event_leaves


@dataclass(frozen=True, kw_only=True)
class ReportFiles:
    """The paths of one report in its formats."""

    html: Path
    markdown: Path
    latex: Path
    csv: Path


def write_report(
    directory: Path,
    study: Study,
    analysis: Analysis,
    records: Sequence[TrialRecord],
    provenance: Mapping[str, JsonValue],
    differences: Sequence[Mapping[str, JsonValue]],
    *,
    commands: Sequence[str],
    when: str = "",
) -> ReportFiles:
    """Write report.html, report.md, report.tex and report.csv to `directory`, which is made if missing.

    provenance: as in provenance.json.
    differences: differences that the parity audit found, one mapping each.
    commands: command lines that repeat the measurement.
    when: the day of the run, for the reader.

    Raises DiskFullError or RecordsError; a report that could not be replaced is kept.
    """
    index = RecordIndex(records)
    context = Context(
        records=index,
        provenance=provenance,
        differences=differences,
        commands=commands,
        when=when,
        inside=inside_of(provenance, costs_in(directory / "samples")),
    )
    out = ReportFiles(
        html=directory / "report.html",
        markdown=directory / "report.md",
        latex=directory / "report.tex",
        csv=directory / "report.csv",
    )
    leaves = event_leaves(study, analysis, index, provenance)
    texts = {
        out.html: page_html(study, analysis, context),
        out.markdown: markdown_text(study, analysis, context.inside)
        + "".join(f"\n{markdown_of(leaf)}\n" for leaf in leaves),
        out.latex: latex_text(study, analysis),
        out.csv: csv_text(analysis),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            write_file(path, text.encode())
    except OSError as e:
        raise failure(e, directory, kept="the records are whole") from e
    return out
