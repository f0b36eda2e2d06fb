"""Whole, verified runs of the NAS benchmarks: seconds and operations per second of every environment. No I/O.

A slice (time share) runs a part of a benchmark only, so verdicts compare rates. The whole runs shown here are
those that verify the results. They are part of no verdict.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....analysis.papers.sizes import link_words
from ....model.record import JsonValue
from ....model.study import Study
from ....units import show
from ....workloads.kernels.registry import counts_operations
from ...record_index import RecordIndex
from ...sheet import Grid
from ..cells import side


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    """The whole runs of a benchmark in one environment.

    size: class of the benchmark.
    seconds, rate: medians over n runs, in s and in operations per second.
    """

    workload: str
    kernel: str
    size: str
    arm: str
    n: int
    seconds: float
    rate: float


def whole_runs(study: Study, records: RecordIndex) -> tuple[WholeRun, ...]:
    """Return the whole runs whose results were right, ordered by benchmark and then by arm."""
    return tuple(_runs(study, records))


def _runs(study: Study, records: RecordIndex) -> Iterator[WholeRun]:
    for w in study.kernels:
        if not counts_operations(w.kernel):
            continue
        for arm in study.arms():
            found = [
                run
                for t in records.trials(arm.name)
                for row in t.rows
                if row.workload == w.name and (run := _run_of(row.verification)) is not None
            ]
            if found:
                yield WholeRun(
                    workload=w.name,
                    kernel=w.kernel,
                    size=str(w.params.get("class", "S")),
                    arm=arm.name,
                    n=len(found),
                    seconds=statistics.median(seconds for seconds, _ in found),
                    rate=statistics.median(work / seconds for seconds, work in found),
                )


def _run_of(verification: Mapping[str, JsonValue]) -> tuple[float, float] | None:
    """Return the seconds and the operations of the whole run of a trial; None if there was none, or if its
    result was wrong."""
    seconds, work = verification.get("seconds"), verification.get("work")
    if (
        not verification.get("ok")
        or not isinstance(seconds, int | float)
        or not isinstance(work, int | float)
    ):
        return None
    return (float(seconds), float(work)) if seconds > 0 and work > 0 else None


def whole_runs_grids(study: Study, runs: tuple[WholeRun, ...]) -> list[Grid]:
    """Return the table; an empty list without runs."""
    if not runs:
        return []
    titles = _titles(study)
    rows = tuple(
        (
            f"{r.kernel.upper()}.{r.size}, {titles[r.arm]}",
            show(r.seconds, "s"),
            _mops(r.rate),
            str(r.n),
        )
        for r in runs
    )
    heads = ("benchmark, environment", "seconds", "rate", "n")
    return [
        Grid(title="Whole runs of the benchmarks, verified: medians", heads=heads, rows=rows, numbers=True)
    ]


def _titles(study: Study) -> dict[str, str]:
    """Return the title of each arm, by its name. Arms with equal titles on emulated nodes also name their
    links."""
    titles = {a.name: side(study, a.name).title for a in study.arms()}
    counted = Counter(titles.values())
    return {
        a.name: titles[a.name]
        + (
            f", links of {link_words(a.placement)}"
            if a.placement.node.emulated and counted[titles[a.name]] > 1
            else ""
        )
        for a in study.arms()
    }


def _mops(rate: float) -> str:
    """Return a rate, given in operations per second, in the unit of the NAS benchmarks: '1,234 Mop/s'."""
    return f"{rate / 1e6:,.0f} Mop/s" if rate >= 1e9 else f"{rate / 1e6:.4g} Mop/s"


def whole_runs_json(runs: tuple[WholeRun, ...]) -> list[JsonValue]:
    return [
        {
            "workload": r.workload,
            "class": r.size,
            "arm": r.arm,
            "n": r.n,
            "seconds": r.seconds,
            "rate": r.rate,
        }
        for r in runs
    ]
