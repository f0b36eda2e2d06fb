"""Context managers that run a program until exit, and a wait for a condition, such as that a program is
ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

from ..base import Host, Launched, Process
from .labelled import LABEL_VARIABLE

NOTED = 'echo $$ >"$0"; exec "$@"'
"""Shell script that writes its PID to the file $0, and becomes the command in its arguments."""


@contextmanager
def running_program(
    host: Host,
    argv: Sequence[str],
    label: str,
    output: Path,
    *,
    errors: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Process]:
    """Start a program in the root directory, and kill it on exit.

    label: label by which the program is found after a kill -9.
    output, errors: files to which its output is appended; without errors, both streams go to output.
    env: further environment variables.
    """
    process = host.start(
        argv,
        stdout=output,
        stderr=errors or output,
        env={LABEL_VARIABLE: label, **(env or {})},
        cwd=Path("/"),
    )
    try:
        yield process
    finally:
        process.kill()


@contextmanager
def running_helper(
    host: Host, argv: Sequence[str], label: str, *, expect: Set[str], timeout: float
) -> Iterator[Launched]:
    """Launch a helper with a label (Host.launch), and kill it on exit.

    Raises RunError.
    """
    launched = host.launch(argv, expect=expect, timeout=timeout, env={LABEL_VARIABLE: label})
    try:
        yield launched
    finally:
        launched.process.kill()


def await_true(
    condition: Callable[[], bool], seconds: float, process: Process | None = None, *, every: float = 0.005
) -> bool:
    """Wait until a condition is true. Returns False if it is not true after `seconds`, or if the process ends
    first.

    process: process without which the condition will not become true; None for none.
    every: seconds between two evaluations of the condition.
    """
    end = time.monotonic() + seconds
    while not condition():
        if (process is not None and process.poll() is not None) or time.monotonic() > end:
            return False
        time.sleep(every)
    return True
