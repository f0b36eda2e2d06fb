"""What all commands that measure share: options, the machine, the order of a run, how it ends."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import ExitCode, UsageError
from ..model.study import Mode, Mpi, Study
from .common import RESULTS, FailOn, analysed, catalog, duration, exit_code
from .inspect import show_plan
from .present import print_result, write_report
from .view import View

if TYPE_CHECKING:
    from ..execute.machine import Machine
    from ..execute.run import Order, Outcome

STARTED = time.time()
"""Unix seconds: when the command was started, but for the start of Python itself."""

Time = typer.Option(None, "--time", help="Time budget, such as 90s or 10m.")
Seed = typer.Option(None, "--seed", help="Seed of every order drawn.", min=0)
Json = typer.Option(False, "--json", help="The result as JSON on standard output.")
Parent = typer.Option(RESULTS, "--results", help="Where results directories go.")
Fail = typer.Option(FailOn.NOTHING, "--fail-on", help="What ends with exit code 1.")
Force = typer.Option(False, "--force", help="Run although another run holds this machine.")
Overrun = typer.Option(False, "--overrun", help="When the time is used up, go on to the next look.")
Design = typer.Option(None, "--mode", help="slices between standing instances, or plain trials.")
Width = typer.Option(None, "--width", help="Stop at this half-width (such as '0.7 %'), not at verdicts.")
MaxBlocks = typer.Option(None, "--max-blocks", min=1, help="Stop after so many blocks in all.")
RequireOption = typer.Option(None, "--require", help="kvm: refuse where guests would be emulated.")
DryRun = typer.Option(False, "--dry-run", help="Print what would run, and start nothing.")


class Require(StrEnum):
    """What a run may insist on."""

    KVM = "kvm"


def changed(
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


def bounded(study: Study, max_blocks: int | None) -> Study:
    """The study with a bound for this call alone, not frozen: a resumed run is free to go further."""
    if max_blocks is None:
        return study
    return replace(study, design=replace(study.design, max_blocks=max_blocks))


def study_text(study: Study) -> str:
    """What the study file of a results directory holds: all that was asked, written out."""
    from ..study_file import dump_study

    return dump_study(study, catalog())


def machine_here(view: View, mpi: Mpi | None) -> Machine:
    """The machine that this runs on, ready to measure."""
    from ..execute.session import prepare_machine
    from ..host import LocalHost

    return prepare_machine(LocalHost(), view, mpi)


def order_of(results: Path, text: str, *, force: bool, overrun: bool) -> Order:
    """text: of the study, to be frozen; force, overrun: see the options."""
    from ..execute.run import Order

    return Order(
        parent=results,
        text=text,
        command=shlex.join(["nearmetal", *sys.argv[1:]]),
        started=STARTED,
        force=force,
        overrun=overrun,
    )


def measure(
    study: Study,
    results: Path,
    max_blocks: int | None,
    *,
    json: bool,
    fail_on: FailOn,
    force: bool,
    dry_run: bool,
    overrun: bool = False,
    require: Require | None = None,
) -> int:
    """Run a study to its end and show its result, or with dry_run its plan. The exit code."""
    if dry_run:
        show_plan(study, json=json, blocks=None)
        return int(ExitCode.DONE)
    from ..execute.accelerator import with_accelerators
    from ..execute.run import start_run

    with View(quiet=json) as view:
        machine = machine_here(view, study.design.mpi)
        machine, study = with_accelerators(machine, study, view, require_kvm=require is Require.KVM)
        order = order_of(results, study_text(study), force=force, overrun=overrun)
        outcome = start_run(machine, bounded(study, max_blocks), order, view)
    return finish(outcome, json=json, fail_on=fail_on)


def finish(outcome: Outcome, *, json: bool, fail_on: FailOn) -> int:
    """Analyse what is on disk, write the report, say the result and how to go on."""
    directory = outcome.directory
    if directory is None:
        print("interrupted in the rehearsal: nothing had been measured yet", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    study, analysis, records = analysed(directory)
    if analysis.blocks:
        write_report(directory, study, analysis, records)
    if analysis.blocks or json:
        print_result(directory, study, analysis, records, json=json)
    if not analysis.blocks and not outcome.interrupted:
        again = f"nearmetal resume {directory.path} --time 10m"
        print(f"no block was measured in that time. Go on with:  {again}", file=sys.stderr)
    if not outcome.interrupted:
        directory.close()
        print(f"stopped: {outcome.stopped}", file=sys.stderr)
        return int(exit_code(analysis, fail_on))
    saved = "1 block is" if analysis.blocks == 1 else f"{analysis.blocks} blocks are"
    print(f"interrupted; {saved} saved. Go on with:  nearmetal resume {directory.path}", file=sys.stderr)
    return int(ExitCode.INTERRUPTED)
