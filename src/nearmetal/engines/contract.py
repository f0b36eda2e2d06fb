"""The contract of an engine: it submits workers, reports their states, and cancels them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..errors import RunError, UsageError
from ..host import Completed, Host
from ..plugins import load, points

GROUP = "nearmetal.engines"
"""The entry-point group of the engines."""
SECONDS = 60.0
"""Time limit of one command of an engine."""
EXTRA = {"extra": "further options of its submit command, such as '--partition short'"}
"""The option `extra` of engines that add words to the command line of their submit command."""


PID, BIRTH = r"(?!1:)[1-9]\d{0,9}", r"[1-9]\d{0,19}"
"""Regular expressions in IDs of workers that are processes. kill(2) takes a negative PID and 0 for many
processes, and PID 1 is the system itself. The birth, in clock ticks since boot, follows after a colon."""


NUMBER = r"[1-9]\d{0,19}"
"""Regular expression for an ID that is the number of a job. Some engines take 0 for all jobs."""


class State(StrEnum):
    """The state of a worker.

    WAITING: not started yet, or requeued.
    ENDED: ended, cancelled, or no longer known to the engine.
    UNKNOWN: the engine did not answer, or in words that are not known here. The worker may still run.
    """

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Job:
    """Workers to be started, one on each node.

    name: shown by the engine.
    argv: command of a worker.
    workers: their number.
    directory: working directory of the workers.
    logs: existing directory for their output, reached by the same path on all nodes.
    cpus: CPUs that one worker needs.
    seconds: time limit of a worker; None for the default of the engine.
    """

    name: str
    argv: tuple[str, ...]
    workers: int
    directory: Path
    logs: Path
    cpus: int
    seconds: float | None

    def script(self) -> str:
        """Return a shell script that executes the worker's command in its working directory."""
        return f"#!/bin/sh\ncd {shlex.quote(str(self.directory))} || exit 1\nexec {shlex.join(self.argv)}\n"

    @property
    def minutes(self) -> int:
        """The time limit in whole minutes, rounded up; 0 for none."""
        return -int(-(self.seconds or 0) // 60)


class Engine(Protocol):
    """One way to start workers.

    options: help of each option that a user may give, by its name.
    id: regular expression for a whole ID of a worker. IDs become words of commands, so it must not match an
        option, nor a word by which the engine means all jobs or those of other users.
    """

    @property
    def options(self) -> Mapping[str, str]: ...

    @property
    def id(self) -> str: ...

    def submit(self, host: Host, job: Job, options: Mapping[str, str]) -> tuple[str, ...]:
        """Submit the workers, and return their ids for states() and cancel().

        Raises UsageError for an unsuitable option, UnavailableError if a program of the engine is missing,
        and RunError if it refuses.
        """

    def states(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> dict[str, State]:
        """Return the state of every worker by its id; an id of submit() may stand for several workers."""

    def cancel(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> None:
        """Send SIGTERM to running workers and remove waiting ones. Harmless for workers that have ended."""


@runtime_checkable
class NamesNodes(Protocol):
    """An engine whose user names the machines. It starts each worker with the option --node NAME."""

    def nodes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the machines, in the order in which they get workers.

        Raises UsageError for an unsuitable option.
        """


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines."""
    return tuple(points(GROUP))


def load_engine(name: str) -> Engine:
    """Return the engine with a name. Raises UsageError if there is none."""
    engine: Engine = load(GROUP, name, "engine", UsageError)
    return engine


def parse_options(name: str, engine: Engine, words: Sequence[str]) -> dict[str, str]:
    """Parse options of the form KEY=VALUE. Raises UsageError for one that the engine does not have."""
    found: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or key not in engine.options:
            known = "; ".join(f"{k}={what}" for k, what in engine.options.items())
            raise UsageError(
                f"--engine-option {word}: engine {name} has no such option",
                remedy=f"options: {known}" if known else "it has no options",
            )
        found[key] = value
    return found


def require_ids(engine: Engine, ids: Sequence[str]) -> None:
    """Check IDs of workers before commands with them are run.

    Raises RunError for one that the engine cannot have given.
    """
    for identity in ids:
        if re.fullmatch(engine.id, identity, re.ASCII) is None:
            raise RunError(
                f"{identity!r} is no ID of a worker of this engine",
                remedy="end the workers with the commands of the engine",
            )


def number_in(text: str, program: str) -> str:
    """Return the number of a job that a program has printed. Raises RunError if the text is none."""
    if re.fullmatch(NUMBER, text, re.ASCII) is None:
        raise RunError(f"{program} printed no number of a job: {text!r}")
    return text


def extra_words(options: Mapping[str, str]) -> list[str]:
    """Return the words of the option `extra`. Raises UsageError if its quotes do not match."""
    try:
        return shlex.split(options.get("extra", ""))
    except ValueError as e:
        raise UsageError(
            f"--engine-option extra={options['extra']}: {e}", remedy="close every quote that it opens"
        ) from e


def ask(host: Host, argv: Sequence[str], *, stdin: str | None = None, cwd: Path | None = None) -> Completed:
    """Run a command of an engine. Raises RunError with its message if it fails."""
    return host.run(argv, timeout=SECONDS, stdin=stdin, cwd=cwd).require(argv[0])
