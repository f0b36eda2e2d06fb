"""The workers that an engine was told to start, as this user's state directory knows them.

The file engine.json in the results directory is for people only. Whoever made a directory could write into
that file what `status` and `cancel` then would start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..engines import Engine, load_engine, require_ids
from ..engines import State as State
from ..errors import RecordsError, UnavailableError, UsageError
from ..host import LocalHost
from ..records import ResultsDirectory
from ..records.disk import store_file
from ..records.own_runs import Workers, newest_own_run, note_run, own_run

SUBMITTED = "engine.json"
"""Name of the file about the submitted workers in a results directory."""


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """The workers that an engine started for a run."""

    engine: Engine
    ids: tuple[str, ...]
    options: Mapping[str, str]

    def __post_init__(self) -> None:
        require_ids(self.engine, self.ids)

    def states(self) -> dict[str, State]:
        return self.engine.states(LocalHost(), self.ids, self.options)

    def cancel(self) -> None:
        self.engine.cancel(LocalHost(), self.ids, self.options)


def remember(directory: ResultsDirectory, workers: Workers | None, nodes: tuple[str, ...] = ()) -> None:
    """Note the workers of a run.

    workers: the workers; None if all of them have ended.
    nodes: names of their nodes, for people.

    Raises RecordsError if they cannot be noted; nobody could cancel them later.
    """
    try:
        note_run(directory.path, workers)
    except OSError as e:
        raise RecordsError(
            f"its workers cannot be noted: {e.strerror}",
            where=str(e.filename),
            remedy="set XDG_STATE_HOME to a directory of yours that all login nodes share",
        ) from e
    if workers is not None:
        shown = {"engine": workers.engine, "ids": list(workers.ids), "nodes": list(nodes)}
        store_file(directory.files, SUBMITTED, json.dumps(shown).encode() + b"\n")


def submitted(directory: ResultsDirectory) -> Submitted | None:
    """Return the workers of a run that this user has submitted; None if there are none, or none any more.

    Raises RecordsError if the note about them is corrupt, or names a worker that no engine has.
    """
    run = own_run(directory.path)
    if run is None or run.workers is None:
        return None
    workers = run.workers
    return Submitted(engine=load_engine(workers.engine), ids=workers.ids, options=workers.options)


def elsewhere(directory: ResultsDirectory) -> str:
    """Return why this user cannot query the workers of a run; '' if the user can, or if the run has no
    workers."""
    if own_run(directory.path) is not None or not directory.files.is_file(SUBMITTED):
        return ""
    return "its workers were submitted by another user, or on a machine with another home directory"


def run_with_workers(parent: Path) -> ResultsDirectory:
    """Return the run below `parent` that this user has started last, of those with workers.

    Raises UsageError if there is none.
    """
    found = newest_own_run(parent, lambda path: (path / SUBMITTED).is_file())
    if found is None:
        raise UsageError(
            f"no run below {parent}/ whose workers you have submitted with this home directory",
            remedy="name a results directory",
        )
    return ResultsDirectory.open(found)


def worker_states(directory: ResultsDirectory) -> dict[str, State]:
    """Return the states of the workers of a run, by the engine's ID of the worker; empty for a run without an
    engine, and if elsewhere() says why."""
    found = submitted(directory)
    return {} if found is None else found.states()


def cancel_workers(directory: ResultsDirectory) -> int:
    """Cancel the workers of a run, and return how many were still waiting or running.

    Raises UsageError for a run without an engine and for workers that this user has not submitted, and
    UnavailableError if the engine does not know the states of some workers. These workers are cancelled too.
    """
    found = submitted(directory)
    if found is None:
        if reason := elsewhere(directory):
            raise UsageError(
                reason, where=str(directory.path), remedy="nearmetal cancel, by that user and on that machine"
            )
        if not directory.files.is_file(SUBMITTED):
            raise UsageError("no engine runs this study", where=str(directory.path))
        return 0
    states = tuple(found.states().values())
    living = sum(state is not State.ENDED for state in states)
    if living:
        found.cancel()
    if State.UNKNOWN in states:
        raise UnavailableError(
            f"the engine does not know the states of {states.count(State.UNKNOWN)} of {len(states)} workers;"
            " all were told to end",
            where=str(directory.path),
            remedy="nearmetal status, and cancel again if some still run",
        )
    return living
