"""The page of a study in parts, with the charts of each part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ..analysis.instances import InstanceFigures
from ..host.durable import write_file
from ..model.papers.published import Published
from ..model.series import Figure, Series
from ..records.disk import failure
from ..study_file.series import packed_places
from .charts.chart import Chart, LinesFigure
from .charts.curves import curve_figures, swept_figures
from .charts.instances import instances_charts, runs_of
from .charts.series import overheads, packing, relative
from .charts.steps import steps_charts
from .forms.markdown import escape as markdown_escape
from .page.document import Drawings, framed
from .page.markup import join, tag
from .page.rank_curves import rank_figures
from .record_index import RecordIndex
from .series import PartResult, answer_of, scale_text, series_files, sheet
from .sheet import Block, html_of, markdown_of
from .tables.cells import side
from .tables.papers.beside import PrintedComparison
from .text import one_line, plural, tight


def write_series(
    directory: Path, series: Series, results: Sequence[PartResult], paper: Published | None
) -> tuple[Path, Path]:
    """Write report.html and report.md of the whole series, and return their paths.

    paper: the paper whose figures are shown beside the results; None if there is none.

    Raises DiskFullError or RecordsError.
    """
    page, markdown = series_files(directory)
    leaves = sheet(series, results, paper, _charts)
    with Drawings() as drawings:
        body = join(*(html_of(leaf, drawings.figure) for leaf in leaves))
        html = framed(
            study=series.name,
            question=series.title,
            head=tag("p", tight(answer_of(results)), class_="answer"),
            body=body,
            footer=f"seed {series.seed} · {plural(len(results), 'part')}{scale_text(series.scale)}",
            drawings=drawings,
        )
    text = "\n\n".join([f"# {markdown_escape(series.title)}", *map(markdown_of, leaves)]) + "\n"
    try:
        write_file(page, html.encode())
        write_file(markdown, text.encode())
    except OSError as e:
        raise failure(e, directory, kept="the records are whole") from e
    return page, markdown


def _charts(
    r: PartResult,
    pairs: Sequence[PrintedComparison],
    counted: Sequence[InstanceFigures],
    records: RecordIndex,
) -> Sequence[Block]:
    assert r.study is not None and r.analysis is not None
    study, cells = r.study, r.analysis.cells
    packed = {r.part.places[word]: word for word in packed_places(r.part.places)}

    def title(arm: str) -> str:
        return side(study, arm).title

    drawn: Mapping[Figure, Callable[[], Sequence[Chart | LinesFigure | None]]] = {
        Figure.PACKING: lambda: (packing(cells, packed, [b.figure for b in pairs]),),
        Figure.OVERHEADS: lambda: (overheads(cells, title),),
        Figure.RELATIVE: lambda: (relative(cells, title),),
        Figure.CURVE: lambda: (*swept_figures(study, cells), *curve_figures(cells)),
        Figure.RANKS: lambda: rank_figures(study, cells),
        Figure.STEPS: lambda: steps_charts(study, records, title),
    }
    found = [chart for figure in r.part.figures for chart in drawn[figure]() if chart is not None]
    return [*found, *_second_by_second(r, counted, records)]


def _second_by_second(
    r: PartResult, counted: Sequence[InstanceFigures], records: RecordIndex
) -> Iterator[Chart]:
    """Yield charts of a typical run of each arm whose guests were sampled. The typical run is the one with
    the median wall time."""
    assert r.study is not None
    several = len({f.workload for f in counted}) > 1
    for f in counted:
        walls = sorted(
            (row.values[-1], t.trial)
            for t in records.trials(f.arm)
            for row in t.rows
            if row.workload == f.workload and row.metric == "wall" and row.values
        )
        if walls:
            runs = runs_of(r.guests, walls[len(walls) // 2][1], f.workload)
            load = f"{one_line(f.workload)}, " if several else ""
            yield from instances_charts(load + side(r.study, f.arm).title, runs)
