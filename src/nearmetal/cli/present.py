"""The result as a table or as JSON, and the report's files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..model.record import JsonValue, TrialRecord
from ..model.result import Analysis
from ..model.study import Study
from .common import print_json

if TYPE_CHECKING:
    from ..records import ResultsDirectory
    from ..report.inside import Inside

#: Columns where standard output is no terminal.
PIPE_WIDTH = 220


def result_json(directory: ResultsDirectory, study: Study, analysis: Analysis) -> dict[str, JsonValue]:
    """The result as data."""
    from ..report.json_form import json_form

    return json_form(
        study,
        analysis,
        results_dir=str(directory.path),
        report=_page(directory),
        inside=_inside(directory),
    )


def _page(directory: ResultsDirectory) -> str | None:
    page = directory.path / "report.html"
    return str(page) if page.exists() else None


def _inside(directory: ResultsDirectory) -> Inside:
    from ..report.inside import inside_of
    from ..samplers import costs_in

    return inside_of(directory.provenance, costs_in(directory.path / "samples"))


def print_result(
    directory: ResultsDirectory,
    study: Study,
    analysis: Analysis,
    records: Sequence[TrialRecord],
    *,
    json: bool,
) -> None:
    """The verdict table, or the same cells as JSON."""
    if json:
        print_json(result_json(directory, study, analysis))
        return
    from rich.console import Console

    from ..host.provenance import cpu_summary
    from ..report.boot_table import boot_leaf
    from ..report.seen import RecordIndex
    from ..report.sheet import text_of
    from ..report.terminal import terminal_text

    on_terminal = sys.stdout.isatty()
    arms = " against ".join(dict.fromkeys(e.backend for e in reversed(study.environments)))
    print(f"{cpu_summary(directory.provenance)} · {arms} · seed {study.design.seed:x}")
    text = terminal_text(
        study,
        analysis,
        results_dir=str(directory.path),
        report=_page(directory),
        width=shutil.get_terminal_size().columns if on_terminal else PIPE_WIDTH,
        inside=_inside(directory),
    )
    if on_terminal:
        Console().print(text, soft_wrap=True)
    else:
        print(text.plain)
    boots = boot_leaf(study, RecordIndex(records), directory.provenance)
    if boots is not None:
        print(f"\n{text_of(boots)}")


def write_report(
    directory: ResultsDirectory,
    study: Study,
    analysis: Analysis,
    records: Sequence[TrialRecord],
    *,
    figures: bool = False,
) -> list[Path]:
    """report.html, .md, .tex and .csv in the results directory, and below figures/ every figure."""
    from ..report.write import write_report as write

    provenance = directory.provenance
    parity = provenance.get("parity")
    differences = parity.get("differences") if isinstance(parity, dict) else None
    files = write(
        directory.path,
        study,
        analysis,
        records,
        provenance,
        [d for d in differences if isinstance(d, dict)] if isinstance(differences, list) else [],
        commands=(
            f"nearmetal run {directory.path / 'study.yaml'} --seed {study.design.seed}",
            f"nearmetal analyze {directory.path}",
        ),
    )
    out = [files.html, files.markdown, files.latex, files.csv]
    if figures:
        from ..report.figures import write_figures

        out += write_figures(analysis, directory.path / "figures", records=records)
    return out
