"""Reads the results of a study of several parts, writes its reports, and finds the parts that a resumption
runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import NearmetalError
from ...model.series import Part, Series
from ...records import SeriesDirectory
from ...records.directory import report_paths
from ...samplers import GUESTS, read_sections
from ...study_file import load_text
from ..results import FIGURES, Analyse, analysed, write_report
from ..studies import Note, ignore
from .files import paper_of
from .planning import reason

if TYPE_CHECKING:
    from ...model.papers.published import Published
    from ...model.result import Analysis
    from ...records import ResultsDirectory
    from ...report.series import PartResult
    from ...samplers import SampleSection
    from ..results import Results


def frozen_series(directory: SeriesDirectory) -> Series:
    """Return the series that is stored in a directory."""
    return directory.series(lambda text, where: load_text(text, where, None))


def part_results(
    directory: SeriesDirectory,
    series: Series,
    keep: Callable[[Part, Results], None] = lambda part, own: None,
    *,
    analyse: Analyse = analysed,
) -> tuple[PartResult, ...]:
    """Return every part with its results on disk. For a part whose results cannot be read, PartResult.why is
    the reason.

    keep: called with each part that has results, and with these.
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
            own = analyse(found)
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
                guests=_sampled_in_guests(found),
            )
        )
    return tuple(out)


def _sampled_in_guests(directory: ResultsDirectory) -> Sequence[SampleSection]:
    """Return the counters that were sampled inside the guests of a run; empty if there were no guests."""
    samples = directory.files.below("samples")
    return tuple(read_sections(samples, GUESTS)) if samples.exists(GUESTS) else ()


def waiting_parts(directory: SeriesDirectory, series: Series, analyse: Analyse = analysed) -> list[Part]:
    """Return the parts that a resumption runs: those whose results are not closed, or if all are closed,
    those with comparisons that have no verdict."""
    own = [(p, directory.part(p)) for p in series.parts if p.study is not None]
    left = [p for p, found in own if found is None or not found.closed]
    return left or [p for p, found in own if found is not None and _has_open_cells(found, analyse)]


def _has_open_cells(found: ResultsDirectory, analyse: Analyse) -> bool:
    try:
        return has_open_cells(analyse(found).analysis)
    except NearmetalError:
        return False  # results that cannot be read cannot be continued either


def has_open_cells(analysis: Analysis) -> bool:
    """Return whether more blocks could give further verdicts. True if there is no block yet."""
    return bool(analysis.undecided) or not analysis.blocks


@dataclass(frozen=True, kw_only=True)
class SeriesSummary:
    """The results of a study of several parts, whose report has been written.

    results: every part with its results on disk.
    whole: the parts that have results, with these.
    paper: the published table with which the series is shown; None if there is none.
    page: path of the report.
    """

    results: tuple[PartResult, ...]
    whole: tuple[tuple[Part, Results], ...]
    paper: Published | None
    page: Path


def summarised(directory: SeriesDirectory, series: Series, analyse: Analyse = analysed) -> SeriesSummary:
    """Write the summary report of a series, and return what it shows."""
    from ...report.series_page import write_series

    whole: list[tuple[Part, Results]] = []
    results = part_results(directory, series, lambda part, own: whole.append((part, own)), analyse=analyse)
    paper = paper_of(directory, series.paper)
    page = write_series(directory.path, series, results, paper)[0]
    return SeriesSummary(results=results, whole=tuple(whole), paper=paper, page=page)


def write_reports(
    directory: SeriesDirectory,
    *,
    figures: bool = False,
    dry_run: bool = False,
    note: Note = ignore,
    analyse: Analyse = analysed,
) -> list[Path]:
    """Write the report of every part and the summary again. Returns the paths of the files.

    figures: also write the figures of each part.
    dry_run: return the paths, and write nothing.
    note: called with the reason for each part that has no report.
    """
    from ...report.series import series_files

    series = frozen_series(directory)
    files = list(series_files(directory.path))
    for part in series.parts:
        found = directory.part(part)
        if found is None:
            continue
        try:
            own = analyse(found)
        except NearmetalError as e:
            note(f"{part.key} has no report: {reason(e)}")
            continue
        if dry_run and own.analysis.blocks:
            files += [*report_paths(found.path), *([found.path / FIGURES] if figures else [])]
        elif own.analysis.blocks:
            files += write_report(own, figures=figures)
        if found.closed and not dry_run:
            found.close()
    if not dry_run:
        summarised(directory, series, analyse)
    return files
