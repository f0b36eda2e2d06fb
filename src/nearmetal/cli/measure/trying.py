"""The command try. It measures whether a suggested change of a result helps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...api.measuring import measured
from ...api.results import open_results, write_report
from ...api.studies import draw_seed, study_text
from ...errors import ExitCode
from ...records.disk import TRY_SECONDS
from ...report.forms.json_form import cell_json
from ...units import show_effect
from ..common import complain, duration, print_json
from ..options import OF_ENGINES, Directory, Margin, MaxBlocks, RunOptions, Seed, with_run_options
from ..read.present import print_result, result_json
from ..view import View, analysed
from .measuring import changed, finish, measure, order_of

if TYPE_CHECKING:
    from ...model.result import Cell
    from ...run.adhoc.trying import TryResult


@with_run_options("everything", "fail_on", "overrun", "require", *OF_ENGINES)
def try_(
    directory: Path = Directory,
    cell: str = typer.Option(
        "",
        "--cell",
        metavar="CELL",
        help="environment/placement:workload.metric; by default the largest cost with a suggestion.",
    ),
    time: str = typer.Option(
        f"{TRY_SECONDS}s", "--time", metavar="TIME", help="Time budget, such as 90s or 10m."
    ),
    margin: str = Margin,
    max_blocks: int = MaxBlocks,
    seed: int = Seed,
    *,
    options: RunOptions,
) -> int:
    from ...run.adhoc.trying import answer, chosen, suggestion_of, try_study

    found = open_results(directory, options.results, complain)
    first = analysed(found, quiet=options.json)
    before, analysis = first.study, first.analysis
    tried = chosen(analysis, cell, str(found.path))
    suggestion = suggestion_of(tried)
    words = suggestion.words if suggestion is not None else ""
    study = try_study(
        before,
        tried,
        seed=draw_seed() if seed is None else seed,
        max_time=duration(time) or TRY_SECONDS,
    )
    study = changed(study, time=None, margin=margin)
    print(f"{tried.arm}, {tried.label}: trying {words}", file=sys.stderr)
    if options.dry_run:
        return measure(study, options, max_blocks)
    with View(quiet=options.json) as view:
        order = order_of(options.results, study_text(study), force=options.force)
        outcome = measured(study, order, view, max_blocks=max_blocks)
    if outcome.directory is None:
        return finish(outcome, options)
    second = analysed(outcome.directory, quiet=options.json)
    if second.analysis.blocks:
        write_report(second)
    result = answer(second.analysis, tried)
    if options.json:
        print_json({"try": _as_json(tried, words, result), **result_json(second)})
    else:
        print_result(second, json=False)
        print(f"\n{words}: {_sentence(result)}")
    if outcome.interrupted:
        return int(ExitCode.INTERRUPTED)
    outcome.directory.close()
    return int(ExitCode.FAILED_TRIALS if second.analysis.failed_trials else ExitCode.DONE)


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
