"""Writes each chart of the page to files, as SVG, PNG and PDF, for papers and slides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path

from ...model.record import TrialRecord
from ...model.result import Analysis
from ...model.study import Study
from ...records.disk import failure, write_file
from ..charts.cells import charts_of, floor
from ..charts.parts import FILE, Chart, Spec, finished
from ..page.curves import curves, figure_of, swept_figures
from ..page.lines import svg_files
from ..seen import RecordIndex
from ..text import slug

WIDTH = 480
_PNG_SCALE = 2


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
    noise = floor(analysis.noise_floor, FILE)
    out = [("noise-floor", noise)] if noise else []
    for i, c in enumerate(analysis.cells):
        name = slug(f"{i:03d}-{c.arm}-vs-{c.baseline}-{c.label}")
        out += [(f"{name}-{chart.kind}", chart) for chart in charts_of(c, index, FILE)]
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
    """Write every chart in every format to a directory, which is made if it is missing. Takes about 20 ms per
    file.

    Raises DiskFullError or RecordsError.
    """
    import vl_convert

    redraw: dict[Format, Callable[[str], bytes]] = {
        Format.SVG: lambda text: text.encode(),
        Format.PNG: lambda text: vl_convert.svg_to_png(text, scale=_PNG_SCALE),
        Format.PDF: lambda text: vl_convert.svg_to_pdf(text),
    }
    draw: dict[Format, Callable[[Spec], bytes]] = {
        Format.SVG: lambda s: vl_convert.vegalite_to_svg(s).encode(),
        Format.PNG: lambda s: vl_convert.vegalite_to_png(s, scale=_PNG_SCALE),
        Format.PDF: lambda s: vl_convert.vegalite_to_pdf(s),
    }
    chosen, out = tuple(formats), []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, chart in figures(analysis, records):
            spec = finished(chart, FILE, WIDTH)
            for kind in chosen:
                path = directory / f"{name}.{kind}"
                write_file(path, draw[kind](spec))
                out.append(path)
        for name, text in line_figures(study, analysis):
            for kind in chosen:
                path = directory / f"{name}.{kind}"
                write_file(path, redraw[kind](text))
                out.append(path)
    except OSError as e:
        raise failure(e, directory, kept="the records are whole") from e
    return tuple(out)
