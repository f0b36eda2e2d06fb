"""Shows the plan and the results of a study of several parts, and runs it for the commands."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..api.measuring import machine_here
from ..api.series.planning import RequestedSeries, checked_series, images_to_build, part_times, series_here
from ..api.series.results import frozen_series, part_results, summarised, waiting_parts, write_reports
from ..api.series.running import (
    bounded_series,
    checked_rest,
    create_series,
    more_time,
    part_starter,
    run_parts,
)
from ..errors import ExitCode
from ..model.series import Part, Series, omission_lines
from ..model.study import Study
from ..plain_text import one_line
from ..records.disk import resume_line
from ..report.text import plural
from ..units import show_clock
from .common import FailOn, duration
from .measure.measuring import exit_code, order_of
from .options import RunOptions
from .output import complain, print_block, print_json, print_lines, show
from .plan_text import estimate_json, show_plan
from .read.present import print_result
from .view import View, analysed

if TYPE_CHECKING:
    from ..api.estimates import PartProgress, RunEstimate
    from ..api.series.running import Machine, Open, Start
    from ..records import SeriesDirectory


def run_series(found: RequestedSeries, options: RunOptions) -> int:
    """Run a study in parts and show its result, or with --dry-run its plan. Returns the exit code."""
    with View(quiet=options.json, shown=set()) as view:
        machine, series = series_here(found, view)
        if options.dry_run:
            series = checked_series(series, machine, view, require_kvm=options.require_kvm)
    if options.dry_run:
        show_series(bounded_series(series, options.max_blocks), json=options.json, blocks=None)
        return ExitCode.DONE
    directory = create_series(series, options.results, found.files.table, complain)
    start = _starter(machine, options, resuming=False)
    return measure_parts(directory, series, start, options, seconds=series.max_time)


def resume_series(directory: SeriesDirectory, options: RunOptions) -> int:
    """Resume a study in parts and show its result, or with --dry-run its plan. Returns the exit code."""
    series = frozen_series(directory)
    seconds = duration(options.time) or series.max_time
    with View(quiet=options.json, shown=set()) as view:
        if options.dry_run:
            series, begun = checked_rest(directory, series, view, seconds=seconds)
        else:
            machine = machine_here(view, None)
    if options.dry_run:
        series = bounded_series(series, options.max_blocks)
        show_series(series, json=options.json, blocks=None, begun=begun)
        return ExitCode.DONE
    start = _starter(machine, options, resuming=True)
    return measure_parts(directory, series, start, options, seconds=seconds)


def _starter(machine: Machine, options: RunOptions, *, resuming: bool) -> Start:
    return part_starter(
        machine,
        order_of(options),
        _views(options),
        resuming=resuming,
        max_blocks=options.max_blocks,
        require_kvm=options.require_kvm,
    )


def _views(options: RunOptions) -> Open:
    shown: set[str] = set()  # every part has the same notes on the machine
    return lambda: View(quiet=options.json, shown=shown)


def measure_parts(
    directory: SeriesDirectory, series: Series, start: Start, options: RunOptions, *, seconds: float
) -> int:
    """Run the parts of a series that are not done yet, and show the result. Returns the exit code.

    start: starts or resumes one part (part_starter()).
    seconds: time budget of all parts.
    """
    interrupted = run_parts(
        directory,
        series,
        start,
        _views(options),
        seconds=seconds,
        overrun=options.overrun,
        note=_say,
        analyse=analysed,
    )
    code = tell(directory, series, json=options.json, fail_on=options.fail_on, everything=options.everything)
    if interrupted:
        print_lines(f"interrupted. Go on with:  {resume_line(directory.path)}", to=sys.stderr)
        return ExitCode.INTERRUPTED
    return code


def _say(text: str) -> None:
    print_lines(text, to=sys.stderr)


def show_series(
    series: Series,
    *,
    json: bool,
    blocks: int | None,
    begun: Mapping[str, PartProgress] | None = None,
) -> None:
    """Print the plan of a series: the next blocks and the estimated time of every part.

    series: the series to plan. To resume one, without the parts that are done.
    blocks: number of blocks to print per part; one if None.
    begun: progress of the parts that were begun, by key; None for a new series.
    """
    resuming, begun = begun is not None, begun or {}
    timed, builds = part_times(series, begun), images_to_build(series)
    if json:
        print_json(
            {
                "study": series.name,
                "title": series.title,
                "scale": None if series.scale is None else series.scale.value,
                "seed": series.seed,
                "max_time": series.max_time,
                "notes": list(series.notes),
                "images_to_build": builds,
                "parts": [_planned(p, timed, begun.get(p.key)) for p in series.parts],
            }
        )
        return
    print_lines(one_line(series.title))
    scale = "" if series.scale is None else f"scale {series.scale} · "
    print_lines(f"{scale}{plural(len(series.parts), 'part')} · {show_clock(series.max_time)} in all")
    for note in series.notes:
        print_lines(f"  {note}")
    for part in series.parts:
        print_lines("", f"{part.key}  {one_line(part.title)}")
        for note in part.notes:
            print_lines(f"  {note}")
        for line in omission_lines(part.left_out):
            print_lines(f"  left out: {line}")
        if part.study is None:
            print_lines(f"  not here: {part.absent}")
        elif part.key not in timed:
            more = more_time(part, resuming=resuming)
            print_lines(f"  not in this time: the parts before it use it up; next: {more} TIME")
        else:
            show_plan(
                timed[part.key][0],
                json=False,
                blocks=blocks or 1,
                begun=begun.get(part.key),
                longer=more_time(part, resuming=resuming),
            )
    for name, seconds in builds.items():
        print_lines(
            "", f"image {name} is not built and is built first: about {show_clock(seconds)} (estimated)"
        )
    whole = sum(e.seconds for _, e in timed.values()) + sum(builds.values())
    beside = "; building images does not count against the time of the study" if builds else ""
    print_lines("", f"all parts: about {show_clock(whole)} (estimated){beside}")


def _planned(
    part: Part, timed: Mapping[str, tuple[Study, RunEstimate]], begun: PartProgress | None
) -> dict[str, object]:
    head: dict[str, object] = {
        "part": part.key,
        "title": part.title,
        "notes": list(part.notes),
        "left_out": [asdict(o) for o in part.left_out],
    }
    if part.study is None:
        return {**head, "absent": part.absent}
    head["blocks_done"] = 0 if begun is None else len(begun.done)
    if part.key not in timed:
        return {**head, "estimated_blocks": 0, "estimated_seconds": 0.0}
    return {
        **head,
        "question": part.study.question,
        "arms": [a.name for a in part.study.arms()],
        **estimate_json(timed[part.key][1]),
    }


def tell(
    directory: SeriesDirectory, series: Series, *, json: bool, fail_on: FailOn, everything: bool = False
) -> ExitCode:
    """Write the summary report and print it. Returns the largest exit code of the parts.

    everything: also print every figure of each part, with causes, upper bounds and counters.
    """
    from ..report.series import series_json, series_text

    found = summarised(directory, series, analysed)
    results, paper, page = found.results, found.paper, str(found.page)
    if json:
        print_json(series_json(series, results, paper, results_dir=str(directory.path), report=page))
    else:
        print_block(series_text(series, results, paper))
        for part, own in found.whole if everything else ():
            if own.analysis.blocks:
                print_lines("", f"All of part {part.key}: {one_line(part.title)}", "")
                print_result(own, json=False, everything=True)
        print_lines(f"Report: {page}")
    codes = [exit_code(r.analysis, fail_on) for r in results if r.analysis is not None]
    missing = any(r.analysis is None and not r.part.absent for r in results)
    return max([*codes, ExitCode.FAILED_TRIALS if missing else ExitCode.DONE])


def status(directory: SeriesDirectory, *, json: bool) -> int:
    """Show the progress of every part. Returns the exit code."""
    from ..report.series import scale_text

    series = frozen_series(directory)
    results = part_results(directory, series, analyse=analysed)
    rows = [
        {
            "part": r.part.key,
            "title": r.part.title,
            "results_dir": None if r.directory is None else str(directory.path / r.directory),
            "blocks": 0 if r.analysis is None else r.analysis.blocks,
            "cells": 0 if r.analysis is None else len(r.analysis.cells),
            "decided": 0 if r.analysis is None else len(r.analysis.cells) - len(r.analysis.undecided),
            "why": r.why,
        }
        for r in results
    ]
    if json:
        print_json({"results_dir": str(directory.path), "study": series.name, "parts": rows})
        return ExitCode.DONE
    print_lines(f"{directory.path}: {one_line(series.title)}{scale_text(series.scale)}")
    for row, r in zip(rows, results, strict=True):
        rounds = plural(0 if r.analysis is None else r.analysis.blocks, "round")
        decided = f"{row['decided']} of {row['cells']} figures decided"
        print_lines(f"  {r.part.key:<10}{rounds}, {decided}; {r.why}")
    if waiting_parts(directory, series, analysed):
        print_lines(f"go on with:  {resume_line(directory.path)}")
    return ExitCode.DONE


def report(directory: SeriesDirectory, *, figures: bool, dry_run: bool, json: bool) -> int:
    """Write the report of every part and the summary again. Returns the exit code."""
    files = write_reports(directory, figures=figures, dry_run=dry_run, note=complain, analyse=analysed)
    paths = [str(f) for f in files]
    show(paths, paths, json=json)
    return ExitCode.DONE
