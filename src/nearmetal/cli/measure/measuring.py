"""Code that all commands that measure share: the order of a run, its start and resumption, how it ends."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...api.engines import resume_by_engine, run_by_engine
from ...api.measuring import bounded, checked, checked_again, measured, no_more_rounds, resumed
from ...api.results import frozen_study, write_report
from ...api.studies import study_text
from ...errors import ExitCode, UsageError
from ...model.result import Analysis, Verdict
from ...model.study import Mode, Study
from ...plan import make_block
from ...records import completed_blocks
from ...records.disk import resume_line
from ...report.text import plural
from ...units import UnitError, parse_share
from ..common import FailOn, duration
from ..options import RunOptions
from ..plan_text import Begun, show_plan
from ..read.present import print_result
from ..view import View, analysed

if TYPE_CHECKING:
    from ...api.engines import Fleet
    from ...api.results import Results
    from ...records import ResultsDirectory
    from ...run.decide import Stop
    from ...run.run import Order, Outcome

STARTED = time.time()
"""Unix seconds when the command was started, without the start of Python itself."""


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
    from ...run.run import Order

    return Order(
        parent=results,
        text=text,
        command=shlex.join(["nearmetal", *sys.argv[1:]]),
        started=STARTED,
        force=force,
        overrun=overrun,
    )


def measure(
    study: Study, options: RunOptions, max_blocks: int | None = None, fleet: Fleet | None = None
) -> int:
    """Run a study to its end and show its result, or with --dry-run its plan. Returns the exit code.

    fleet: workers that run the rounds; None if this process does.
    """
    if options.dry_run:
        with View(quiet=options.json) as view:
            study = checked(study, view, require_kvm=options.require_kvm)
        show_plan(bounded(study, max_blocks), json=options.json, blocks=None)
        return int(ExitCode.DONE)
    order = order_of(options.results, study_text(study), force=options.force, overrun=options.overrun)
    with View(quiet=options.json) as view:
        if fleet is not None:
            outcome = run_by_engine(study, order, fleet, view, max_blocks=max_blocks)
        else:
            outcome = measured(study, order, view, max_blocks=max_blocks, require_kvm=options.require_kvm)
    return finish(outcome, options)


def resume_measuring(
    found: ResultsDirectory,
    options: RunOptions,
    max_blocks: int | None,
    fleet: Fleet | None,
    *,
    time: str | None,
    width: str | None,
    margin: str | None,
) -> int:
    """Resume a run and show its result, or with --dry-run its plan. Returns the exit code.

    A run that needs no further round starts nothing, and says how to go on.
    fleet: as in measure().
    """
    study = changed(frozen_study(found), time=time, width=width)
    _same_margin(study, margin, found)
    results = analysed(found, quiet=options.json)
    if stop := no_more_rounds(results, bounded(study, max_blocks)):
        print(_ended(results, study, stop), file=sys.stderr)
        if not options.dry_run:
            return _shown(results, options)
        if not options.json:
            return int(ExitCode.DONE)
    if options.dry_run:
        with View(quiet=options.json) as view:
            study = checked_again(study, found, view)
        show_plan(bounded(study, max_blocks), json=options.json, blocks=None, begun=begun_of(study, found))
        return int(ExitCode.DONE)
    with View(quiet=options.json) as view:
        order = order_of(options.results, found.study_yaml, force=options.force, overrun=options.overrun)
        if fleet is None:
            outcome = resumed(study, found, order, view, max_blocks=max_blocks)
        else:
            outcome = resume_by_engine(study, found, order, fleet, view, max_blocks=max_blocks)
    return finish(outcome, options)


def _ended(found: Results, study: Study, stop: Stop) -> str:
    """Return why no further round is needed, and how to measure more all the same."""
    blocks, path = found.analysis.blocks, found.stored.path
    more = f"for more rounds: {resume_line(path)} --max-blocks {2 * blocks}"
    if not stop.planned:
        width = study.design.target_width or study.design.margin
        more = f"for narrower intervals: {resume_line(path)} --width {50 * width:.2g}%"
    return f"nothing is left to measure after {plural(blocks, 'round')}: {stop.reason}\n  next: {more}"


def _shown(found: Results, options: RunOptions) -> int:
    """Print the result of a run that is not continued, and complete a directory that was left open.
    Returns the exit code."""
    if not found.stored.closed:
        write_report(found)
        found.stored.close()
    print_result(found, json=options.json, everything=options.everything)
    return int(exit_code(found.analysis, options.fail_on))


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


def begun_of(study: Study, found: ResultsDirectory) -> Begun:
    """Return the state of a run that is to be resumed.

    study: its study with the design of the resumption.
    """
    records = list(found.trials())
    return Begun(
        schedule=found.plan().schedule,
        done=frozenset(completed_blocks(records, len(make_block(study, 0).trials))),
        block_seconds=analysed(found, quiet=True).analysis.block_seconds,
    )


def finish(outcome: Outcome, options: RunOptions) -> int:
    """Analyse the records on disk, print the result, write the report, and print how to continue. Returns the
    exit code."""
    directory = outcome.directory
    if directory is None:
        print("interrupted in the rehearsal: nothing had been measured yet", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    found = analysed(directory, quiet=options.json)
    analysis = found.analysis
    if analysis.blocks or options.json:
        print_result(
            found, json=options.json, everything=options.everything, page_follows=bool(analysis.blocks)
        )
        sys.stdout.flush()  # the answer need not wait for the charts of the page
    if analysis.blocks:
        write_report(found)
    if not analysis.blocks and not outcome.interrupted:
        again = f"{resume_line(directory.path)} --time 10m"
        print(f"no round was measured in that time. Go on with:  {again}", file=sys.stderr)
    if not outcome.interrupted:
        directory.close()
        print(f"stopped: {outcome.stopped}", file=sys.stderr)
        return int(exit_code(analysis, options.fail_on))
    saved = "1 round is" if analysis.blocks == 1 else f"{analysis.blocks} rounds are"
    print(
        f"interrupted; {saved} saved. Go on with:  {resume_line(directory.path)}",
        file=sys.stderr,
    )
    return int(ExitCode.INTERRUPTED)


def exit_code(analysis: Analysis, fail_on: FailOn) -> ExitCode:
    """Return the exit code: 0, 1 if a condition of --fail-on holds, or 4 if trials failed."""
    material = any(c.verdict in (Verdict.SLOWER, Verdict.FASTER) for c in analysis.cells)
    if fail_on is FailOn.MATERIAL and material:
        return ExitCode.FINDING
    if fail_on is FailOn.UNDECIDED and any(c.verdict is Verdict.NONE for c in analysis.cells):
        return ExitCode.FINDING
    return ExitCode.FAILED_TRIALS if analysis.failed_trials else ExitCode.DONE
