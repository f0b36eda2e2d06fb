"""Shows and reports a study of several parts as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...api.results import FIGURES, write_report
from ...api.series import paper_of
from ...errors import ExitCode, NearmetalError
from ...model.series import Part, Series
from ...records import SeriesDirectory
from ...records.directory import report_paths
from ...records.disk import resume_line
from ...report.text import plural
from ...samplers import GUESTS, read_sections
from ...study_file import load_study
from ..common import FailOn, complain, print_json, show
from ..measure.measuring import exit_code
from ..read.present import print_result
from ..view import analysed
from .planning import reason

if TYPE_CHECKING:
    from ...api.results import Results
    from ...model.result import Analysis
    from ...records import ResultsDirectory, SeriesDirectory
    from ...report.series import PartResult
    from ...samplers import SampleSection


def frozen_series(directory: SeriesDirectory) -> Series:
    """Return the series that is stored in a directory."""
    return directory.series(lambda path: load_study(path, None))


def part_results(
    directory: SeriesDirectory, series: Series, keep: Callable[[Part, Results], None] = lambda part, own: None
) -> tuple[PartResult, ...]:
    """Return every part with its results on disk. A part whose results cannot be read has the reason.

    keep: called with each part that has results.
    """
    from ...report.series import PartResult

    ends, choices = directory.ends(), directory.choices()
    out = []
    for part in series.parts:
        if part.key in choices:
            part = replace(part, notes=(*part.notes, choices[part.key]))
        why = part.absent or ends.get(part.key, "not begun")
        nothing = PartResult(part=part, directory=None, study=None, analysis=None, records=(), why=why)
        found = directory.part(part)
        if found is None:
            out.append(nothing)
            continue
        try:
            own = analysed(found)
            provenance = found.provenance
        except NearmetalError as e:
            out.append(replace(nothing, why=f"its results cannot be read: {reason(e)}"))
            continue
        keep(part, own)
        out.append(
            PartResult(
                part=part,
                directory=found.path.relative_to(directory.path),
                study=own.study,
                analysis=own.analysis,
                records=own.trials,
                why=why,
                provenance=provenance,
                guests=_sampled_in_guests(found.path),
            )
        )
    return tuple(out)


def _sampled_in_guests(directory: Path) -> Sequence[SampleSection]:
    """Return the samples from inside the guests; empty if there were no guests."""
    path = directory / "samples" / GUESTS
    return tuple(read_sections(path)) if path.exists() else ()


def waiting_parts(directory: SeriesDirectory, series: Series) -> list[Part]:
    """Return the parts that are not closed; if all are closed, those with cells that have no verdict."""
    own = [(p, directory.part(p)) for p in series.parts if p.study is not None]
    left = [p for p, found in own if found is None or not found.closed]
    return left or [p for p, found in own if found is not None and _has_open_cells(found)]


def _has_open_cells(found: ResultsDirectory) -> bool:
    try:
        return has_open_cells(analysed(found).analysis)
    except NearmetalError:
        return False  # results that cannot be read are not added to


def has_open_cells(analysis: Analysis) -> bool:
    """Return whether more blocks could give further verdicts. Without any block there is no comparison
    yet."""
    return bool(analysis.undecided) or not analysis.blocks


def tell(
    directory: SeriesDirectory, series: Series, *, json: bool, fail_on: FailOn, everything: bool = False
) -> ExitCode:
    """Write the summary report and print it.

    everything: also print every figure of each part, with causes, upper bounds and counters.
    """
    from ...report.series import series_json, series_text
    from ...report.series_page import write_series

    whole: list[tuple[Part, Results]] = []
    results = part_results(directory, series, lambda part, own: whole.append((part, own)))
    paper = paper_of(directory, series.paper)
    files = write_series(directory.path, series, results, paper)
    if json:
        print_json(series_json(series, results, paper, results_dir=str(directory.path), report=str(files[0])))
    else:
        print(series_text(series, results, paper))
        for part, own in whole if everything else ():
            if own.analysis.blocks:
                print(f"\nAll of part {part.key}: {part.title}\n")
                print_result(own, json=False, everything=True)
        print(f"Report: {files[0]}")
    codes = [exit_code(r.analysis, fail_on) for r in results if r.analysis is not None]
    missing = any(r.analysis is None and not r.part.absent for r in results)
    return max([*codes, ExitCode.FAILED_TRIALS if missing else ExitCode.DONE])


def status(directory: SeriesDirectory, *, json: bool) -> int:
    """Show the progress of every part. Returns the exit code."""
    from ...report.series import scale_text

    series = frozen_series(directory)
    results = part_results(directory, series)
    rows = [
        {
            "part": r.part.key,
            "title": r.part.title,
            "results_dir": None if r.directory is None else str(directory.path / r.directory),
            "blocks": 0 if r.analysis is None else r.analysis.blocks,
            "cells": 0 if r.analysis is None else len(r.analysis.cells),
            "decided": 0 if r.analysis is None else len(r.analysis.cells) - len(r.analysis.undecided),
            "why": r.why,
        }
        for r in results
    ]
    if json:
        print_json({"results_dir": str(directory.path), "study": series.name, "parts": rows})
        return ExitCode.DONE
    print(f"{directory.path}: {series.title}{scale_text(series.scale)}")
    for row, r in zip(rows, results, strict=True):
        rounds = plural(0 if r.analysis is None else r.analysis.blocks, "round")
        decided = f"{row['decided']} of {row['cells']} figures decided"
        print(f"  {r.part.key:<10}{rounds}, {decided}; {r.why}")
    if waiting_parts(directory, series):
        print(f"go on with:  {resume_line(directory.path)}")
    return ExitCode.DONE


def report(directory: SeriesDirectory, *, figures: bool, dry_run: bool, json: bool) -> int:
    """Write the report of every part and the summary again. Returns the exit code."""
    from ...report.series import series_files
    from ...report.series_page import write_series

    series = frozen_series(directory)
    files = list(series_files(directory.path))
    for part in series.parts:
        found = directory.part(part)
        if found is None:
            continue
        try:
            own = analysed(found)
        except NearmetalError as e:
            complain(f"{part.key} has no report: {reason(e)}")
            continue
        if dry_run and own.analysis.blocks:
            files += [*report_paths(found.path), *([found.path / FIGURES] if figures else [])]
        elif own.analysis.blocks:
            files += write_report(own, figures=figures)
        if found.closed and not dry_run:
            found.close()
    if not dry_run:
        write_series(
            directory.path, series, part_results(directory, series), paper_of(directory, series.paper)
        )
    paths = [str(f) for f in files]
    show(paths, paths, json=json)
    return ExitCode.DONE
