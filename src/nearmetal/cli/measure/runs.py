"""The commands quick, run and resume. What they need to measure is imported when they run, so that --help is
fast."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from ...errors import UsageError
from ...model.design import Mode
from ...model.series import Scale
from ...model.workloads.kernel import Pages
from ..common import FailOn, complain, duration, in_parts
from ..options import (
    All,
    Design,
    DryRun,
    Engine,
    EngineOption,
    Fail,
    Force,
    Json,
    Lease,
    Margin,
    MaxBlocks,
    Nodes,
    Overrun,
    Parent,
    Require,
    RequireOption,
    Seed,
    Time,
    Width,
    Workers,
)

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
    from ...api.studies import study_from
    from ...host import LocalHost
    from ...run.adhoc.weigh import with_pages
    from .measuring import changed, measure

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
    engine: str = Engine,
    workers: int = Workers,
    nodes: str = Nodes,
    engine_option: list[str] = EngineOption,
    lease: str = Lease,
    dry_run: bool = DryRun,
) -> int:
    source = in_parts(study_file, scale=scale, only=only, backend=backend)
    if source is not None:
        from ..series.planning import SeriesOptions
        from ..series.running import run_series

        _no_margin_of_parts(margin)
        _no_engine_of_parts(engine)
        options = SeriesOptions(
            source=source,
            scale=scale,
            only=only,
            seconds=duration(time),
            seed=seed,
            backend=backend,
        )
        return run_series(
            options,
            results,
            max_blocks,
            shown=study_file,
            json=json,
            fail_on=fail_on,
            force=force,
            dry_run=dry_run,
            require_kvm=require is Require.KVM,
        )
    from ...api.studies import study_from
    from .engines import fleet_of
    from .measuring import changed, measure

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
        fleet=fleet_of(engine, workers, engine_option, lease, nodes),
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
    engine: str = Engine,
    workers: int = Workers,
    nodes: str = Nodes,
    engine_option: list[str] = EngineOption,
    lease: str = Lease,
    dry_run: bool = DryRun,
) -> int:
    from ...api.results import open_results, open_series

    several = open_series(directory, results, complain)
    if several is not None:
        from ..series.running import resume_series

        _no_margin_of_parts(margin)
        _no_engine_of_parts(engine)
        return resume_series(
            several, time, max_blocks, json=json, fail_on=fail_on, force=force, dry_run=dry_run
        )
    from .engines import fleet_of
    from .measuring import resume_measuring

    return resume_measuring(
        open_results(directory, results, complain),
        results,
        max_blocks,
        time=time,
        margin=margin,
        json=json,
        fail_on=fail_on,
        force=force,
        dry_run=dry_run,
        overrun=overrun,
        everything=everything,
        fleet=fleet_of(engine, workers, engine_option, lease, nodes),
    )


def _no_engine_of_parts(engine: str | None) -> None:
    if engine is not None:
        raise UsageError("--engine does not apply to a study in parts", remedy="run a part by its study file")


def _no_margin_of_parts(margin: str | None) -> None:
    if margin is not None:
        raise UsageError("--margin does not apply to a study in parts: each part has its own")
