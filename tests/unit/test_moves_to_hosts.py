"""Moves to another machine, which is this one: what is left there, and where an instance runs in the end."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from tests.patience import until

from nearmetal.api.moves import dumps, hosts, moving, plans
from nearmetal.api.moves.hosts import RemoteImages, images_on, move_lazily
from nearmetal.environments import Criu
from nearmetal.environments.external import DestinationKind, Dumps, External, Saved, Work
from nearmetal.errors import RunError
from nearmetal.host import LocalHost, Process
from nearmetal.host.ssh import SshHost
from nearmetal.lifecycle import Method
from nearmetal.testing.fake_host import FakeProcess

HOST = LocalHost()
SAVED = Saved(name="pid:7", method=Method.CRIU_LAZY)
FULL = OSError(errno.ENOSPC, "No space left on device")
#: A CRIU that only waits, with the options of a page server.
WAITS = """\
import os, sys, time
images = sys.argv[sys.argv.index("--images-dir") + 1]
log = sys.argv[sys.argv.index("--log-file") + 1]
with open(os.path.join(images, log), "w") as out:
    out.write("ready\\n")
os.write(1, b"\\0")
time.sleep(600)
"""


class Near(LocalHost):
    """This machine in place of another one."""

    name = "node7"
    reached = True

    def connected(self) -> bool:
        return self.reached

    def forward_from(self, port: int) -> int:
        return port


class Instance:
    """An instance that is one process."""

    name, what = "pid:7", "process 7"
    moves_by: ClassVar[dict[DestinationKind, tuple[Method, ...]]] = {}

    def __init__(self, pid: int = 0) -> None:
        self.pid, self.discarded, self.rounds = pid, False, 0

    def first(self, _: object) -> int:
        return self.pid

    def inspect(self, _: object) -> None:
        pass

    def thaw(self, _: object) -> None:
        pass

    def restore_lazily(self, *_: object) -> str:
        return "pid:7"

    def restore(self, *_: object) -> str:
        return "pid:7"

    def discard(self, *_: object) -> None:
        self.discarded = True

    def checkpoint(self, host: object, work: Work, images: Path, method: Method) -> None:
        for _ in range(self.rounds):
            time.sleep(0.2)
            work.round_written(images)


class Sends(FakeProcess):
    """A program that sends memory, and meanwhile is interrupted some times."""

    def __init__(self, interrupts: int) -> None:
        super().__init__([])
        self.interrupts = interrupts
        self.end()

    def wait(self, timeout: float) -> int:
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        return super().wait(timeout)


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Near:
    monkeypatch.setattr(hosts, "REMOTE", str(tmp_path / "move.XXXXXX"))
    return Near()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def work(directory: Path) -> Work:
    script = directory / "criu.py"
    script.write_text(WAITS)
    return Work(criu=lambda _: Criu(argv=(sys.executable, str(script)), version="4.2.1"), time_limit=30.0)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_a_page_server_ends_soon_after_the_time_limit_of_its_dump(near: Near, tmp_path: Path) -> None:
    asked = work(tmp_path)
    (log := tmp_path / "log").touch()
    with images_on(HOST, cast(SshHost, near), asked) as there:
        there.serve_pages(asked.criu(HOST), log)
        (note,) = there.path.glob("*.pid")
        assert words_of(int(note.read_text()))[:3] == ["timeout", "--kill-after=1", "90"]


@pytest.mark.parametrize("ours", [True, False])
def test_only_a_program_that_uses_the_directory_is_killed_there(
    near: Near, tmp_path: Path, ours: bool
) -> None:
    """The PID of a program that has ended may belong to another one."""
    asked = work(tmp_path)
    (log := tmp_path / "log").touch()
    with images_on(HOST, cast(SshHost, near), asked) as there:
        there.serve_pages(asked.criu(HOST), log)
        (note,) = there.path.glob("*.pid")
        words = ["-c", "import time; time.sleep(600)", *([f"{there.path}"] if ours else [])]
        with subprocess.Popen([sys.executable, *words]) as other:
            note.write_text(f"{other.pid}\n")
            until(lambda: words_of(other.pid)[1:2] == ["-c"], "the program")
            there.clear()
            ended = other.wait(30) if ours else other.poll()
            other.kill()
    assert ended == (-15 if ours else None)


@pytest.mark.parametrize("reached", [True, False])
def test_a_directory_that_stays_there_is_named(near: Near, tmp_path: Path, reached: bool) -> None:
    with pytest.raises(RunError) as failed, images_on(HOST, cast(SshHost, near), work(tmp_path)) as there:
        near.reached = reached
        raise RunError("it continues here", remedy="a free PID")
    left = "" if reached else f"; remove node7:{there.path}, which could not be reached"
    assert failed.value.remedy == f"a free PID{left}"
    assert there.path.exists() is not reached
    said: list[str] = []
    near.reached = True
    with images_on(HOST, cast(SshHost, near), work(tmp_path), said.append) as there:
        near.reached = reached
    assert said == ([] if reached else [f"remove node7:{there.path}, which could not be reached"])


class Full(RemoteImages):
    """A machine to which nothing can be sent, since this machine has no more room."""

    def send(self, images: Path, part: str = "") -> None:
        raise FULL


class Ready(RemoteImages):
    """A machine that takes everything, and fetches memory until it is interrupted."""

    interrupts = 0

    def send(self, images: Path, part: str = "") -> None:
        pass

    def fetch_pages(self, criu: Criu, server: socket.socket, log: Path) -> Process:
        return Sends(self.interrupts)


@contextmanager
def dumping(*_: object, server: int) -> Iterator[Process]:
    yield Sends(0)


def moved(
    kind: type[RemoteImages], instance: Instance, near: Near, directory: Path, said: list[str]
) -> tuple[str, float]:
    there = kind(
        host=HOST, remote=cast(SshHost, near), path=directory, bandwidth=None, time_limit=30.0, end=0.0
    )
    return move_lazily(
        HOST, cast(Dumps, instance), work(directory), SAVED, directory, there, cast(Any, said.append)
    )


def test_a_full_disk_lets_the_source_of_a_lazy_move_go_on(
    near: Near, tmp_path: Path, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearmetal.environments.criu_pages.background", dumping)
    with pytest.raises(RunError, match="was not moved to node7, and continues here: No space left"):
        moved(Full, Instance(child.pid), near, tmp_path, [])
    until(lambda: state(child.pid) == "S", "the source")


@pytest.mark.parametrize("interrupts", [0, 1, 2])
def test_the_first_ctrl_c_does_not_lose_an_instance_whose_memory_is_fetched(
    near: Near,
    tmp_path: Path,
    child: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    interrupts: int,
) -> None:
    monkeypatch.setattr("nearmetal.environments.criu_pages.background", dumping)
    monkeypatch.setattr(Ready, "interrupts", interrupts)
    instance, said = Instance(child.pid), list[str]()
    if interrupts < 2:
        assert moved(Ready, instance, near, tmp_path, said)[0] == "pid:7"
    else:
        with pytest.raises(RunError, match=r"process 7 is lost: .* not all of its memory arrived"):
            moved(Ready, instance, near, tmp_path, said)
    assert instance.discarded is (interrupts == 2)
    assert [("Interrupt again to end" in text) for text in said] == [True] * (interrupts > 0)
    assert ("interrupted" in Method.CRIU_LAZY.risk) and "interrupted" not in Method.POSTCOPY.risk


def test_a_full_disk_says_that_the_instance_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise FULL

    instance, asked = Instance(), work(tmp_path)
    monkeypatch.setattr(instance, "checkpoint", no_room)
    with pytest.raises(RunError, match="No space left on device; pid:7 continues"):
        dumps.write(HOST, cast(External, instance), asked, SAVED, tmp_path)
    monkeypatch.setattr(dumps, "write_begun", no_room)
    with pytest.raises(RunError, match="no checkpoint of pid:7, which continues: No space left on device"):
        dumps.write(HOST, cast(External, instance), asked, SAVED, tmp_path)


def test_an_instance_stands_still_only_from_its_last_dump_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded corrects later predictions of the downtime."""
    instance, recorded = Instance(), list[tuple[float, float]]()
    instance.rounds = 3

    class Plan:
        instance, method, warning = "pid:7", Method.CRIU_PRECOPY, ""

    monkeypatch.setattr(moving, "find_external", lambda *_: instance)
    monkeypatch.setattr(moving, "_alone", lambda _: _nothing())
    monkeypatch.setattr(moving, "planned", lambda *_: Plan)
    monkeypatch.setattr(moving, "described", lambda *_: SAVED)
    monkeypatch.setattr(moving, "work_of", lambda *_: work(tmp_path))
    monkeypatch.setattr(moving, "remember", lambda _plan, _target, *times: recorded.append(times))
    done = moving.checkpoint("pid:7", tmp_path / "i", moving.MoveOptions())
    assert done.downtime is not None and done.downtime < 0.3 < 0.6 <= done.total
    moved = moving.migrate("pid:7", str(tmp_path / "j"), moving.MoveOptions())
    assert moved.downtime is not None and moved.downtime < 0.3 < 0.6 <= moved.total
    assert recorded == [(done.total, done.downtime), (moved.total, moved.downtime)]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def test_ctrl_c_while_a_finished_move_is_recorded_does_not_hide_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plans, "keep", interrupted)
    predicted = SimpleNamespace(method=Method.CRIU)
    plan = SimpleNamespace(instance="pid:1", action="migrate", method=Method.CRIU, uncorrected=[predicted])
    target = SimpleNamespace(way=DestinationKind.HOST)
    plans.remember(cast(Any, plan), cast(Any, target), 1.0, None)
