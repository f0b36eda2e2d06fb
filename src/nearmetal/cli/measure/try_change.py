"""The command try. It measures whether a suggested change of a result helps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...api.measuring import measured
from ...api.results import open_results
from ...api.studies import draw_seed, study_text
from ...records.disk import TRY_SECONDS
from ...report.forms.json_form import cell_json
from ...units import show_effect
from ..common import complain, print_json
from ..options import OF_ENGINES, Directory, RunOptions, with_run_options
from ..read.present import print_result, result_json
from ..view import View, analysed
from .measuring import changed, finish, measure, order_of

if TYPE_CHECKING:
    from ...api.results import Results
    from ...model.result import Cell
    from ...run.adhoc.try_change import TryResult


@with_run_options(
    *("mode", "width", "everything", "fail_on", "overrun", "require", *OF_ENGINES), time=f"{TRY_SECONDS}s"
)
def try_(
    directory: Path = Directory,
    cell: str = typer.Option(
        "",
        "--cell",
        metavar="CELL",
        help="environment/placement:workload.metric; by default the largest cost with a suggestion.",
    ),
    *,
    options: RunOptions,
) -> int:
    from ...run.adhoc.try_change import answer, chosen, suggestion_of, try_study

    found = open_results(directory, options.results, complain)
    first = analysed(found, quiet=options.json)
    tried = chosen(first.analysis, cell, str(found.path))
    suggestion = suggestion_of(tried)
    words = suggestion.words if suggestion is not None else ""
    seed = draw_seed() if options.seed is None else options.seed
    study = changed(try_study(first.study, tried, seed=seed), options)
    print(f"{tried.arm}, {tried.label}: trying {words}", file=sys.stderr)
    if options.dry_run:
        return measure(study, options)

    def show(second: Results) -> None:
        result, follows = answer(second.analysis, tried), bool(second.analysis.blocks)
        if options.json:
            print_json({"try": _as_json(tried, words, result), **result_json(second, page_follows=follows)})
        else:
            print_result(second, json=False, page_follows=follows)
            print(f"\n{words}: {_sentence(result)}")

    with View(quiet=options.json) as view:
        order = order_of(options, study_text(study))
        outcome = measured(study, order, view, max_blocks=options.max_blocks)
    return finish(outcome, options, show)


def _sentence(result: TryResult) -> str:
    if result.cell is None:
        return result.words
    c = result.cell
    return f"{result.words}, {show_effect(c.overhead, c.low, c.high)} in time, n {c.n} ({c.verdict})"


def _as_json(tried: Cell, words: str, result: TryResult) -> dict[str, object]:
    return {
        "cell": tried.key,
        "cause": tried.attribution.sentence if tried.attribution is not None else "",
        "change": words,
        "helps": result.helps,
        "words": result.words,
        "verdict": None if result.cell is None else result.cell.verdict.value,
        "effect": None if result.cell is None else cell_json(result.cell, by_block=False),
    }
