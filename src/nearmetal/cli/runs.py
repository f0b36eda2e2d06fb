"""Commands that measure: quick, run, resume, run-block, weigh, calibrate."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..api.engines import resume_by_engine
from ..api.measuring import bounded, checked_again, machine_here, resumed
from ..api.results import frozen_study, open_results, open_series
from ..api.studies import study_from, study_text
from ..errors import ExitCode, UsageError
from ..host import LocalHost
from ..model.series import Scale
from ..model.study import Mode, Pages, Study
from ..plan import make_block
from ..records import completed_blocks
from ..run.weigh import with_pages
from .common import FailOn, complain, duration, in_parts
from .engines import Engine as EngineName
from .engines import EngineOption, Lease, Workers, fleet_of
from .measuring import (
    All,
    Design,
    DryRun,
    Fail,
    Force,
    Json,
    Margin,
    MaxBlocks,
    Overrun,
    Parent,
    Require,
    RequireOption,
    Seed,
    Time,
    Width,
    changed,
    finish,
    margin_of,
    measure,
    order_of,
)
from .plan_text import Begun, show_plan
from .series import SeriesOptions, create, frozen_series, make_series, planned_series, run_parts, show_series
from .view import View, analysed

if TYPE_CHECKING:
    from ..node.machine import Machine
    from ..records import ResultsDirectory, SeriesDirectory
    from ..run.run import Outcome
    from .series import Start

InParts = "Of a study in parts: "
ScaleOption = typer.Option(None, "--scale", help=f"{InParts}small, or paper for the paper's sizes.")
Only = typer.Option(
    [], "--only", metavar="PARTS", help=f"{InParts}those to run, such as q1 or q1,q2; repeatable."
)
Backend = typer.Option(
    None, "--backend", metavar="BACKEND", help=f"{InParts}what its instances are, such as qemu or lxc."
)


def quick(
    time: str = Time,
    max_blocks: int = MaxBlocks,
    seed: int = Seed,
    pages: Pages = typer.Option(Pages.HUGE, "--pages", help="Page size that the kernels ask for."),
    mode: Mode = Design,
    width: str = Width,
    margin: str = Margin,
    results: Path = Parent,
    json: bool = Json,
    everything: bool = All,
    fail_on: FailOn = Fail,
    force: bool = Force,
    overrun: bool = Overrun,
    require: Require = RequireOption,
    dry_run: bool = DryRun,
) -> int:
    name = "quick"
    if len(LocalHost().cpus()) == 1:
        name = "quick-one-cpu"
        print(
            "one CPU: one rank, and no messages between ranks; with two CPUs quick weighs both",
            file=sys.stderr,
        )
    study = with_pages(study_from(name, seed, complain), pages)
    study = changed(study, time=time, mode=mode, width=width, margin=margin)
    return measure(
        study,
        results,
        max_blocks,
        json=json,
        fail_on=fail_on,
        force=force,
        dry_run=dry_run,
        overrun=overrun,
        require=require,
        everything=everything,
    )


def run(
    study_file: str = typer.Argument(..., metavar="STUDY", help="A study file, or a built-in study."),
    time: str = Time,
    max_blocks: int = MaxBlocks,
    seed: int = Seed,
    mode: Mode = Design,
    margin: str = Margin,
    scale: Scale = ScaleOption,
    only: list[str] = Only,
    backend: str = Backend,
    results: Path = Parent,
    json: bool = Json,
    everything: bool = All,
    fail_on: FailOn = Fail,
    force: bool = Force,
    overrun: bool = Overrun,
    require: Require = RequireOption,
    engine: str = EngineName,
    workers: int = Workers,
    engine_option: list[str] = EngineOption,
    lease: str = Lease,
    dry_run: bool = DryRun,
) -> int:
    if in_parts(study_file, scale=scale, only=only, backend=backend):
        from ..run.builtin.series import make_here

        _no_margin_of_parts(margin)
        _no_engine_of_parts(engine)
        options = SeriesOptions(
            name=study_file,
            scale=scale or Scale.SMALL,
            only=only,
            seconds=duration(time),
            seed=seed,
            backend=backend,
        )
        if dry_run:
            show_series(planned_series(options), json=json, blocks=None)
            return int(ExitCode.DONE)
        with View(quiet=json) as view:
            machine = machine_here(view, None)
            series = make_series(options, make_here(options.name, machine, view, backend))
        return run_parts(
            create(series, results),
            series,
            _part_runner(machine, max_blocks, json=json, force=force, require=require),
            seconds=series.max_time,
            json=json,
            fail_on=fail_on,
        )
    study = changed(study_from(study_file, seed, complain), time=time, mode=mode, margin=margin)
    return measure(
        study,
        results,
        max_blocks,
        json=json,
        fail_on=fail_on,
        force=force,
        dry_run=dry_run,
        overrun=overrun,
        require=require,
        everything=everything,
        fleet=fleet_of(engine, workers, engine_option, lease),
    )


def resume(
    directory: Path = typer.Argument(
        None, metavar="DIR", help="A results directory; without one the newest below results/."
    ),
    time: str = Time,
    margin: str = Margin,
    max_blocks: int = MaxBlocks,
    results: Path = Parent,
    json: bool = Json,
    everything: bool = All,
    fail_on: FailOn = Fail,
    force: bool = Force,
    overrun: bool = Overrun,
    engine: str = EngineName,
    workers: int = Workers,
    engine_option: list[str] = EngineOption,
    lease: str = Lease,
    dry_run: bool = DryRun,
) -> int:
    several = open_series(directory, results, complain)
    if several is not None:
        _no_margin_of_parts(margin)
        _no_engine_of_parts(engine)
        return _resume_series(
            several, time, max_blocks, json=json, fail_on=fail_on, force=force, dry_run=dry_run
        )
    found = open_results(directory, results, complain)
    study = changed(frozen_study(found), time=time)
    _same_margin(study, margin, found)
    if dry_run:
        with View(quiet=json) as view:
            study = checked_again(study, found, view)
        show_plan(bounded(study, max_blocks), json=json, blocks=None, begun=_begun(study, found))
        return int(ExitCode.DONE)
    fleet = fleet_of(engine, workers, engine_option, lease)
    with View(quiet=json) as view:
        order = order_of(results, found.study_yaml, force=force, overrun=overrun)
        if fleet is None:
            outcome = resumed(study, found, order, view, max_blocks=max_blocks)
        else:
            outcome = resume_by_engine(study, found, order, fleet, view, max_blocks=max_blocks)
    return finish(outcome, json=json, fail_on=fail_on, everything=everything)


def _no_engine_of_parts(engine: str | None) -> None:
    if engine is not None:
        raise UsageError("--engine does not apply to a study in parts", remedy="run a part by its study file")


def _no_margin_of_parts(margin: str | None) -> None:
    if margin is not None:
        raise UsageError("--margin does not apply to a study in parts: each part has its own")


def _same_margin(study: Study, given: str | None, found: ResultsDirectory) -> None:
    """Check that no other margin than that of the run is given: it would be chosen after the data were
    measured.

    Raises UsageError if one is.
    """
    if given is not None and margin_of(given) != study.design.margin:
        again = f"nearmetal run {shlex.quote(str(found.path / 'study.yaml'))} --margin {shlex.quote(given)}"
        raise UsageError(
            f"--margin: the run was begun with a margin of {study.design.margin * 100:.3g} %, and a margin is"
            " fixed before the data",
            where=str(found.path),
            remedy=f"for another margin measure anew: {again}",
        )


def _begun(study: Study, found: ResultsDirectory) -> Begun:
    records = list(found.trials())
    return Begun(
        schedule=found.plan().schedule,
        done=frozenset(completed_blocks(records, len(make_block(study, 0).trials))),
        block_seconds=analysed(found, quiet=True).analysis.block_seconds,
    )


def _part_runner(
    machine: Machine,
    max_blocks: int | None,
    *,
    json: bool,
    force: bool,
    require: Require | None = None,
) -> Start:
    """Return a function that runs or resumes one part of a series below its directory."""
    from ..node.survey.accelerator import with_accelerators
    from ..run.run import resume_run, start_run

    def start(study: Study, into: SeriesDirectory, found: ResultsDirectory | None) -> Outcome:
        with View(quiet=json) as view:
            fitting, study = with_accelerators(machine, study, view, require_kvm=require is Require.KVM)
            if found is None:
                order = order_of(into.path, study_text(study), force=force, overrun=False)
                return start_run(fitting, bounded(study, max_blocks), order, view)
            frozen = frozen_study(found)
            again = replace(frozen, design=replace(frozen.design, max_time=study.design.max_time))
            order = order_of(into.path, found.study_yaml, force=force, overrun=False)
            return resume_run(fitting, bounded(again, max_blocks), found, order, view)

    return start


def _resume_series(
    directory: SeriesDirectory,
    time: str | None,
    max_blocks: int | None,
    *,
    json: bool,
    fail_on: FailOn,
    force: bool,
    dry_run: bool,
) -> int:
    series = frozen_series(directory)
    seconds = duration(time) or series.max_time
    if dry_run:
        show_series(replace(series, max_time=seconds), json=json, blocks=None)
        return int(ExitCode.DONE)
    with View(quiet=json) as view:
        machine = machine_here(view, None)
    start = _part_runner(machine, max_blocks, json=json, force=force)
    return run_parts(directory, series, start, seconds=seconds, json=json, fail_on=fail_on)
