"""When a program has been killed, no process of its group lives."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.patience import one_fits, until

from nearmetal.host.local import LocalHost
from nearmetal.host.processes.labelled import LABEL_VARIABLE

SLOW = (
    "import os, time; kept = b'x' * 100_000_000; print('started', flush=True);"
    "os.close(1); os.close(2); time.sleep(600)"
)
"""A program that takes some milliseconds to end, because it has memory to give back."""
PARENT = f'echo $$; {sys.executable} -c "{SLOW}" & wait'


ORPHAN = "sh -c 'kill -STOP $$' & while ! grep -q ' T ' /proc/$!/stat; do :; done; kill -KILL $$"
"""A program that is killed and leaves a stopped child."""


def members(group: int) -> list[str]:
    """Return the states of the living processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, other = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(other) == group and state not in "ZX":
                found.append(state)
    return found


def test_no_child_outlives_a_kill(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = LocalHost().start(["sh", "-c", PARENT], stdout=out, stderr=tmp_path / "err")
    until(lambda: "started" in out.read_text() or process.poll() is not None, "the start of the child")
    process.kill()
    assert members(process.pid) == []


@contextmanager
def orphaned(tmp_path: Path, label: str, environment: Mapping[str, str] | None) -> Iterator[int]:
    """The group of a program that was killed by somebody else, with its stopped child, after kill()."""
    out = tmp_path / label
    process = LocalHost().start(["sh", "-c", ORPHAN], stdout=out, stderr=tmp_path / "err", env=environment)
    until(lambda: process.poll() is not None, "the end of the program")
    process.kill()
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_stopped_children_of_a_program_that_was_killed_are_killed_by_their_label(tmp_path: Path) -> None:
    label = f"nearmetal-test{os.getpid()}-orphan"
    with orphaned(tmp_path, label, {LABEL_VARIABLE: label}) as group:
        until(lambda: members(group) == [], "the end of the child")
    with orphaned(tmp_path, f"{label}-none", None) as group:
        time.sleep(0.1)
        assert members(group) == ["T"]


def test_no_child_outlives_a_time_limit() -> None:
    limits = (2.0**n for n in range(9))
    ended = one_fits(
        lambda: LocalHost().run(["sh", "-c", PARENT], timeout=next(limits)),
        lambda d: "started" in d.stdout,
        attempts=9,
    )
    assert ended.returncode == 124
    assert members(int(ended.stdout.split()[0])) == []


def test_what_is_to_be_done_before_a_kill_is_done_before_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def look() -> None:
        alive.append(members(int(pid.read_text())) != [])

    alive: list[bool] = []
    ended = LocalHost().run(["sh", "-c", f"echo $$ >{pid}; sleep 600"], timeout=2.0, before_kill=look)
    assert ended.returncode == 124 and alive == [True]
    assert LocalHost().run(["true"], timeout=60.0, before_kill=look).ok and alive == [True]
