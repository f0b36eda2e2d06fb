"""The command try. It measures whether a suggested change of a result helps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...api.results import open_results
from ...api.trust import PLAN, directory_to_run
from ...records.disk import TRY_SECONDS
from ...report.forms.json_form import cell_json
from ...units import show_effect
from ..options import OF_ENGINES, OwnDirectory, RunOptions, Trust, with_run_options
from ..output import print_json, print_lines
from ..read.present import print_result, result_json
from ..trust import asker
from ..view import analysed
from .measuring import measure

if TYPE_CHECKING:
    from ...api.adhoc.try_change import SuggestedChange, TryResult
    from ...api.results import Results


@with_run_options(
    *("mode", "width", "everything", "fail_on", "overrun", "require", *OF_ENGINES), time=f"{TRY_SECONDS}s"
)
def try_(
    directory: Path = OwnDirectory,
    trust: bool = Trust,
    cell: str = typer.Option(
        "",
        "--cell",
        metavar="CELL",
        help="environment/placement:workload.metric; by default the largest cost with a suggestion.",
    ),
    *,
    options: RunOptions,
) -> int:
    from ...api.adhoc.try_change import suggested_change

    directory = directory_to_run(
        directory, options.results, holding=(PLAN,), trust=trust, ask=asker(), dry_run=options.dry_run
    )
    first = analysed(open_results(directory), quiet=options.json)
    change = suggested_change(first, cell, options.seed)
    print_lines(f"{change.cell.arm}, {change.cell.label}: trying {change.words}", to=sys.stderr)

    def show(second: Results) -> None:
        result, follows = change.result(second.analysis), bool(second.analysis.blocks)
        if options.json:
            print_json({"try": _as_json(change, result), **result_json(second, page_follows=follows)})
        else:
            print_result(second, json=False, page_follows=follows)
            print_lines("", f"{change.words}: {_sentence(result)}")

    return measure(change.study, options, show=show)


def _sentence(result: TryResult) -> str:
    if result.cell is None:
        return result.words
    c = result.cell
    return f"{result.words}, {show_effect(c.overhead, c.low, c.high)} in time, n {c.n} ({c.verdict})"


def _as_json(change: SuggestedChange, result: TryResult) -> dict[str, object]:
    cause = change.cell.attribution
    return {
        "cell": change.cell.key,
        "cause": cause.sentence if cause is not None else "",
        "change": change.words,
        "helps": result.helps,
        "words": result.words,
        "verdict": None if result.cell is None else result.cell.verdict.value,
        "effect": None if result.cell is None else cell_json(result.cell, by_block=False),
    }
