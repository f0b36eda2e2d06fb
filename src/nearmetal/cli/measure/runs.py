"""The commands quick, run and resume. What they need to measure is imported when they run, so that --help is
fast."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from ...errors import UsageError
from ...model.series import Scale
from ...model.workloads.kernel import Pages
from ..common import duration, in_parts
from ..options import (
    OF_ENGINES,
    BackendOption,
    Only,
    OwnDirectory,
    RunOptions,
    ScaleOption,
    Trust,
    with_run_options,
)
from ..output import complain, print_lines


@with_run_options(*OF_ENGINES)
def quick(
    pages: Pages = typer.Option(Pages.HUGE, "--pages", help="Page size of the kernels' memory."),
    *,
    options: RunOptions,
) -> int:
    from ...api.studies import ONE_CPU, quick_study
    from .measuring import measure

    study = quick_study(options.seed, pages, complain)
    if study.name == ONE_CPU:
        print_lines(
            "this machine has one CPU: quick runs one rank, and measures no messages between ranks",
            to=sys.stderr,
        )
    return measure(study, options)


@with_run_options()
def run(
    study_file: str = typer.Argument(
        ..., metavar="STUDY", help="A study file, a built-in study, or the directory of a study in parts."
    ),
    scale: Scale = ScaleOption,
    only: list[str] = Only,
    backend: str = BackendOption,
    *,
    options: RunOptions,
) -> int:
    source = in_parts(study_file, scale=scale, only=only, backend=backend)
    if source is not None:
        from ...api.series.planning import requested_series
        from ..series import run_series

        _not_of_parts(options)
        time, seed = duration(options.time), options.seed
        series = requested_series(source, scale=scale, only=only, backend=backend, time=time, seed=seed)
        return run_series(series, options)
    from ...api.studies import study_from
    from .engines import fleet_of
    from .measuring import measure

    return measure(study_from(study_file, options.seed, complain), options, fleet_of(options))


@with_run_options("seed", "mode", "require")
def resume(directory: Path = OwnDirectory, trust: bool = Trust, *, options: RunOptions) -> int:
    from ...api.results import open_results, open_series
    from ...api.trust import directory_to_run
    from ..trust import asker

    directory = directory_to_run(
        directory, options.results, trust=trust, ask=asker(), dry_run=options.dry_run
    )
    several = open_series(directory)
    if several is not None:
        from ..series import resume_series

        _not_of_parts(options)
        return resume_series(several, options)
    from .engines import fleet_of
    from .measuring import resume_measuring

    return resume_measuring(open_results(directory), options, fleet_of(options))


def _not_of_parts(options: RunOptions) -> None:
    """Raise UsageError if an option is given that does not apply to a study in parts."""
    for key, name in (("margin", "margin"), ("mode", "mode"), ("width", "target_width")):
        given = getattr(options, key)
        if given is not None:
            raise UsageError(
                f"--{key} does not apply to a study in parts: each part has its own",
                remedy=f"before the run, write it into the study file of a part: design: {{{name}: {given}}}",
            )
    for name in OF_ENGINES:
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} does not apply to a study in parts: this machine runs it",
                remedy="nearmetal init NAME DIR writes the study file of each part; run one of them",
            )
