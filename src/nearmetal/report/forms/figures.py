"""Writes each chart of the page to files, as SVG, PNG and PDF, for papers and slides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from pathlib import Path

from ...model.record import TrialRecord
from ...model.result import Analysis
from ...model.study import Study
from ...records.disk import failure, write_file
from ..charts.cells import charts_of, floor
from ..charts.chart import FILE, Chart
from ..charts.drawing import pdf_of, png_of, svg
from ..page.curves import curves, figure_of, swept_figures
from ..page.lines import svg_files
from ..seen import RecordIndex
from ..text import slug


class Format(StrEnum):
    """File formats of a figure."""

    SVG = "svg"
    PNG = "png"
    PDF = "pdf"


def figures(analysis: Analysis, records: Sequence[TrialRecord] = ()) -> tuple[tuple[str, Chart], ...]:
    """Return every chart with its file name, without the suffix.

    The names are 'noise-floor', then '<number>-<arm>-vs-<baseline>-<metric>-<kind>' for each cell. If records
    are given, the raw slices are drawn too.
    """
    index = RecordIndex(records)
    noise = floor(analysis.noise_floor)
    out = [("noise-floor", noise)] if noise else []
    for i, c in enumerate(analysis.cells):
        name = slug(f"{i:03d}-{c.arm}-vs-{c.baseline}-{c.label}")
        out += [(f"{name}-{chart.kind}", chart) for chart in charts_of(c, index)]
    return tuple(out)


def line_figures(study: Study, analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """Return every curve as the text of an SVG file, with its file name, without the suffix.

    The names are 'curve-<workload>-<over>-vs-<baseline>', and 'curve-<workload>-<metric>-<swept key>' with a
    number for each panel.
    """
    found = (figure for curve in curves(analysis.cells) if (figure := figure_of(curve)) is not None)
    return tuple(
        (slug(f.name) + end, text)
        for f in (*found, *swept_figures(study, analysis.cells))
        for end, text in svg_files(f, FILE)
    )


def write_figures(
    study: Study,
    analysis: Analysis,
    directory: Path,
    formats: Iterable[Format] = tuple(Format),
    *,
    records: Sequence[TrialRecord] = (),
) -> tuple[Path, ...]:
    """Write every chart in every format to a directory, which is made if it is missing. Takes 5 to 20 ms per
    file.

    Raises DiskFullError or RecordsError.
    """
    chosen, out = tuple(formats), []
    drawn = ((name, svg(chart, FILE)) for name, chart in figures(analysis, records))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in chain(drawn, line_figures(study, analysis)):
            for kind in chosen:
                path = directory / f"{name}.{kind}"
                write_file(path, _FORMATS[kind](text))
                out.append(path)
    except OSError as e:
        raise failure(e, directory, kept="the records are whole") from e
    return tuple(out)


_FORMATS: Mapping[Format, Callable[[str], bytes]] = {
    Format.SVG: str.encode,
    Format.PNG: png_of,
    Format.PDF: pdf_of,
}
