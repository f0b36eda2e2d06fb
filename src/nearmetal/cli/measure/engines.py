"""Options and commands for runs whose rounds are run by workers of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from ...api.engines import Fleet, cancel_workers, worker_states
from ...api.nodes import node_options
from ...api.results import open_results
from ...engines import NamesNodes, State, engine_names, load_engine, parse_options
from ...errors import ExitCode, UsageError
from ...records import ResultsDirectory
from ...records.claims import LEASE
from ...report.text import plural
from ..common import complain, duration
from ..options import Directory, Results, RunOptions


def lease_of(text: str | None) -> float:
    """Return the value of --lease in seconds; LEASE if it is not given."""
    return duration(text, "--lease") or LEASE


def fleet_of(options: RunOptions) -> Fleet | None:
    """Return the workers that the options request; None if this process runs the rounds itself.

    Without --workers there is one worker, or one on each node of the inventory that --nodes names.

    Raises UsageError for an unknown engine or option, and for --nodes with an engine that chooses the nodes
    itself. Errors of inventory.load_inventory() are passed on.
    """
    engine, workers, nodes = options.engine, options.workers, options.nodes
    if engine is None:
        if (workers or 1) > 1 or options.engine_option or nodes is not None or options.lease is not None:
            raise UsageError(
                "--workers, --nodes, --engine-option and --lease need an engine",
                remedy=f"--engine, one of: {', '.join(engine_names())}",
            )
        return None
    if options.require is not None:
        raise UsageError(
            "--require does not apply to the workers of an engine",
            remedy="leave it out: the report names guests that were emulated",
        )
    loaded = load_engine(engine)
    known = parse_options(engine, loaded, options.engine_option)
    if nodes is not None:
        if not isinstance(loaded, NamesNodes):
            raise UsageError(
                f"--nodes: engine {engine} chooses the nodes itself",
                remedy="--engine ssh, or its own options: --engine-option extra='…'",
            )
        if "hosts" in known:
            raise UsageError(
                "--nodes and --engine-option hosts= both name the nodes", remedy="give one of them"
            )
        known = {**node_options(nodes, complain), **known}
        workers = workers or len(loaded.nodes(known))
    return Fleet(engine=engine, workers=workers or 1, options=known, lease=lease_of(options.lease))


def workers_of(directory: ResultsDirectory) -> Mapping[str, State]:
    return {} if directory.closed else worker_states(directory)


def cancel(
    directory: Path = Directory,
    results: Path = Results,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the workers, and cancel none."),
) -> int:
    found = open_results(directory, results, complain)
    if dry_run:
        for worker, state in worker_states(found).items():
            print(f"{worker}: {state}")
        return ExitCode.DONE
    number = cancel_workers(found)
    ends = f"{plural(number, 'worker')} will end; each gives its round back"
    print(ends if number else "every worker has ended already")
    return ExitCode.DONE
