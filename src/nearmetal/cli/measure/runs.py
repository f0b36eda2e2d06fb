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
from ..common import complain, duration, in_parts
from ..options import (
    OF_ENGINES,
    Design,
    Directory,
    Margin,
    MaxBlocks,
    RunOptions,
    Seed,
    Time,
    Width,
    with_run_options,
)

InParts = "Of a study in parts: "
ScaleOption = typer.Option(None, "--scale", help=f"{InParts}small sizes, or those of the paper.")
Only = typer.Option([], "--only", metavar="PARTS", help=f"{InParts}which to run, such as q1,q2; repeatable.")
Backend = typer.Option(
    None, "--backend", metavar="BACKEND", help=f"{InParts}the backend to use, such as qemu or lxc."
)


@with_run_options(*OF_ENGINES)
def quick(
    time: str = Time,
    max_blocks: int = MaxBlocks,
    seed: int = Seed,
    pages: Pages = typer.Option(Pages.HUGE, "--pages", help="Page size of the kernels' memory."),
    mode: Mode = Design,
    width: str = Width,
    margin: str = Margin,
    *,
    options: RunOptions,
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
    return measure(study, options, max_blocks)


@with_run_options()
def run(
    study_file: str = typer.Argument(
        ..., metavar="STUDY", help="A study file, a built-in study, or the directory of a study in parts."
    ),
    time: str = Time,
    max_blocks: int = MaxBlocks,
    seed: int = Seed,
    mode: Mode = Design,
    margin: str = Margin,
    scale: Scale = ScaleOption,
    only: list[str] = Only,
    backend: str = Backend,
    *,
    options: RunOptions,
) -> int:
    series = in_parts(study_file, scale=scale, only=only, backend=backend, time=time, seed=seed)
    if series is not None:
        from ..series.running import run_series

        _not_of_parts(margin, options, mode)
        return run_series(series, options, max_blocks)
    from ...api.studies import study_from
    from .engines import fleet_of
    from .measuring import changed, measure

    study = changed(study_from(study_file, seed, complain), time=time, mode=mode, margin=margin)
    return measure(study, options, max_blocks, fleet_of(options))


@with_run_options("require")
def resume(
    directory: Path = Directory,
    time: str = Time,
    max_blocks: int = MaxBlocks,
    width: str = Width,
    margin: str = Margin,
    *,
    options: RunOptions,
) -> int:
    from ...api.results import open_results, open_series

    several = open_series(directory, options.results, complain)
    if several is not None:
        from ..series.running import resume_series

        _not_of_parts(margin, options, width=width)
        return resume_series(several, options, duration(time), max_blocks)
    from .engines import fleet_of
    from .measuring import resume_measuring

    found = open_results(directory, options.results, complain)
    return resume_measuring(
        found, options, max_blocks, fleet_of(options), time=time, width=width, margin=margin
    )


def _not_of_parts(
    margin: str | None, options: RunOptions, mode: Mode | None = None, width: str | None = None
) -> None:
    """Check that no option is given that a study in parts does not have. Raises UsageError."""
    for key, given in (("margin", margin), ("mode", mode), ("width", width)):
        if given is not None:
            raise UsageError(
                f"--{key} does not apply to a study in parts: each part has its own",
                remedy=f"before the run, write it into the study file of a part: design: {{{key}: {given}}}",
            )
    for name in OF_ENGINES:
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} does not apply to a study in parts: this machine runs it",
                remedy="nearmetal init NAME DIR writes the study file of each part; run one of them",
            )
