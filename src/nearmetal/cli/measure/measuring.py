"""Code that all commands that measure share: they start or resume a run, show its result, and return its exit
code."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...api.engines import run_by_engine
from ...api.estimates import begun_of
from ...api.measuring import (
    bounded,
    checked,
    checked_again,
    complete_run,
    measured,
    no_more_rounds,
    order,
    resumed,
)
from ...api.results import frozen_study
from ...errors import ExitCode, UsageError
from ...model.result import Analysis, Verdict
from ...model.study import Study
from ...records.disk import resume_line
from ...report.text import plural
from ...units import parse_share
from ..common import FailOn, command_line, duration, quantity
from ..options import RunOptions
from ..output import print_block, print_lines
from ..plan_text import show_plan
from ..read.present import print_result
from ..view import View, analysed

if TYPE_CHECKING:
    from ...api.engines import Fleet
    from ...api.measuring import Order, Outcome, Stop
    from ...api.results import Results
    from ...records import ResultsDirectory

STARTED = time.time()
"""Unix seconds when the command was started, without the start of Python itself."""


def changed(study: Study, options: RunOptions) -> Study:
    """Return the study with the values that the command line overrides. Raises UsageError."""
    given: dict[str, Any] = {
        "max_time": duration(options.time),
        "mode": options.mode,
        "target_width": _share("--width", options.width),
        "margin": margin_of(options.margin),
    }
    design = replace(study.design, **{name: value for name, value in given.items() if value is not None})
    return replace(study, design=design)


def margin_of(text: str | None) -> float | None:
    """Return the option --margin as a fraction; None if it is not given. Raises UsageError."""
    margin = _share("--margin", text)
    if margin is not None and margin >= 1:
        raise UsageError("--margin: must be below 100 %", remedy="write 3%")
    return margin


def _share(option: str, text: str | None) -> float | None:
    return quantity(option, text, parse_share, "3%")


def order_of(options: RunOptions) -> Order:
    """Return the user's request, apart from the study."""
    return order(options.results, command_line(), STARTED, force=options.force, overrun=options.overrun)


def measure(
    study: Study,
    options: RunOptions,
    fleet: Fleet | None = None,
    show: Callable[[Results], None] | None = None,
) -> int:
    """Run a study, changed by the options, and show its result, or with --dry-run its plan. Returns the exit
    code.

    fleet: workers that run the rounds; None if this process does.
    show: as in finish().
    """
    study, most = changed(study, options), options.max_blocks
    with View(quiet=options.json) as view:
        if options.dry_run:
            study = checked(study, view, require_kvm=options.require_kvm)
        elif fleet is not None:
            outcome = run_by_engine(study, order_of(options), fleet, view, max_blocks=most)
        else:
            outcome = measured(
                study, order_of(options), view, max_blocks=most, require_kvm=options.require_kvm
            )
    if options.dry_run:
        show_plan(bounded(study, most), json=options.json, blocks=None)
        return ExitCode.DONE
    return finish(outcome, options, show)


def resume_measuring(found: ResultsDirectory, options: RunOptions, fleet: Fleet | None) -> int:
    """Resume a run and show its result, or with --dry-run its plan. Returns the exit code.

    A run that needs no further round starts nothing, and says how to go on.
    fleet: workers that run the rounds; None if this process does.
    """
    study, most = frozen_study(found), options.max_blocks
    _same_margin(study, options.margin, found)
    study = changed(study, options)
    if found.closed:
        results = analysed(found, quiet=options.json)
        if stop := no_more_rounds(results, bounded(study, most)):
            print_block(_ended(results, stop), to=sys.stderr)
            if not options.dry_run:
                print_result(results, json=options.json, everything=options.everything)
                return exit_code(results.analysis, options.fail_on)
            if not options.json:
                return ExitCode.DONE
    if options.dry_run:
        with View(quiet=options.json) as view:
            study = checked_again(study, found, view)
        show_plan(bounded(study, most), json=options.json, blocks=None, begun=begun_of(study, found))
        return ExitCode.DONE
    with View(quiet=options.json) as view:
        own = order_of(options)
        if fleet is None:
            outcome = resumed(study, found, own, view, max_blocks=most)
        else:
            outcome = run_by_engine(study, own, fleet, view, max_blocks=most, directory=found)
    return finish(outcome, options)


