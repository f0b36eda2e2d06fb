"""Commands that measure: quick, run, resume, weigh, calibrate."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import ExitCode, UsageError
from ..model.series import Scale
from ..model.study import Attachment, Mode, Mpi, Pages, Study
from .common import (
    RESULTS,
    FailOn,
    analysed,
    catalog,
    draw_seed,
    duration,
    exit_code,
    frozen_study,
    in_parts,
    named_workload,
    open_results,
    open_series,
    print_json,
    require_images,
    study_from,
)
from .inspect import show_plan
from .present import print_result, write_report
from .view import View

if TYPE_CHECKING:
    from ..execute.calibration import Check
    from ..execute.machine import Machine
    from ..execute.run import Order, Outcome
    from ..records import ResultsDirectory, SeriesDirectory
    from .series import Start

#: Study, mode and share of the budget. Plain trials are the other design, held against the slices.
CALIBRATION = (
    ("calibrate", Mode.SLICES, 0.55),
    ("calibrate", Mode.PLAIN, 0.25),
    ("calibrate-quota", Mode.PLAIN, 0.2),
)

Time = typer.Option(None, "--time", help="Time budget, such as 90s or 10m.")
Seed = typer.Option(None, "--seed", help="Seed of every order drawn.", min=0)
Json = typer.Option(False, "--json", help="The result as JSON on standard output.")
Parent = typer.Option(RESULTS, "--results", help="Where results directories go.")
Fail = typer.Option(FailOn.NOTHING, "--fail-on", help="What ends with exit code 1.")
Force = typer.Option(False, "--force", help="Run although another run holds this machine.")
Design = typer.Option(None, "--mode", help="slices between standing instances, or plain trials.")
Width = typer.Option(None, "--width", help="Stop at this half-width (such as '0.7 %'), not at verdicts.")
MaxBlocks = typer.Option(None, "--max-blocks", min=1, help="Stop after so many blocks in all.")
DryRun = typer.Option(False, "--dry-run", help="Print what would run, and start nothing.")
InParts = "Of a study in parts: "
ScaleOption = typer.Option(None, "--scale", help=f"{InParts}small, or paper for the paper's sizes.")
Only = typer.Option([], "--only", help=f"{InParts}those to run, such as q1 or q1,q2; repeatable.")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(quick)
    app.command()(run)
    app.command()(resume)
    app.command("continue", hidden=True)(resume)
    app.command(context_settings={"allow_interspersed_args": True})(weigh)
    app.command()(calibrate)


def quick(
    time: str = Time,
    max_blocks: int = MaxBlocks,
    seed: int = Seed,
    pages: Pages = typer.Option(Pages.HUGE, "--pages", help="Page size that the kernels ask for."),
    mode: Mode = Design,
    width: str = Width,
    results: Path = Parent,
    json: bool = Json,
    fail_on: FailOn = Fail,
    force: bool = Force,
    dry_run: bool = DryRun,
) -> int:
    """Weigh a container against bare metal on this machine: no file, no argument, about 90 seconds."""
    from ..execute.variants import with_pages
    from ..host import LocalHost

    name = "quick"
    if len(LocalHost().cpus()) == 1:
        name = "quick-one-cpu"
        print(
            "one CPU: one rank, and no messages between ranks; with two CPUs quick weighs both",
            file=sys.stderr,
        )
    study = with_pages(study_from(name, seed), pages)
    study = _changed(study, time=time, mode=mode, width=width)
    return _measure(study, results, max_blocks, json=json, fail_on=fail_on, force=force, dry_run=dry_run)


def run(
    study_file: str = typer.Argument(..., metavar="STUDY", help="A study file, or a built-in study."),
    time: str = Time,
    max_blocks: int = MaxBlocks,
    seed: int = Seed,
    mode: Mode = Design,
    scale: Scale = ScaleOption,
    only: list[str] = Only,
    results: Path = Parent,
    json: bool = Json,
    fail_on: FailOn = Fail,
    force: bool = Force,
    dry_run: bool = DryRun,
) -> int:
    """Run a study."""
    if in_parts(study_file, scale, only):
        from ..execute.series import setting_here
        from .series import Asked, create, make_series, planned_series, run_parts, show_series

        asked = Asked(scale=scale or Scale.SMALL, only=only, seconds=duration(time), seed=seed)
        if dry_run:
            show_series(planned_series(asked), json=json, blocks=None)
            return int(ExitCode.DONE)
        with View(quiet=json) as view:
            machine = _machine(view, None)
            series = make_series(asked, setting_here(machine, view))
        return run_parts(
            create(series, results),
            series,
            _part_runner(machine, max_blocks, json=json, force=force),
            seconds=series.max_time,
            json=json,
            fail_on=fail_on,
        )
    study = _changed(study_from(study_file, seed), time=time, mode=mode)
    return _measure(study, results, max_blocks, json=json, fail_on=fail_on, force=force, dry_run=dry_run)


def resume(
    directory: Path = typer.Argument(
        None, help="A results directory; without one the newest below results/."
    ),
    time: str = Time,
    max_blocks: int = MaxBlocks,
    results: Path = Parent,
    json: bool = Json,
    fail_on: FailOn = Fail,
    force: bool = Force,
    dry_run: bool = DryRun,
) -> int:
    """Go on with a run that was interrupted, killed, or ended without a verdict."""
    from ..execute.run import resume_run

    several = open_series(directory, results)
    if several is not None:
        return _resume_series(
            several, time, max_blocks, json=json, fail_on=fail_on, force=force, dry_run=dry_run
        )
    found = open_results(directory, results)
    study = _bounded(_changed(frozen_study(found), time=time), max_blocks)
    if dry_run:
        show_plan(study, json=json, blocks=None)
        return int(ExitCode.DONE)
    with View(quiet=json) as view:
        machine = _machine(view, study.design.mpi)
        outcome = resume_run(machine, study, found, _order(results, found.study_yaml, force), view)
    return _finish(outcome, json=json, fail_on=fail_on)


def weigh(
    environments: list[str] = typer.Argument(..., metavar="BASELINE ENVIRONMENT... [-- COMMAND...]"),
    workload: list[str] = typer.Option(
        [], "--workload", "-w", help="A kernel, such as cg or stream; repeatable."
    ),
    ranks: int = typer.Option(None, "--ranks", min=1, help="MPI ranks: 2 for kernels, 1 for a command."),
    instances: int = typer.Option(
        None,
        "--instances",
        min=1,
        help="Instances that the ranks are spread over: 1, or with --attachment one for each rank.",
    ),
    attachment: str = typer.Option(
        "",
        "--attachment",
        help="Each environment with every one it can have, such as veth-bridge,macvlan,host.",
    ),
    mpi: bool = typer.Option(False, "--mpi", help="Start the command by mpirun, one process per rank."),
    image: str = typer.Option("host", "--image", help="The image that all of them run in."),
    margin: str = typer.Option("3 %", "--margin", help="What counts as material."),
    width: str = Width,
    time: str = typer.Option("90s", "--time", help="Time budget, such as 90s or 10m."),
    seed: int = Seed,
    results: Path = Parent,
    json: bool = Json,
    fail_on: FailOn = Fail,
    force: bool = Force,
    dry_run: bool = DryRun,
) -> int:
    """Measure now, without a file: weigh native namespaces -w cg, or ... -- ./my_app in.txt."""
    from ..environments.registry import get_backend
    from ..execute.weigh import weigh_study
    from ..units import UnitError, parse_share

    names, command = _split_command(environments)
    if len(set(names)) != len(names):
        raise UsageError("an environment is named twice; the baseline against itself is measured anyway")
    try:
        share = parse_share(margin)
    except UnitError as e:
        raise UsageError(f"--margin: {e}") from e
    if not 0 < share < 1:
        raise UsageError("--margin: must lie between 0 % and 100 %")
    study = weigh_study(
        {name: get_backend(name) for name in names},
        workloads=tuple(named_workload(w) for w in workload),
        command=command,
        ranks=ranks or (1 if command and not mpi else 2),
        instances=instances,
        mpi=mpi,
        margin=share,
        seed=draw_seed() if seed is None else seed,
        max_time=duration(time) or 90.0,
        image=image,
        attachments=_attachments(attachment),
    )
    require_images(study)
    study = _changed(study, time=None, width=width)
    return _measure(study, results, None, json=json, fail_on=fail_on, force=force, dry_run=dry_run)


def calibrate(
    time: str = typer.Option("5m", "--time", help="Time budget, such as 5m."),
    seed: int = Seed,
    results: Path = Parent,
    json: bool = Json,
    force: bool = Force,
    dry_run: bool = DryRun,
) -> int:
    """Show that the method tells the truth on this machine: nothing is called nothing, a cost is found."""
    from ..execute.calibration import judge, table
    from ..execute.run import start_run

    budget = duration(time) or 300.0
    if dry_run:
        show_plan(_changed(study_from("calibrate", seed), time=time), json=json, blocks=None)
        return int(ExitCode.DONE)
    checks: list[Check] = []
    directories: list[str] = []
    for name, mode, share in CALIBRATION:
        study = study_from(name, seed)
        study = replace(study, design=replace(study.design, mode=mode, max_time=budget * share))
        with View(quiet=json) as view:
            machine = _machine(view, study.design.mpi)
            outcome = start_run(machine, study, _order(results, _study_text(study), force), view)
        if outcome.interrupted or outcome.directory is None:
            return _finish(outcome, json=json, fail_on=FailOn.NOTHING)
        done, analysis, records = analysed(outcome.directory)
        write_report(outcome.directory, done, analysis, records)
        outcome.directory.close()
        directories.append(str(outcome.directory.path))
        checks += judge(done, analysis, mode)
    passed = all(c.passed for c in checks)
    if json:
        print_json(
            {"passed": passed, "checks": [c.as_json() for c in checks], "results_dirs": list(directories)}
        )
    else:
        print(table(checks, 1 - study.design.confidence))
        print("Reports: " + ", ".join(f"{d}/report.html" for d in directories))
    return int(ExitCode.DONE if passed else ExitCode.FINDING)


def _attachments(text: str) -> tuple[Attachment, ...]:
    """From 'veth-bridge,macvlan'. Raises UsageError."""
    from ..study_file.catalog import did_you_mean

    words = [word.strip() for word in text.split(",")] if text else []
    # One that takes devices needs them named, and a command line has no place for that.
    known = [a.value for a in Attachment if not a.on_device]
    for i, word in enumerate(words):
        if word not in known:
            raise UsageError(f'--attachment: unknown "{word[:40]}"{did_you_mean(word, known)}')
        if word in words[:i]:
            raise UsageError(f"--attachment: {word} is named twice")
    return tuple(Attachment(word) for word in words)


def _split_command(words: list[str]) -> tuple[list[str], list[str]]:
    """Environment names and the command behind '--'.

    The parser swallows '--', so it is found again in what the process was called with.
    """
    if "--" not in sys.argv:
        return words, []
    count = len(sys.argv) - sys.argv.index("--") - 1
    if count == 0:
        raise UsageError("nothing stands behind --", remedy="nearmetal weigh native namespaces -- ./my_app")
    return words[:-count], words[-count:]


def _changed(
    study: Study,
    *,
    time: str | None,
    mode: Mode | None = None,
    width: str | None = None,
) -> Study:
    """The study with what the command line says otherwise."""
    from ..units import UnitError, parse_share

    design = study.design
    seconds = duration(time)
    if seconds is not None:
        design = replace(design, max_time=seconds)
    if mode is not None:
        design = replace(design, mode=mode)
    if width is not None:
        try:
            design = replace(design, target_width=parse_share(width))
        except UnitError as e:
            raise UsageError(f"--width: {e}") from e
    return replace(study, design=design)


def _bounded(study: Study, max_blocks: int | None) -> Study:
    """The study with a bound for this call alone, not frozen: a resumed run is free to go further."""
    if max_blocks is None:
        return study
    return replace(study, design=replace(study.design, max_blocks=max_blocks))


def _study_text(study: Study) -> str:
    from ..study_file import dump_study

    return dump_study(study, catalog())


def _machine(view: View, mpi: Mpi | None) -> Machine:
    from ..execute.session import prepare_machine
    from ..host import LocalHost

    return prepare_machine(LocalHost(), view, mpi)


def _order(results: Path, text: str, force: bool) -> Order:
    from ..execute.run import Order

    return Order(parent=results, text=text, command=shlex.join(["nearmetal", *sys.argv[1:]]), force=force)


def _measure(
    study: Study,
    results: Path,
    max_blocks: int | None,
    *,
    json: bool,
    fail_on: FailOn,
    force: bool,
    dry_run: bool,
) -> int:
    if dry_run:
        show_plan(study, json=json, blocks=None)
        return int(ExitCode.DONE)
    from ..execute.run import start_run

    with View(quiet=json) as view:
        machine = _machine(view, study.design.mpi)
        order = _order(results, _study_text(study), force)
        outcome = start_run(machine, _bounded(study, max_blocks), order, view)
    return _finish(outcome, json=json, fail_on=fail_on)


def _part_runner(machine: Machine, max_blocks: int | None, *, json: bool, force: bool) -> Start:
    """Runs one part of a series below its directory, or goes on with it."""
    from ..execute.run import resume_run, start_run

    def start(study: Study, into: SeriesDirectory, found: ResultsDirectory | None) -> Outcome:
        with View(quiet=json) as view:
            if found is None:
                order = _order(into.path, _study_text(study), force)
                return start_run(machine, _bounded(study, max_blocks), order, view)
            frozen = frozen_study(found)
            again = replace(frozen, design=replace(frozen.design, max_time=study.design.max_time))
            order = _order(into.path, found.study_yaml, force)
            return resume_run(machine, _bounded(again, max_blocks), found, order, view)

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
    from .series import frozen_series, run_parts, show_series

    series = frozen_series(directory)
    seconds = duration(time) or series.max_time
    if dry_run:
        show_series(replace(series, max_time=seconds), json=json, blocks=None)
        return int(ExitCode.DONE)
    with View(quiet=json) as view:
        machine = _machine(view, None)
    start = _part_runner(machine, max_blocks, json=json, force=force)
    return run_parts(directory, series, start, seconds=seconds, json=json, fail_on=fail_on)


def _finish(outcome: Outcome, *, json: bool, fail_on: FailOn) -> int:
    """Analyse what is on disk, write the report, say the result and how to go on."""
    directory = outcome.directory
    if directory is None:
        print("interrupted in the rehearsal: nothing had been measured yet", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    study, analysis, records = analysed(directory)
    if analysis.blocks:
        write_report(directory, study, analysis, records)
        print_result(directory, study, analysis, json=json)
    if not outcome.interrupted:
        directory.close()
        print(f"stopped: {outcome.stopped}", file=sys.stderr)
        return int(exit_code(analysis, fail_on))
    print(
        f"interrupted; {analysis.blocks} blocks are saved. Go on with:  nearmetal resume {directory.path}",
        file=sys.stderr,
    )
    return int(ExitCode.INTERRUPTED)
