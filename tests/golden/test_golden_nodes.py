"""The bytes of the forms of a report over several nodes."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.golden import sample_analysis as sample
from tests.golden.sample_analysis import six

from nearmetal.model.change import replace
from nearmetal.model.design import Estimand
from nearmetal.model.node_results import (
    CellNodes,
    NodeDeviation,
    NodeEstimate,
    NodeEvidence,
    NodeValue,
    RunNodes,
)
from nearmetal.model.result import Analysis, Cell, Interval, Verdict
from nearmetal.report.forms.csv_form import csv_text
from nearmetal.report.forms.json_form import json_form
from nearmetal.report.forms.latex import latex_text
from nearmetal.report.forms.markdown import markdown_text
from nearmetal.report.forms.summary import summary_text
from nearmetal.report.forms.terminal import terminal_text
from nearmetal.report.page.sections import nodes as nodes_section

Golden = Callable[[str, str], None]
RESULTS = "results/quick-2026-11-20T10-03-00"


def estimate(cell: Cell, wider: float, *, nodes: int, verdict: Verdict, approximate: bool) -> NodeEstimate:
    half = (cell.high - cell.low) / 2
    return NodeEstimate(
        nodes=nodes,
        n=cell.n,
        overhead=cell.overhead,
        low=six(cell.low - wider * half),
        high=six(cell.high + wider * half),
        verdict=verdict,
        reason="",
        approximate=approximate,
    )


def with_nodes(cell: Cell, *, disagree: bool, out: bool) -> Cell:
    def both(nodes: int, shift: float) -> dict[Estimand, NodeEstimate]:
        moved = replace(cell, low=cell.low - shift, high=cell.high - shift, overhead=cell.overhead - shift)
        return {
            Estimand.THESE: estimate(moved, 0, nodes=nodes, verdict=cell.verdict, approximate=False),
            Estimand.ALIKE: estimate(moved, 1.5, nodes=nodes, verdict=Verdict.NONE, approximate=nodes < 8),
        }

    shifts = (-0.01, 0.0, 0.01) if not disagree else (-0.05, 0.0, 0.09)
    values = tuple(
        NodeValue(
            node=f"node{k}",
            n=13,
            overhead=six(cell.overhead + shift),
            low=six(cell.low + shift),
            high=six(cell.high + shift),
        )
        for k, shift in enumerate(shifts)
    )
    return replace(
        cell,
        nodes=CellNodes(
            estimand=Estimand.THESE,
            estimates=both(3, 0.0),
            values=values,
            disagree=disagree,
            withheld=False,
            without=both(2, 0.004) if out else {},
        ),
    )


def analysis(*, out: bool = True) -> Analysis:
    """Three nodes: the latency of one placement differs between them, and one node is slow and unsteady."""
    whole = sample.analysis()
    chosen = [c for c in whole.cells if c.workload in ("ep.S", "pingpong") and c.arm.startswith("container")]
    evidence = [
        NodeEvidence(
            node="node2",
            unlike=unlike,
            baseline="native/one",
            workload=workload,
            metric="rate",
            others=2,
            n=13,
            ratio=ratio,
        )
        for unlike, workload, ratio in (
            (NodeDeviation.SLOW, "cg.S", Interval(centre=1.08, low=1.05, high=1.11)),
            (NodeDeviation.SLOW, "ep.S", Interval(centre=1.07, low=1.06, high=1.08)),
            (NodeDeviation.UNSTEADY, "ep.S", Interval(centre=4.1, low=2.4, high=7.3)),
        )
    ]
    return replace(
        whole,
        cells=tuple(with_nodes(c, disagree=c.metric == "latency", out=out) for c in chosen),
        nodes=RunNodes(
            estimand=Estimand.THESE,
            rounds={f"node{k}": 13 for k in range(3)},
            states={f"node{k}": f"Linux 6.{1 if k < 2 else 12}, AMD EPYC 7713" for k in range(3)},
            evidence=tuple(evidence),
            left_out=("node2",) if out else (),
        ),
    )


def test_terminal(golden: Golden) -> None:
    text = terminal_text(sample.study(), analysis(), results_dir=RESULTS, report=None, width=100)
    golden("nodes-terminal.txt", text.plain)


def test_summary(golden: Golden) -> None:
    text = summary_text(
        sample.study(),
        analysis(),
        machine="AMD EPYC, 2 cores",
        when="20 Nov 2026",
        results_dir=RESULTS,
        report=None,
        width=100,
    )
    golden("nodes-summary.txt", text.plain)
    assert len(text.plain.splitlines()) <= 30


def test_markdown_and_latex(golden: Golden) -> None:
    golden("nodes.md", markdown_text(sample.study(), analysis()))
    golden("nodes.tex", latex_text(sample.study(), analysis(out=False)))


def test_csv_has_further_columns(golden: Golden) -> None:
    golden("nodes.csv", csv_text(analysis()))


def test_json(golden: Golden) -> None:
    found = json_form(sample.study(), analysis(), results_dir=RESULTS)
    cells = found["cells"]
    assert isinstance(cells, list) and isinstance(cells[1], dict)
    kept = {"nodes": found["nodes"], "cell": cells[1]["nodes"]}
    golden("nodes.json", json.dumps(kept, ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def test_page(golden: Golden) -> None:
    golden("nodes.html", nodes_section(sample.study(), analysis()).replace("><", ">\n<") + "\n")
    assert nodes_section(sample.study(), sample.analysis()) == ""
