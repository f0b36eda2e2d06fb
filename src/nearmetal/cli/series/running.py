"""Runs and resumes a study of several parts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...api.catalog import catalog
from ...api.images import build_images
from ...api.measuring import bounded, machine_for, machine_here
from ...api.results import frozen_study, write_report
from ...api.studies import study_text
from ...errors import BusyError, DiskFullError, ExitCode, NearmetalError, UnavailableError
from ...model.series import Part, Series
from ...model.study import Study
from ...records import SeriesDirectory
from ...records.disk import resume_line
from ...study_file import dump_study
from ...units import show_clock
from ..common import duration
from ..measure.measuring import begun_of, order_of
from ..options import RunOptions
from ..plan_text import estimated, foreseen
from ..view import View, analysed
from .planning import RequestedSeries, alone, checked_series, reason, show_series
from .results import frozen_series, tell, waiting_parts
from .sizes import sized

if TYPE_CHECKING:
    from ...node.machine import Machine
    from ...records import ResultsDirectory, SeriesDirectory
    from ...run.estimate import RunEstimate
    from ...run.run import Outcome

NO_TIME = "no time was left for it; nearmetal resume measures it"
OVERRUN = (
    "note: --overrun: a part whose time is used up goes on until its verdicts are given next. "
    "The later parts keep their shares, so the whole takes longer than its time."
)
Start = Callable[[Part, Study, "SeriesDirectory", "ResultsDirectory | None", float], "Outcome"]
"""A function that runs the study of one part, or resumes it if it has a results directory. The last argument
is the number of seconds until which its first round may begin."""


def create(series: Series, results: Path, table: str) -> SeriesDirectory:
    """Make the directory of a series, with the frozen studies of its parts.

    table: text of a published table of the user's; '' for none.
    """
    texts = {p.key: dump_study(p.study, catalog()) for p in series.parts if p.study is not None}
    return SeriesDirectory.create(results, series, texts, table)


def run_series(found: RequestedSeries, options: RunOptions) -> int:
    """Run a study in parts and show its result, or with --dry-run its plan. Returns the exit code."""
    from ...run.series import able, offer_here

    with View(quiet=options.json, told=set()) as view:
        machine = machine_here(view, None)
        series = found.narrowed(offer_here(found.files, machine, view, found.backend), able)
        if options.dry_run:
            series = checked_series(series, machine, view, require_kvm=options.require_kvm)
    if options.dry_run:
        show_series(_bounded(series, options.max_blocks), json=options.json, blocks=None)
        return ExitCode.DONE
    directory = create(series, options.results, found.files.table)
    start = _part_runner(machine, options, resuming=False)
    return run_parts(directory, series, start, options, seconds=series.max_time)


def resume_series(directory: SeriesDirectory, options: RunOptions) -> int:
    """Resume a study in parts and show its result, or with --dry-run its plan. Returns the exit code."""
    series = frozen_series(directory)
    seconds = duration(options.time) or series.max_time
    with View(quiet=options.json, told=set()) as view:
        machine = machine_here(view, None)
        if options.dry_run:
            series = replace(series, max_time=seconds, parts=tuple(waiting_parts(directory, series)))
            found = {p.key: part for p in series.parts if (part := directory.part(p)) is not None}
            series = checked_series(series, machine, view)
    if options.dry_run:
        series = _bounded(series, options.max_blocks)
        begun = {p.key: begun_of(p.study, found[p.key]) for p in series.parts if p.study and p.key in found}
        show_series(series, json=options.json, blocks=None, begun=begun)
        return ExitCode.DONE
    start = _part_runner(machine, options, resuming=True)
    return run_parts(directory, series, start, options, seconds=seconds)


def _bounded(series: Series, max_blocks: int | None) -> Series:
    """Return the series with at most max_blocks blocks in each part; unchanged for None."""
    parts = (p if p.study is None else replace(p, study=bounded(p.study, max_blocks)) for p in series.parts)
    return replace(series, parts=tuple(parts))


def _part_runner(machine: Machine, options: RunOptions, *, resuming: bool) -> Start:
    """Return a function that runs or resumes one part of a series below its directory."""
    from ...run.run import resume_run, start_run

    told: set[str] = set()  # every part has the same notes on the machine

    def start(
        part: Part,
        study: Study,
        into: SeriesDirectory,
        found: ResultsDirectory | None,
        first_until: float,
    ) -> Outcome:
        began = time.monotonic()
        with View(quiet=options.json, told=told) as view:
            fitting, study = machine_for(study, view, machine=machine, require_kvm=options.require_kvm)
            text = study_text(study) if found is None else found.study_yaml
            order = replace(
                order_of(options, text, into.path),
                longer=alone(part, resuming=resuming),
                begin=began,
                first_until=first_until,
            )
            if found is None:
                return start_run(fitting, bounded(study, options.max_blocks), order, view)
            frozen = frozen_study(found)
            again = replace(frozen, design=replace(frozen.design, max_time=study.design.max_time))
            return resume_run(fitting, bounded(again, options.max_blocks), found, order, view)

    return start


def run_parts(
    directory: SeriesDirectory, series: Series, start: Start, options: RunOptions, *, seconds: float
) -> int:
    """Run every part that is not done yet. If all are done, run those without a verdict again.

    A part that cannot run here is reported, recorded and skipped. Returns the exit code.

    seconds: time of all parts. With --overrun the time by which a part exceeds its share is added to it, so
        that the later parts keep their shares.
    """
    from ...run.series import OVERESTIMATE, next_part, shortest, with_time

    waiting = waiting_parts(directory, series)
    least = {p.key: shortest(p, _guess(directory)) for p in waiting}
    begin, begun = time.monotonic(), False
    if not waiting:
        print("every part is done, and every comparison that can be read has its verdict", file=sys.stderr)
    if options.overrun:
        print(OVERRUN, file=sys.stderr)
    while waiting:
        left = seconds - (time.monotonic() - begin)
        part, share = next_part(waiting, left, least)
        assert part.study is not None
        study = with_time(part.study, share)
        waiting.remove(part)
        if left <= 0 or (begun and left < least[part.key].rehearsal_seconds / OVERESTIMATE):
            directory.ended(part.key, NO_TIME)
            print(f"{part.key}: {NO_TIME}", file=sys.stderr)
            continue
        print(f"{part.key}: {part.title}", file=sys.stderr)
        begun = True
        try:
            begin += _built(part.study, json=options.json)
            started = time.monotonic()
            study = sized(directory, series, part, study)
            outcome = start(part, study, directory, directory.part(part), left)
        except (BusyError, DiskFullError):
            raise
        except KeyboardInterrupt:  # while an image is built
            return _interrupted(directory, series, options)
        except NearmetalError as e:
            print(f"{part.key} did not run: {e}", file=sys.stderr)
            directory.ended(part.key, f"did not run: {reason(e)}")
            continue
        over = time.monotonic() - started - share
        if options.overrun and over > 0:
            begin += over
            print(f"{part.key} took {show_clock(over)} more than its share", file=sys.stderr)
        directory.ended(part.key, outcome.stopped)
        if outcome.directory is not None:
            own = analysed(outcome.directory)
            if own.analysis.blocks:
                write_report(own)
            if not outcome.interrupted:
                outcome.directory.close()
        if outcome.interrupted:
            return _interrupted(directory, series, options)
    return _tell(directory, series, options)


def _guess(directory: SeriesDirectory) -> Callable[[Part, Study], RunEstimate]:
    """Return a function that estimates the run of a part, or the rest of it if it was begun."""

    def guess(part: Part, study: Study) -> RunEstimate:
        found, begun = directory.part(part), None
        if found is not None:
            with suppress(NearmetalError):  # results that cannot be read stop only their part
                begun = begun_of(study, found)
        return estimated(foreseen(study), begun)

    return guess


def _tell(directory: SeriesDirectory, series: Series, options: RunOptions) -> ExitCode:
    return tell(directory, series, json=options.json, fail_on=options.fail_on, everything=options.everything)


def _interrupted(directory: SeriesDirectory, series: Series, options: RunOptions) -> int:
    _tell(directory, series, options)
    print(f"interrupted. Go on with:  {resume_line(directory.path)}", file=sys.stderr)
    return ExitCode.INTERRUPTED


def _built(study: Study, *, json: bool) -> float:
    """Build the images that a study needs. Returns the seconds that this took: the time limit of a series
    does not include them.

    Raises UnavailableError or RunError.
    """
    begin = time.monotonic()
    with View(quiet=json) as view:
        try:
            build_images(study, view.phase)
        except BusyError as e:  # another process builds the image: only this part cannot run
            raise UnavailableError(e.what, where=e.where, remedy=e.remedy) from e
    return time.monotonic() - begin
