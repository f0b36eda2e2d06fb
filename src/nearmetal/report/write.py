"""Writes the report to the directory of the records. Each file appears complete or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..host.durable import write_file
from ..host.untrusted import UntrustedDirectory
from ..model.record import JsonValue, TrialRecord, section
from ..model.result import Analysis
from ..model.study import Study
from ..records.directory import report_paths
from ..records.disk import failure
from ..samplers import costs_in
from .forms.csv_form import csv_text
from .forms.latex import latex_text
from .forms.markdown import markdown_text
from .page.document import Context, page_html
from .record_index import RecordIndex
from .sheet import markdown_of
from .tables.inside import inside_of
from .tables.swept import event_leaves


def write_report(
    directory: Path,
    study: Study,
    analysis: Analysis,
    records: Sequence[TrialRecord],
    provenance: Mapping[str, JsonValue],
    *,
    commands: Sequence[str],
    when: str = "",
) -> list[Path]:
    """Write report.html, report.md, report.tex and report.csv to `directory`, which is made if missing.
    Returns their paths.

    provenance: as in provenance.json.
    commands: command lines that repeat the measurement.
    when: the day of the run, for the reader.

    Raises DiskFullError or RecordsError if a file cannot be written. The old version of that file is kept.
    """
    index = RecordIndex(records)
    differences = section(provenance, "parity").get("differences")
    context = Context(
        records=index,
        provenance=provenance,
        differences=differences if isinstance(differences, list) else [],
        commands=commands,
        when=when,
        inside=inside_of(provenance, costs_in(UntrustedDirectory(directory).below("samples"))),
    )
    leaves = event_leaves(study, analysis, index, provenance)
    texts = (
        page_html(study, analysis, context),
        markdown_text(study, analysis, context.inside)
        + "".join(f"\n{markdown_of(leaf)}\n" for leaf in leaves),
        latex_text(study, analysis),
        csv_text(analysis),
    )
    paths = report_paths(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts, strict=True):
            write_file(path, text.encode())
    except OSError as e:
        raise failure(e, directory, kept="the records are whole") from e
    return paths
