"""Runs, resumes, shows and reports a study of several parts as a whole."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..api.catalog import catalog
from ..api.images import build_images, unbuilt_images
from ..api.measuring import bounded, checked_on, fitted, machine_here
from ..api.results import frozen_study, write_report
from ..api.series import paper_of, read_series
from ..api.studies import draw_seed, study_text
from ..errors import BusyError, DiskFullError, ExitCode, NearmetalError, UnavailableError, UsageError
from ..host import LocalHost
from ..images.build import build_seconds
from ..model.series import Part, Scale, Series
from ..model.series_file import SeriesFiles
from ..model.study import Study
from ..plan.narrowing import MachineOffer, narrow
from ..records import SeriesDirectory
from ..records.disk import resume_line
from ..report.text import plural
from ..run.estimate import estimate
from ..samplers import GUESTS, read_sections
from ..studies import SeriesSource
from ..study_file import dump_study, load_study
from ..units import show_clock
from .common import FailOn, duration, print_json
from .measuring import exit_code, order_of
from .plan_text import show_plan
from .view import View, analysed

if TYPE_CHECKING:
    from ..model.result import Analysis
    from ..node.machine import Machine
    from ..node.progress import Progress
    from ..records import ResultsDirectory, SeriesDirectory
    from ..report.series import PartResult
    from ..run.run import Outcome
    from ..samplers import SampleSection

NO_TIME = "no time was left for it"
Start = Callable[[Study, "SeriesDirectory", "ResultsDirectory | None"], "Outcome"]
"""A function that runs one part, or resumes it if it has a results directory."""


@dataclass(frozen=True, kw_only=True)
class SeriesOptions:
    """The options of a series on the command line.

    source: where its files are.
    scale: scale of a built-in series; None for the default.
    only: keys of parts, as given.
    seconds: total time of all parts.
    seed: seed of the series; drawn if None.
    backend: backend of its instances; None for those that the series file prefers.
    """

    source: SeriesSource
    scale: Scale | None
    only: Sequence[str]
    seconds: float | None
    seed: int | None
    backend: str | None = None


@dataclass(frozen=True, kw_only=True)
class RequestedSeries:
    """A series as read from its files, before this machine narrows it.

    only: keys of the requested parts; empty for all.
    """

    files: SeriesFiles
    seed: int
    seconds: float
    only: tuple[str, ...]

    def narrowed(self, offer: MachineOffer, able: Callable[[Series], Series] | None = None) -> Series:
        """Return the series that a machine can run.

        able: removes what no machine can run.

        Raises UnavailableError if it can run no part.
        """
        series = narrow(self.files, offer, seed=self.seed, max_time=self.seconds, only=self.only)
        series = series if able is None else able(series)
        if all(p.study is None for p in series.parts):
            omissions = dict.fromkeys(o for p in series.parts for o in p.left_out)
            raise UnavailableError(
                f"no part of {series.name} runs here: "
                + "; ".join(dict.fromkeys(p.absent for p in series.parts)),
                remedy="; ".join(dict.fromkeys(o.remedy for o in omissions if o.remedy)),
            )
        return series


def requested_series(options: SeriesOptions) -> RequestedSeries:
    """Read the files of the series.

    Raises StudyError if they have mistakes, UsageError if there is no part with a given key.
    """
    seed = draw_seed() if options.seed is None else options.seed
    files = read_series(options.source, scale=options.scale, seed=seed)
    known = [entry.name for entry in files.head.parts]
    keys = tuple(k for text in options.only for k in text.split(",") if k)
    for key in keys:
        if key not in known:
            raise UsageError(f"--only: no part {key}", remedy=f"one of {', '.join(known)}")
    seconds = options.seconds or files.head.time
    return RequestedSeries(files=files, seed=seed, seconds=seconds, only=keys)


def planned_series(options: SeriesOptions) -> Series:
    """Return the series as a plan shows it. Nothing is started."""
    from ..run.series import able, offer_planned

    found = requested_series(options)
    return found.narrowed(offer_planned(found.files, LocalHost(), options.backend), able)


def checked_series(
    series: Series, machine: Machine, progress: Progress, *, require_kvm: bool = False
) -> Series:
    """Return the series as it would run here. A part that cannot run on this machine gets the reason instead
    of its study. Nothing is measured.

    require_kvm: as in with_accelerators().

    Raises the error of the first part if none can run.
    """
    parts, errors = [], []
    for part in series.parts:
        if part.study is not None and not unbuilt_images(part.study):  # what needs an image is not known
            try:
                study = checked_on(machine, part.study, progress, require_kvm=require_kvm)
                part = replace(part, study=study)
            except NearmetalError as e:
                errors.append(e)
                part = replace(part, study=None, absent=e.what)
        parts.append(part)
    if errors and all(part.study is None for part in parts):
        raise errors[0]
    return replace(series, parts=tuple(parts))


def show_series(series: Series, *, json: bool, blocks: int | None, shown: str = "") -> None:
    """Show the order and time of every part, before anything is measured.

    shown: the series as named on the command line.
    """
    if json:
        print_json(
            {
                "study": series.name,
                "title": series.title,
                "scale": None if series.scale is None else series.scale.value,
                "seed": series.seed,
                "max_time": series.max_time,
                "notes": list(series.notes),
                "images_to_build": _builds(series),
                "parts": [_planned(series, p) for p in series.parts],
            }
        )
        return
    print(series.title)
    scale = "" if series.scale is None else f"scale {series.scale} · "
    print(f"{scale}{plural(len(series.parts), 'part')} · {show_clock(series.max_time)} in all")
    for note in series.notes:
        print(f"  {note}")
    for part in series.parts:
        print(f"\n{part.key}  {part.title}")
        for note in part.notes:
            print(f"  {note}")
        for omission in part.left_out:
            print(f"  left out: {omission}")
        if part.study is None:
            print(f"  not here: {part.absent}")
        else:
            show_plan(_timed(series, part, part.study), json=False, blocks=blocks or 1, shown=shown)
    known = [estimate(_timed(series, p, p.study)) for p in series.parts if p.study is not None]
    builds = _builds(series)
    for name, seconds in builds.items():
        print(f"\nimage {name} is not built and is built first: about {show_clock(seconds)} (estimated)")
    whole = sum(e.seconds for e in known) + sum(builds.values())
    print(f"\nall parts: about {show_clock(whole)} (estimated)")


def _builds(series: Series) -> dict[str, float]:
    """Return the estimated time to build each image that is not built yet, in seconds."""
    found = [unbuilt_images(p.study) for p in series.parts if p.study is not None]
    return {name: build_seconds(d) for images in found for name, d in images.items()}


def _planned(series: Series, part: Part) -> dict[str, object]:
    head: dict[str, object] = {
        "part": part.key,
        "title": part.title,
        "notes": list(part.notes),
        "left_out": [asdict(o) for o in part.left_out],
    }
    if part.study is None:
        return {**head, "absent": part.absent}
    guess = estimate(_timed(series, part, part.study))
    return {
        **head,
        "question": part.study.question,
        "arms": [a.name for a in part.study.arms()],
        "estimated_blocks": guess.blocks,
        "estimated_block_seconds": guess.block_seconds,
        "estimated_seconds": guess.seconds,
    }


def _timed(series: Series, part: Part, study: Study) -> Study:
    """Return the study with the share of the time that belongs to its part."""
    from ..run.series import budget

    waiting = [p for p in series.parts if p.study is not None]
    return _within(study, budget(part, waiting, series.max_time))


def _within(study: Study, seconds: float) -> Study:
    return replace(study, design=replace(study.design, max_time=seconds))


def create(series: Series, results: Path, table: str) -> SeriesDirectory:
    """Make the directory of a series, with the frozen studies of its parts.

    table: text of a published table of the user's; '' for none.
    """
    texts = {p.key: dump_study(p.study, catalog()) for p in series.parts if p.study is not None}
    return SeriesDirectory.create(results, series, texts, table)


def frozen_series(directory: SeriesDirectory) -> Series:
    """Return the series that is stored in a directory."""
    return directory.series(lambda path: load_study(path, None))


def run_series(
    options: SeriesOptions,
    results: Path,
    max_blocks: int | None,
    *,
    shown: str,
    json: bool,
    fail_on: FailOn,
    force: bool,
    dry_run: bool,
    require_kvm: bool,
) -> int:
    """Run a study in parts and show its result, or with dry_run its plan. Returns the exit code.

    shown: the series as named on the command line.
    """
    from ..run.series import able, offer_here

    found = requested_series(options)
    with View(quiet=json) as view:
        machine = machine_here(view, None)
        series = found.narrowed(offer_here(found.files, machine, view, options.backend), able)
        if dry_run:
            series = checked_series(series, machine, view, require_kvm=require_kvm)
    if dry_run:
        show_series(series, json=json, blocks=None, shown=shown)
        return int(ExitCode.DONE)
    return run_parts(
        create(series, results, found.files.table),
        series,
        _part_runner(machine, max_blocks, json=json, force=force, require_kvm=require_kvm),
        seconds=series.max_time,
        json=json,
        fail_on=fail_on,
    )


def resume_series(
    directory: SeriesDirectory,
    time: str | None,
    max_blocks: int | None,
    *,
    json: bool,
    fail_on: FailOn,
    force: bool,
    dry_run: bool,
) -> int:
    """Resume a study in parts and show its result, or with dry_run its plan. Returns the exit code."""
    series = frozen_series(directory)
    seconds = duration(time) or series.max_time
    with View(quiet=json) as view:
        machine = machine_here(view, None)
        if dry_run:
            series = checked_series(replace(series, max_time=seconds), machine, view)
    if dry_run:
        show_series(series, json=json, blocks=None)
        return int(ExitCode.DONE)
    start = _part_runner(machine, max_blocks, json=json, force=force)
    return run_parts(directory, series, start, seconds=seconds, json=json, fail_on=fail_on)


def _part_runner(
    machine: Machine,
    max_blocks: int | None,
    *,
    json: bool,
    force: bool,
    require_kvm: bool = False,
) -> Start:
    """Return a function that runs or resumes one part of a series below its directory."""
    from ..run.run import resume_run, start_run

    def start(study: Study, into: SeriesDirectory, found: ResultsDirectory | None) -> Outcome:
        with View(quiet=json) as view:
            fitting, study = fitted(machine, study, view, require_kvm=require_kvm)
            if found is None:
                order = order_of(into.path, study_text(study), force=force, overrun=False)
                return start_run(fitting, bounded(study, max_blocks), order, view)
            frozen = frozen_study(found)
            again = replace(frozen, design=replace(frozen.design, max_time=study.design.max_time))
            order = order_of(into.path, found.study_yaml, force=force, overrun=False)
            return resume_run(fitting, bounded(again, max_blocks), found, order, view)

    return start


def run_parts(
    directory: SeriesDirectory, series: Series, start: Start, *, seconds: float, json: bool, fail_on: FailOn
) -> int:
    """Run every part that is not done yet. If all are done, run those without a verdict again.

    A part that cannot run here is reported, recorded and skipped. Returns the exit code.
    """
    from ..run.series import budget

    begin = time.monotonic()
    waiting = _waiting(directory, series)
    while waiting:
        part = waiting[0]
        assert part.study is not None
        left = seconds - (time.monotonic() - begin)
        study = _within(part.study, budget(part, waiting, left))
        waiting = waiting[1:]
        if left <= 0:
            directory.ended(part.key, NO_TIME)
            print(f"{part.key}: {NO_TIME}", file=sys.stderr)
            continue
        print(f"{part.key}: {part.title}", file=sys.stderr)
        try:
            begin += _built(part.study, json=json)
            outcome = start(study, directory, directory.part(part))
        except (BusyError, DiskFullError):
            raise
        except NearmetalError as e:
            print(f"{part.key} did not run: {e}", file=sys.stderr)
            directory.ended(part.key, f"did not run: {e.what}")
            continue
        directory.ended(part.key, outcome.stopped)
        if outcome.directory is not None:
            own = analysed(outcome.directory)
            if own.analysis.blocks:
                write_report(own)
            if not outcome.interrupted:
                outcome.directory.close()
        if outcome.interrupted:
            tell(directory, series, json=json, fail_on=fail_on)
            print(
                f"interrupted. Go on with:  {resume_line(directory.path)}",
                file=sys.stderr,
            )
            return int(ExitCode.INTERRUPTED)
    return int(tell(directory, series, json=json, fail_on=fail_on))


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


def _waiting(directory: SeriesDirectory, series: Series) -> list[Part]:
    """Return the parts that are not closed; if all are closed, those with cells that have no verdict."""
    own = [(p, directory.part(p)) for p in series.parts if p.study is not None]
    left = [p for p, found in own if found is None or not found.closed]
    return left or [p for p, found in own if found is not None and _open(analysed(found).analysis)]


def _open(analysis: Analysis) -> bool:
    """Return whether more blocks could give further verdicts. Without any block there is no comparison
    yet."""
    return bool(analysis.undecided) or not analysis.blocks


def part_results(directory: SeriesDirectory, series: Series) -> tuple[PartResult, ...]:
    """Return every part with its results on disk."""
    from ..report.series import PartResult

    ends = directory.ends()
    out = []
    for part in series.parts:
        found = directory.part(part)
        why = part.absent or ends.get(part.key, "not begun")
        if found is None:
            out.append(PartResult(part=part, directory=None, study=None, analysis=None, records=(), why=why))
            continue
        own = analysed(found)
        out.append(
            PartResult(
                part=part,
                directory=found.path.relative_to(directory.path),
                study=own.study,
                analysis=own.analysis,
                records=own.trials,
                why=why,
                provenance=found.provenance,
                guests=_sampled_in_guests(found.path),
            )
        )
    return tuple(out)


def _sampled_in_guests(directory: Path) -> Sequence[SampleSection]:
    """Return the samples from inside the guests; empty if there were no guests."""
    path = directory / "samples" / GUESTS
    return tuple(read_sections(path)) if path.exists() else ()


def tell(directory: SeriesDirectory, series: Series, *, json: bool, fail_on: FailOn) -> ExitCode:
    """Write the summary report and print it."""
    from ..report.series import series_json, series_text, write_series

    results = part_results(directory, series)
    paper = paper_of(directory, series.paper)
    files = write_series(directory.path, series, results, paper)
    if json:
        print_json(series_json(series, results, paper, results_dir=str(directory.path), report=str(files[0])))
    else:
        print(series_text(series, results, paper))
        print(f"Report: {files[0]}")
    codes = [exit_code(r.analysis, fail_on) for r in results if r.analysis is not None]
    missing = any(r.analysis is None and not r.part.absent for r in results)
    return max([*codes, ExitCode.FAILED_TRIALS if missing else ExitCode.DONE])


def status(directory: SeriesDirectory, *, json: bool) -> int:
    """Show the progress of every part. Returns the exit code."""
    from ..report.series import scale_text

    series = frozen_series(directory)
    results = part_results(directory, series)
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
        return int(ExitCode.DONE)
    print(f"{directory.path}: {series.title}{scale_text(series.scale)}")
    for row in rows:
        print(
            f"  {row['part']:<10}{row['blocks']} rounds, {row['decided']} of {row['cells']} figures decided;"
            f" {row['why']}"
        )
    print(f"go on with:  {resume_line(directory.path)}")
    return int(ExitCode.DONE)


def report(directory: SeriesDirectory, *, figures: bool, dry_run: bool, json: bool) -> int:
    """Write the report of every part and the summary again. Returns the exit code."""
    from ..report.series import series_files, write_series

    series = frozen_series(directory)
    files = list(series_files(directory.path))
    if not dry_run:
        for part in series.parts:
            found = directory.part(part)
            if found is None:
                continue
            own = analysed(found)
            if own.analysis.blocks:
                files += write_report(own, figures=figures)
            if found.closed:
                found.close()
        write_series(
            directory.path, series, part_results(directory, series), paper_of(directory, series.paper)
        )
    paths = [str(f) for f in files]
    if json:
        print_json(paths)
    else:
        print("\n".join(paths))
    return int(ExitCode.DONE)
