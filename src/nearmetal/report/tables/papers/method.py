"""The result of a paper's method applied to our data, as a table beside our verdicts. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from ....analysis.papers.method import MethodAnswer, answer_of
from ....model.papers.published import Paper, PaperMethod
from ....model.record import JsonValue
from ....model.result import Analysis, Cell
from ....model.study import Study
from ....records.json_files import finite
from ....units import show
from ...sheet import Grid, Words
from ...text import plural
from ..cells import compared_labels, verdict_text


def _answers(method: PaperMethod, cells: Sequence[Cell]) -> list[tuple[Cell, MethodAnswer]]:
    return [(c, answer_of(method, c.baseline_values, c.values, c.better)) for c in cells if c.values]


def method_blocks(paper: Paper, study: Study, analysis: Analysis) -> list[Grid | Words]:
    """Return the section of a report that applies the method of a paper to our data. The list is empty if the
    file of the paper gives no method, or if nothing was measured."""
    if paper.method is None or not (found := _answers(paper.method, analysis.cells)):
        return []
    title = f"By the paper's method ({paper.method.kind}, {paper.method.source}), of the same data"
    labels = compared_labels(study, [c for c, _ in found])
    rows = tuple(
        (
            label,
            show(a.baseline.mean, c.unit),
            show(a.sample.mean, c.unit),
            f"{a.sample.n:g}",
            a.text,
            verdict_text(c.verdict),
        )
        for label, (c, a) in zip(labels, found, strict=True)
    )
    heads = ("metric, environment", "mean of the baseline", "mean", "n", "the paper's method", "our verdict")
    own = [a for _, a in _answers(paper.method, analysis.noise_floor.cells) if a.differs is not None]
    text = "The paper's method treats rounds as independent runs. It influences no verdict."
    if own:
        different = sum(bool(a.differs) for a in own)
        text += f" Of {plural(len(own), 'metric')} of the baseline against itself, "
        text += f"it calls {different} different."
    return [Grid(title=title, heads=heads, rows=rows), Words(text=text, quiet=True)]


def method_json(paper: Paper, analysis: Analysis | None) -> list[JsonValue]:
    """Return the result of a paper's method for each cell as JSON. Cells that compare the baseline with
    itself have equal `arm` and `baseline`."""
    if paper.method is None or analysis is None:
        return []
    method = paper.method
    return [
        {
            "arm": c.arm,
            "baseline": c.baseline,
            "workload": c.workload,
            "metric": c.metric,
            "n": a.sample.n,
            "baseline_mean": a.baseline.mean,
            "mean": a.sample.mean,
            "baseline_deviation": finite(a.baseline.deviation),
            "deviation": finite(a.sample.deviation),
            "t": a.t,
            "freedom": a.freedom,
            "differs": a.differs,
            "text": a.text,
            "verdict": c.verdict.value,
        }
        for c, a in _answers(method, (*analysis.cells, *analysis.noise_floor.cells))
    ]