def _ended(found: Results, stop: Stop) -> str:
    """Return why no further round is needed, with a command line that measures more nevertheless."""
    blocks, path = found.analysis.blocks, found.stored.path
    more = f"for more rounds: {resume_line(path)} --max-blocks {2 * blocks}"
    cells = (c for c in found.analysis.cells if math.isfinite(c.low) and math.isfinite(c.high))
    widths = [(math.log1p(c.high) - math.log1p(c.low)) / 2 for c in cells]
    if not stop.planned and widths:
        more = f"for narrower intervals: {resume_line(path)} --width {50 * max(widths):.2g}%"
    return f"nothing is left to measure after {plural(blocks, 'round')}: {stop.reason}\n  next: {more}"


def _same_margin(study: Study, given: str | None, found: ResultsDirectory) -> None:
    """Raise UsageError if --margin differs from the margin of the run, because a margin is fixed before the
    data are measured.

    given: the option as typed; None if it is not given.
    """
    if given is not None and margin_of(given) != study.design.margin:
        again = f"nearmetal run {shlex.quote(str(found.path / 'study.yaml'))} --margin {shlex.quote(given)}"
        raise UsageError(
            f"--margin: the run was begun with a margin of {study.design.margin * 100:.3g} %, and a margin"
            " must be fixed before the data are measured",
            where=str(found.path),
            remedy=f"to use another margin, measure again: {again}",
        )


def finish(outcome: Outcome, options: RunOptions, show: Callable[[Results], None] | None = None) -> int:
    """Analyse the records on disk, print the result, write the report, and print how to continue. Returns the
    exit code.

    show: prints the result; None for print_result().
    """
    if outcome.directory is None:
        print_lines("interrupted in the rehearsal: nothing had been measured yet", to=sys.stderr)
        return ExitCode.INTERRUPTED
    gone: BrokenPipeError | None = None

    def show_first(found: Results) -> None:
        nonlocal gone
        measured = bool(found.analysis.blocks)
        try:
            if show is not None and (measured or options.json):
                show(found)
            elif measured or options.json:
                print_result(found, json=options.json, everything=options.everything, page_follows=measured)
            sys.stdout.flush()  # the answer need not wait for the charts of the page
        except BrokenPipeError as e:  # such as in `nearmetal run --json | head`
            gone = e

    analyse = partial(analysed, quiet=options.json)
    analysis = complete_run(outcome, analyse=analyse, show=show_first).analysis
    go_on = f"Go on with:  {resume_line(outcome.directory.path)}"
    if outcome.interrupted:
        saved = f"{plural(analysis.blocks, 'round')} {'is' if analysis.blocks == 1 else 'are'} saved"
        print_lines(f"interrupted; {saved}. {go_on}", to=sys.stderr)
        return ExitCode.INTERRUPTED
    if not analysis.blocks:
        print_lines(f"no round was measured in that time. {go_on} --time 10m", to=sys.stderr)
    if gone is not None:
        raise gone
    print_lines(f"stopped: {outcome.stopped}", to=sys.stderr)
    return exit_code(analysis, options.fail_on)


def exit_code(analysis: Analysis, fail_on: FailOn) -> ExitCode:
    """Return the exit code: 0, 1 if a condition of --fail-on holds, or 4 if trials failed."""
    material = any(c.verdict in (Verdict.SLOWER, Verdict.FASTER) for c in analysis.cells)
    if fail_on is FailOn.MATERIAL and material:
        return ExitCode.FINDING
    if fail_on is FailOn.UNDECIDED and any(c.verdict is Verdict.NONE for c in analysis.cells):
        return ExitCode.FINDING
    return ExitCode.FAILED_TRIALS if analysis.failed_trials else ExitCode.DONE
