"""Commands that read results: status, analyze, report, export, list."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...api.catalog import known_names
from ...api.results import (
    FIGURES,
    living_runs,
    newest_first,
    open_results,
    open_series,
    series_below,
    write_report,
)
from ...api.series.results import frozen_series
from ...api.submitted import State, elsewhere, worker_states
from ...errors import ExitCode, UsageError
from ...records.directory import PLAN, STUDY, directories_with, report_paths
from ...records.disk import resume_line, write_output
from ...records.export import ExportFormat
from ...records.export import export as exported
from ...report.text import plural
from .. import series
from ..common import FailOn
from ..measure.measuring import exit_code
from ..options import All, Directory, Fail, Json, Results
from ..output import complain, print_json, print_lines, show, write_bytes
from ..view import analysed
from .present import print_result

if TYPE_CHECKING:
    from ...records import Verification


def status(directory: Path = Directory, results: Path = Results, json: bool = Json) -> int:
    several = open_series(directory, results, complain)
    if several is not None:
        return series.status(several, json=json)
    found = open_results(directory, results, complain)
    workers = {} if found.closed else worker_states(found)
    if not found.closed and (reason := elsewhere(found)):
        complain(f"{found.path}: {reason}; ask there how they are")
    if not found.frozen and any(state is not State.ENDED for state in workers.values()):
        lines = [f"{found.path}: no round yet", *_worker_lines(workers)]
        form = {"results_dir": str(found.path), "closed": False, "blocks": 0, "workers": workers}
        show(form, lines, json=json)
        return ExitCode.DONE
    own = analysed(found, quiet=json)
    analysis, records = own.analysis, own.trials
    running = living_runs()
    sums = found.verify() if found.closed else None
    if json:
        print_json(
            {
                "results_dir": str(found.path),
                "closed": found.closed,
                "blocks": analysis.blocks,
                "torn_blocks": analysis.torn_blocks,
                "trials": len(records),
                "failed_trials": analysis.failed_trials,
                "decided": len(analysis.cells) - len(analysis.undecided),
                "cells": len(analysis.cells),
                "running": [asdict(r) for r in running],
                "workers": workers,
                "missing_blocks": found.plan().missing,
                "nodes": {run: node["node"] for run, node in found.nodes().items()},
                "checksums": asdict(sums) if sums else None,
            }
        )
        return ExitCode.DONE

    print_lines(f"{found.path}: {'closed' if found.closed else 'open'}")
    if sums is not None:
        print_lines(_checksums(sums))
    print_lines(
        f"{plural(analysis.blocks, 'round')}, {plural(len(records), 'trial')}"
        f" ({analysis.failed_trials} failed), {plural(analysis.torn_blocks, 'incomplete round')}"
    )
    print_lines(f"{len(analysis.cells) - len(analysis.undecided)} of {len(analysis.cells)} figures decided")
    for r in running:
        print_lines(f"running now: {r.run} (pid {r.pid}: {r.command})")
    for line in _worker_lines(workers):
        print_lines(line)
    if not running and (not found.closed or analysis.undecided):
        print_lines(f"go on with:  {resume_line(found.path)}")
    return ExitCode.DONE


def _worker_lines(workers: Mapping[str, State]) -> list[str]:
    return [f"worker {worker}: {state}" for worker, state in workers.items()]


def _checksums(sums: Verification) -> str:
    touched = [*sums.changed, *(f"{name} (gone)" for name in sums.missing)]
    added = [f"{name} (added)" for name in sums.unlisted]
    if not touched and not added:
        return f"all {sums.checked} files are as they were when it was closed"
    return f"not as they were when it was closed: {', '.join(touched + added)}"


def analyze(
    directory: Path = Directory,
    results: Path = Results,
    json: bool = Json,
    everything: bool = All,
    fail_on: FailOn = Fail,
) -> int:
    several = open_series(directory, results, complain)
    if several is not None:
        frozen = frozen_series(several)
        return series.tell(several, frozen, json=json, fail_on=fail_on, everything=everything)
    found = open_results(directory, results, complain)
    own = analysed(found, quiet=json)
    print_result(own, json=json, everything=everything)
    return exit_code(own.analysis, fail_on)


def report(
    directory: Path = Directory,
    results: Path = Results,
    figures: bool = typer.Option(False, "--figures", help="Also write each figure as SVG, PNG and PDF."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be written, and write nothing."),
    json: bool = typer.Option(False, "--json", help="The paths of the files as JSON on standard output."),
) -> int:
    several = open_series(directory, results, complain)
    if several is not None:
        return series.report(several, figures=figures, dry_run=dry_run, json=json)
    found = open_results(directory, results, complain)
    own = analysed(found, quiet=json)
    if not own.analysis.blocks:
        raise UsageError(
            "no complete round yet: nothing to report", where=str(found.path), remedy=resume_line(found.path)
        )
    if dry_run:
        paths = [*map(str, report_paths(found.path)), *([str(found.path / FIGURES)] if figures else [])]
        show(paths, paths, json=json)
        return ExitCode.DONE
    files = [str(f) for f in write_report(own, figures=figures)]
    if found.closed:
        found.close()
    show(files, files, json=json)
    return ExitCode.DONE


def export(
    directory: Path = Directory,
    format: str = typer.Option("csv", "--format", metavar="FORMAT", help="csv, json, parquet or benchfmt."),
    output: Path = typer.Option(
        None, "--output", "-o", metavar="FILE", help="A file; by default standard output."
    ),
    results: Path = Results,
) -> int:
    try:
        kind = ExportFormat(format)
    except ValueError:
        raise UsageError(
            f"--format: {format!r} is not one of {', '.join(f.value for f in ExportFormat)}"
        ) from None
    found = open_results(directory, results, complain)
    # The other formats contain records only, so nothing is analysed for them.
    data = exported(found, analysed(found).cells if kind is ExportFormat.JSON else (), kind)
    if output is None:
        if kind is ExportFormat.PARQUET and sys.stdout.isatty():
            raise UsageError("Parquet is binary, and this is a terminal", remedy="--output results.parquet")
        write_bytes(data)
    else:
        try:
            write_output(output, data)
        except OSError as e:
            raise UsageError(f"cannot be written: {e.strerror}", where=str(output)) from e
    return ExitCode.DONE


def list_(results: Path = Results, json: bool = Json) -> int:
    found, several = newest_first(results, complain), series_below(results, complain)
    planned = set(directories_with(PLAN, results))
    empty = [path for path in directories_with(STUDY, results) if path not in planned]
    known = known_names()
    if json:
        print_json(
            {
                **known,
                "ended_before_first_block": [str(p) for p in empty],
                "results": [
                    {
                        "results_dir": str(d.path),
                        "study": d.plan().study,
                        "created": d.plan().created,
                        "closed": d.closed,
                    }
                    for d in found
                ],
                "in_parts": [str(d.path) for d in several],
            }
        )
        return ExitCode.DONE
    for what, named in known.items():
        print_lines(f"{what:<14}{', '.join(named)}")
    print_lines("results")
    for d in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(d.plan().created))
        print_lines(f"  {d.path}  {when}  {'closed' if d.closed else 'open'}")
    for s in several:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(s.created))
        print_lines(f"  {s.path}  {when}  in parts")
    for path in empty:
        print_lines(f"  {path}  no round yet; if it has ended, its logs say why")
    if not found and not empty and not several:
        print_lines("  none yet; make some: nearmetal quick")
    return ExitCode.DONE
