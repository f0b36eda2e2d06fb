"""Starts a helper by posix_spawn and reads its report.

Such a start takes half a millisecond; a start by subprocess takes several.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence, Set
from functools import cache
from pathlib import Path, PurePath

from ...errors import RunError
from ..base import REPORT_FD, Launched
from ..runtime import rebuild_remedy
from .failure import describe_failure
from .labelled import LABEL_VARIABLE, kill_program

_LONGEST_REPORT = 65536


class SpawnedProcess:
    """A child of posix_spawn in a session of its own. A pidfd reports its end without polling."""

    def __init__(self, pid: int, label: str | None = None) -> None:
        """label: the label in its environment; None if there is none."""
        self.pid, self._label = pid, label
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def wait(self, timeout: float) -> int:
        if self.poll() is None:
            wait_for_end(self.pid, timeout)
        status = self.poll()
        if status is None:
            raise TimeoutError(f"process {self.pid} still runs after {timeout} s")
        return status

    def kill(self) -> None:
        kill_program(self.pid, self._label, runs=self.poll() is None, reap=lambda: self.wait(60))


def wait_for_end(child: int, timeout: float) -> bool:
    """Return whether a child process ends within timeout seconds. It must not have been reaped."""
    fd = os.pidfd_open(child)
    try:
        return wait_readable(fd, timeout)
    finally:
        os.close(fd)


def wait_readable(fd: int, timeout: float) -> bool:
    """Return whether fd becomes readable within timeout seconds. A pidfd does when its process ends."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(max(timeout, 0) * 1000))


def launch_helper(
    argv: Sequence[str], *, expect: Set[str], timeout: float, env: Mapping[str, str] | None, inherit: bool
) -> Launched:
    """Implement Host.launch.

    The report pipe is also the helper's standard error, so one read receives both.
    """
    _close_inherited_on_exec()
    reader, writer = os.pipe()
    try:
        try:
            pid = os.posix_spawn(
                argv[0],
                list(argv),
                {**(os.environ if inherit else {}), **(env or {})},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                    (os.POSIX_SPAWN_DUP2, writer, 2),
                    (os.POSIX_SPAWN_DUP2, writer, REPORT_FD),
                ],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them; programs should not
            )
        except OSError as e:
            raise RunError(
                f"{argv[0]}: {e.strerror}",
                remedy=rebuild_remedy(),
            ) from e
        finally:
            os.close(writer)
        process = SpawnedProcess(pid, (env or {}).get(LABEL_VARIABLE))
        try:
            facts = _read_report(reader, process, PurePath(argv[0]).name, expect, timeout)
            return Launched(process=process, facts=facts)
        except BaseException:
            process.kill()
            raise
    finally:
        os.close(reader)


@cache
def _close_inherited_on_exec() -> None:
    """Mark the files that this process has inherited to be closed in its children, as subprocess does.

    An instance with such a file could not be restored from a checkpoint if somebody else has locked the file.
    """
    for file in Path("/proc/self/fd").iterdir():
        if int(file.name) > 2:
            with contextlib.suppress(OSError):  # the one that lists the directory is closed already
                os.set_inheritable(int(file.name), False)


def _read_report(
    reader: int, process: SpawnedProcess, name: str, expect: Set[str], timeout: float
) -> dict[str, int]:
    deadline = time.monotonic() + timeout
    report = b""
    while True:
        facts, text = parse_report(report)
        if expect <= facts.keys():
            return facts
        if not wait_readable(reader, deadline - time.monotonic()):
            raise RunError(f"no report within {timeout:g} s: {describe_failure(name, process.poll(), text)}")
        more = os.read(reader, 4096)
        if not more or len(report) > _LONGEST_REPORT:
            with contextlib.suppress(TimeoutError):
                process.wait(10)
            _, text = parse_report(report + b"\n")
            raise RunError(describe_failure(name, process.poll(), text))
        report += more


def parse_report(report: bytes) -> tuple[dict[str, int], str]:
    """Return (facts, text) of a helper's report.

    facts: from whole lines that are JSON objects of integers.
    text: all other whole lines.
    """
    facts: dict[str, int] = {}
    others = []
    for line in report.decode(errors="replace").split("\n")[:-1]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and all(type(v) is int for v in value.values()):
            facts.update(value)
        elif line.strip():
            others.append(line)
    return facts, "\n".join(others)
