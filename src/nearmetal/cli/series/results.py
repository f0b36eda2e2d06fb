"""Shows and reports a study of several parts as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...api.results import write_report
from ...api.series import paper_of
from ...errors import ExitCode
from ...model.series import Series
from ...records import SeriesDirectory
from ...records.disk import resume_line
from ...samplers import GUESTS, read_sections
from ...study_file import load_study
from ..common import FailOn, print_json, show
from ..measure.measuring import exit_code
from ..view import analysed

if TYPE_CHECKING:
    from ...records import SeriesDirectory
    from ...report.series import PartResult
    from ...samplers import SampleSection


def frozen_series(directory: SeriesDirectory) -> Series:
    """Return the series that is stored in a directory."""
    return directory.series(lambda path: load_study(path, None))


def part_results(directory: SeriesDirectory, series: Series) -> tuple[PartResult, ...]:
    """Return every part with its results on disk."""
    from ...report.series import PartResult

    ends = directory.ends()
    out = []
    for part in series.parts:
        found = directory.part(part)
        why = part.absent or ends.get(part.key, "not begun")
        if found is None:
            out.append(PartResult(part=part, directory=None, study=None, analysis=None, records=(), why=why))
            continue
        own = analysed(found)
        out.append(
            PartResult(
                part=part,
                directory=found.path.relative_to(directory.path),
                study=own.study,
                analysis=own.analysis,
                records=own.trials,
                why=why,
                provenance=found.provenance,
                guests=_sampled_in_guests(found.path),
            )
        )
    return tuple(out)


def _sampled_in_guests(directory: Path) -> Sequence[SampleSection]:
    """Return the samples from inside the guests; empty if there were no guests."""
    path = directory / "samples" / GUESTS
    return tuple(read_sections(path)) if path.exists() else ()


def tell(directory: SeriesDirectory, series: Series, *, json: bool, fail_on: FailOn) -> ExitCode:
    """Write the summary report and print it."""
    from ...report.series import series_json, series_text, write_series

    results = part_results(directory, series)
    paper = paper_of(directory, series.paper)
    files = write_series(directory.path, series, results, paper)
    if json:
        print_json(series_json(series, results, paper, results_dir=str(directory.path), report=str(files[0])))
    else:
        print(series_text(series, results, paper))
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
        return int(ExitCode.DONE)
    print(f"{directory.path}: {series.title}{scale_text(series.scale)}")
    for row in rows:
        print(
            f"  {row['part']:<10}{row['blocks']} rounds, {row['decided']} of {row['cells']} figures decided;"
            f" {row['why']}"
        )
    print(f"go on with:  {resume_line(directory.path)}")
    return int(ExitCode.DONE)


def report(directory: SeriesDirectory, *, figures: bool, dry_run: bool, json: bool) -> int:
    """Write the report of every part and the summary again. Returns the exit code."""
    from ...report.series import series_files, write_series

    series = frozen_series(directory)
    files = list(series_files(directory.path))
    if not dry_run:
        for part in series.parts:
            found = directory.part(part)
            if found is None:
                continue
            own = analysed(found)
            if own.analysis.blocks:
                files += write_report(own, figures=figures)
            if found.closed:
                found.close()
        write_series(
            directory.path, series, part_results(directory, series), paper_of(directory, series.paper)
        )
    paths = [str(f) for f in files]
    show(paths, paths, json=json)
    return int(ExitCode.DONE)
