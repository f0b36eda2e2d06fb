"""Writes each chart of the page to files, as SVG, PNG and PDF, for papers and slides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...host.untrusted import UntrustedDirectory
from ...model.record import TrialRecord
from ...model.result import Analysis
from ...model.study import Study
from ...records.disk import failure
from ..charts.cells import charts_of, floor
from ..charts.chart import FILE, Chart
from ..charts.curves import curve_figures, swept_figures
from ..charts.drawing import pdf_of, png_of, svg
from ..charts.lines import lines_charts
from ..record_index import RecordIndex
from ..text import slug


def figures(analysis: Analysis, records: Sequence[TrialRecord] = ()) -> tuple[tuple[str, Chart], ...]:
    """Return every chart with its file name, without the suffix.

    The names are 'noise-floor', then '<number>-<arm>-vs-<baseline>-<metric>-<kind>' for each cell.
    records: if they are given, the ranges of the single measurements are drawn too.
    """
    index = RecordIndex(records)
    noise = floor(analysis.noise_floor)
    out = [("noise-floor", noise)] if noise else []
    for i, c in enumerate(analysis.cells):
        name = slug(f"{i:03d}-{c.arm}-vs-{c.baseline}-{c.label}")
        out += [(f"{name}-{chart.kind}", chart) for chart in charts_of(c, index)]
    return tuple(out)


def line_figures(study: Study, analysis: Analysis) -> tuple[tuple[str, Chart], ...]:
    """Return the chart of every curve with its file name, without the suffix.

    The names are 'curve-<workload>-<over>-vs-<baseline>', and 'curve-<workload>-<metric>-<swept key>'. If the
    figure has several panels, the number and the title of the panel follow.
    """
    return tuple(
        (slug(f.name) + (f"-{number}-{slug(panel.title)}" if len(f.panels) > 1 else ""), chart)
        for f in (*curve_figures(analysis.cells), *swept_figures(study, analysis.cells))
        for number, (panel, chart) in enumerate(zip(f.panels, lines_charts(f), strict=True))
    )


def write_figures(
    study: Study,
    analysis: Analysis,
    directory: Path,
    *,
    records: Sequence[TrialRecord] = (),
) -> tuple[Path, ...]:
    """Write every chart in every format to a directory, which is made if it is missing. Takes 5 to 20 ms per
    file.

    Raises DiskFullError or RecordsError.
    """
    out = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        files = UntrustedDirectory.part(directory)
        for name, chart in (*figures(analysis, records), *line_figures(study, analysis)):
            text = svg(chart, FILE)
            for ending, convert in FORMATS.items():
                file = f"{name}.{ending}"
                files.replace_file(file, convert(text))
                out.append(directory / file)
    except OSError as e:
        raise failure(e, directory, kept="the records are whole") from e
    return tuple(out)


FORMATS: Mapping[str, Callable[[str], bytes]] = {"svg": str.encode, "png": png_of, "pdf": pdf_of}
"""The conversion of the text of an SVG file to each file format, by the ending of file names."""
