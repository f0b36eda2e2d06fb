"""Options and commands of runs whose blocks are run by workers of an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from ...api.engines import Fleet, cancel_workers, worker_states
from ...api.results import open_results
from ...engines import State, engine_names, load_engine, parse_options
from ...errors import ExitCode, UsageError
from ...records import ResultsDirectory
from ...records.claims import LEASE
from ...report.text import plural
from ..common import complain, duration
from ..options import Parent


def lease_of(text: str | None) -> float:
    """Return the option --lease in seconds."""
    return duration(text, "--lease") or LEASE


def fleet_of(engine: str | None, workers: int, options: Sequence[str], lease: str | None) -> Fleet | None:
    """Return the workers that a command line asks for; None if this process runs the rounds itself.

    Raises UsageError for an unknown engine or option.
    """
    if engine is None:
        if workers > 1 or options:
            raise UsageError(
                "--workers and --engine-option need an engine",
                remedy=f"--engine, one of: {', '.join(engine_names())}",
            )
        return None
    known = parse_options(engine, load_engine(engine), options)
    return Fleet(engine=engine, workers=workers, options=known, lease=lease_of(lease))


def workers_of(directory: ResultsDirectory) -> Mapping[str, State]:
    """Return the states of the workers of a run that is not closed."""
    return {} if directory.closed else worker_states(directory)


def cancel(
    directory: Path = typer.Argument(
        None, metavar="DIR", help="A results directory; without one the newest below results/."
    ),
    results: Path = Parent,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the workers, and cancel none."),
) -> int:
    found = open_results(directory, results, complain)
    if dry_run:
        for worker, state in worker_states(found).items():
            print(f"{worker}: {state}")
        return int(ExitCode.DONE)
    number = cancel_workers(found)
    print(f"{plural(number, 'worker')} told to end; each gives its round back")
    return int(ExitCode.DONE)
