"""Options and commands for runs whose rounds are run by workers of an engine."""

from __future__ import annotations

from pathlib import Path

import typer

from ...api.engines import Fleet, requested_fleet
from ...api.results import open_results
from ...api.submitted import cancel_workers, elsewhere, run_with_workers, worker_states
from ...errors import ExitCode, UsageError
from ...report.text import plural
from ..common import duration
from ..options import OwnDirectory, Results, RunOptions
from ..output import complain, print_lines


def fleet_of(options: RunOptions) -> Fleet | None:
    """Return the workers that the options request; None if this process runs the rounds itself. Raises the
    errors of requested_fleet(), and UsageError for --require."""
    if options.engine is not None and options.require is not None:
        raise UsageError(
            "--require does not apply to the workers of an engine",
            remedy="leave it out: the report names guests that were emulated",
        )
    return requested_fleet(
        options.engine,
        workers=options.workers,
        nodes=options.nodes,
        options=options.engine_option,
        lease=duration(options.lease, "--lease"),
        note=complain,
    )


def cancel(
    directory: Path = OwnDirectory,
    results: Path = Results,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the workers, and cancel none."),
) -> int:
    found = open_results(directory) if directory is not None else run_with_workers(results)
    if dry_run:
        if reason := elsewhere(found):
            complain(f"{found.path}: {reason}; nothing can be cancelled here")
        for worker, state in worker_states(found).items():
            print_lines(f"{worker}: {state}")
        return ExitCode.DONE
    number = cancel_workers(found)
    ends = f"{plural(number, 'worker')} will end; each gives its round back"
    print_lines(ends if number else "every worker has ended already")
    return ExitCode.DONE
