"""Code that all commands that measure share: options, the machine, the order of a run, how it ends."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..api.engines import run_by_engine
from ..api.measuring import bounded, checked, measured
from ..api.results import RESULTS, write_report
from ..api.studies import study_text
from ..errors import ExitCode, UsageError
from ..model.study import Mode, Study
from ..records.disk import resume_line
from ..units import UnitError, parse_share
from .common import FailOn, duration, exit_code
from .plan_text import show_plan
from .present import print_result
from .view import View, analysed

if TYPE_CHECKING:
    from ..api.engines import Fleet
    from ..run.run import Order, Outcome

STARTED = time.time()
"""Unix seconds when the command was started, without the start of Python itself."""

Time = typer.Option(None, "--time", metavar="TIME", help="Time budget, such as 90s or 10m.")
Seed = typer.Option(None, "--seed", metavar="N", help="Seed of every order drawn.", min=0)
Json = typer.Option(False, "--json", help="The result as JSON on standard output.")
Parent = typer.Option(RESULTS, "--results", metavar="DIR", help="Where results directories go.")
Fail = typer.Option(FailOn.NOTHING, "--fail-on", help="What ends with exit code 1.")
Force = typer.Option(False, "--force", help="Run although another run holds this machine.")
Overrun = typer.Option(
    False, "--overrun", help="When the time is used up, go on until verdicts are given next."
)
Design = typer.Option(
    None, "--mode", help="slices: all are running and take turns; plain: one trial after the other."
)
Width = typer.Option(
    None, "--width", metavar="SHARE", help="Stop at this half-width (such as '0.7 %'), not at verdicts."
)
Margin = typer.Option(None, "--margin", metavar="SHARE", help="What counts as material, such as '3 %'.")
MaxBlocks = typer.Option(None, "--max-blocks", metavar="N", min=1, help="Stop after so many rounds in all.")
RequireOption = typer.Option(None, "--require", help="kvm: refuse where guests would be emulated.")
All = typer.Option(False, "--all", help="Show every figure, with causes, upper bounds and counters.")
DryRun = typer.Option(False, "--dry-run", help="Check what can run, print the plan, and measure nothing.")


class Require(StrEnum):
    """A requirement without which a run does not start."""

    KVM = "kvm"


def changed(
    study: Study,
    *,
    time: str | None,
    mode: Mode | None = None,
    width: str | None = None,
    margin: str | None = None,
) -> Study:
    """Return the study with the values that the command line overrides."""
    design = study.design
    seconds = duration(time)
    if seconds is not None:
        design = replace(design, max_time=seconds)
    if mode is not None:
        design = replace(design, mode=mode)
    if width is not None:
        design = replace(design, target_width=_share("--width", width))
    if margin is not None:
        design = replace(design, margin=margin_of(margin))
    return replace(study, design=design)


def margin_of(text: str) -> float:
    """Return the option --margin as a fraction. Raises UsageError."""
    margin = _share("--margin", text)
    if not 0 < margin < 1:
        raise UsageError("--margin: must lie between 0 % and 100 %")
    return margin


def _share(option: str, text: str) -> float:
    try:
        return parse_share(text)
    except UnitError as e:
        raise UsageError(f"{option}: {e}") from e


def order_of(results: Path, text: str, *, force: bool, overrun: bool = False) -> Order:
    """Return the order of a run.

    text: the study file to store with the results.
    force, overrun: see the options.
    """
    from ..run.run import Order

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
    everything: bool = False,
    fleet: Fleet | None = None,
) -> int:
    """Run a study to its end and show its result, or with dry_run its plan. Returns the exit code.

    fleet: workers that run the rounds; None if this process does.
    """
    if dry_run:
        with View(quiet=json) as view:
            study = checked(study, view, require_kvm=require is Require.KVM)
        show_plan(bounded(study, max_blocks), json=json, blocks=None)
        return int(ExitCode.DONE)
    order = order_of(results, study_text(study), force=force, overrun=overrun)
    with View(quiet=json) as view:
        if fleet is not None:
            outcome = run_by_engine(study, order, fleet, view, max_blocks=max_blocks)
        else:
            outcome = measured(study, order, view, max_blocks=max_blocks, require_kvm=require is Require.KVM)
    return finish(outcome, json=json, fail_on=fail_on, everything=everything)


def finish(outcome: Outcome, *, json: bool, fail_on: FailOn, everything: bool = False) -> int:
    """Analyse the records on disk, write the report, and print the result and how to continue. Returns the
    exit code."""
    directory = outcome.directory
    if directory is None:
        print("interrupted in the rehearsal: nothing had been measured yet", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    found = analysed(directory, quiet=json)
    analysis = found.analysis
    if analysis.blocks:
        write_report(found)
    if analysis.blocks or json:
        print_result(found, json=json, everything=everything)
    if not analysis.blocks and not outcome.interrupted:
        again = f"{resume_line(directory.path)} --time 10m"
        print(f"no round was measured in that time. Go on with:  {again}", file=sys.stderr)
    if not outcome.interrupted:
        directory.close()
        print(f"stopped: {outcome.stopped}", file=sys.stderr)
        return int(exit_code(analysis, fail_on))
    saved = "1 round is" if analysis.blocks == 1 else f"{analysis.blocks} rounds are"
    print(
        f"interrupted; {saved} saved. Go on with:  {resume_line(directory.path)}",
        file=sys.stderr,
    )
    return int(ExitCode.INTERRUPTED)
