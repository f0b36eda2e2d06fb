"""Prints the result as a table or as JSON."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ...model.record import JsonValue, section
from ...report.forms.json_form import json_form
from ...report.record_index import RecordIndex
from ...report.tables.answer import absent_environments, machine_line
from ...report.tables.cells import question_text
from ...report.tables.events.sentences import event_sentences
from ...report.tables.events.sweeps import convergence_sentences, sweeps_json
from ..output import print_block, print_json, print_lines, print_text

if TYPE_CHECKING:
    from ...api.results import Results
    from ...records import ResultsDirectory

#: Columns if the standard output is not a terminal.
PIPE_WIDTH = 220


def output_columns() -> int:
    """Return the width of standard output in columns: that of the variable COLUMNS, that of the terminal, or
    PIPE_WIDTH."""
    return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns


def result_json(found: Results, *, page_follows: bool = False) -> dict[str, JsonValue]:
    """Return the result as JSON values, with the environments that were not measured and why.

    page_follows: whether the HTML page is written next. Its path is then given although it may not exist yet.
    """
    form = json_form(
        found.study,
        found.analysis,
        results_dir=str(found.directory),
        report=_page(found.stored, page_follows),
        inside=found.inside,
    )
    absent = absent_environments(found.stored.provenance)
    form |= sweeps_json(found.study, found.analysis.cells, _events(found))
    for key, name in (("cpus", "cpus"), ("limits", "caller_limits")):
        form[key] = {**section(found.stored.provenance, name)}
    return {**form, "not_measured": [{"environment": name, "reason": why} for name, why in absent.items()]}


def _events(found: Results) -> RecordIndex:
    """Return an index of the records if the study has events, since the convergence of moves, the methods
    that were chosen and the pauses of ranks are read from records; else an empty index, because there may be
    many records."""
    return RecordIndex(found.trials if found.study.events else ())


def _page(directory: ResultsDirectory, follows: bool) -> str | None:
    page = directory.path / "report.html"
    return str(page) if follows or page.exists() else None


def print_result(found: Results, *, json: bool, everything: bool = False, page_follows: bool = False) -> None:
    """Print the answer of a run on one screen.

    json: print all results as JSON instead.
    everything: print each figure and its cause instead.
    page_follows: as in result_json().
    """
    if json:
        print_json(result_json(found, page_follows=page_follows))
    elif everything:
        _print_everything(found, page_follows)
    else:
        _print_answer(found, page_follows)


def _print_answer(found: Results, page_follows: bool) -> None:
    from ...report.forms.summary import summary_text

    directory, events = found.stored, _events(found)
    text = summary_text(
        found.study,
        found.analysis,
        machine=machine_line(directory.provenance),
        when=found.day,
        results_dir=str(directory.path),
        report=_page(directory, page_follows),
        width=output_columns(),
        absent=absent_environments(directory.provenance),
        moves=[*convergence_sentences(found.study, events), *event_sentences(found.study, events)],
    )
    print_text(text)


def _print_everything(found: Results, page_follows: bool) -> None:
    from ...report.forms.terminal import terminal_text
    from ...report.sheet import text_of
    from ...report.tables.swept import event_leaves

    directory, study = found.stored, found.study
    print_lines(question_text(study, found.analysis))
    print_lines(f"{machine_line(directory.provenance)} · seed {study.design.seed}")
    text = terminal_text(
        study,
        found.analysis,
        results_dir=str(directory.path),
        report=_page(directory, page_follows),
        width=output_columns(),
        inside=found.inside,
    )
    print_text(text)
    print_lines("")
    for leaf in event_leaves(study, found.analysis, RecordIndex(found.trials), directory.provenance):
        print_block(f"\n{text_of(leaf)}")
