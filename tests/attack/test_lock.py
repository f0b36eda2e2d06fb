"""What other users of a machine put in the place of the lock: nobody is deceived, blocked for ever, or told
to kill a process that is no run."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearmetal.errors import BusyError, RunError
from nearmetal.host import cgroups, leftovers, lock
from nearmetal.host.liveness import living_labels
from nearmetal.host.lock import living_runs, machine_lock, parse_runs
from nearmetal.host.processes.birth import birth
from nearmetal.host.run_mark import process_name, set_mark

pytestmark = pytest.mark.attack

VICTIM = "nearmetal-bbbbbb"
FORGED = "nearmetal-aaaaaa"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock file of a machine of its own."""
    monkeypatch.setattr(lock, "_STARTING", 0.05, raising=False)
    for module in (lock, leftovers):
        monkeypatch.setattr(module, "lock_path", lambda: tmp_path / "lock")
    return tmp_path / "lock"


@pytest.fixture
def no_wait() -> Iterator[None]:
    """Fail if the test waits for somebody hostile."""

    def fail(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@contextmanager
def locked_by_another(function: str, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Let a process that is no run lock a file, by flock or lockf."""
    program = (
        f"import fcntl, sys; file = open(sys.argv[1], 'a+'); fcntl.{function}(file, fcntl.LOCK_EX)\n"
        "print(flush=True); input()"
    )
    argv = [sys.executable, "-c", program, str(place)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        yield process
        process.kill()


@pytest.fixture
def other() -> Iterator[int]:
    """A process that is no run of nearmetal."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


def line(pid: int, /, **fields: object) -> str:
    """A line that names a process with its true start time."""
    known = {"pid": pid, "born": birth(pid), "run": FORGED, "since": 0.0, "command": "c", "group": ""}
    return json.dumps({**known, **fields}) + "\n"


@contextmanager
def run_of_another(place: Path, label: str = FORGED, **named: str) -> Iterator[int]:
    """A process that is a run in all but its work."""
    program = (
        "import sys; from pathlib import Path; from nearmetal.host.lock import machine_lock\n"
        "with machine_lock(sys.argv[1], command=sys.argv[2], path=Path(sys.argv[3])):\n"
        "    print(flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", program, label, named.get("command", "c"), str(place)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        yield process.pid
        process.kill()


@pytest.mark.parametrize("whose", ["init", "ours", "another's", "an ancestor's"])
def test_lines_that_name_processes_which_are_no_runs(place: Path, other: int, whose: str) -> None:
    pid = {"init": 1, "ours": os.getpid(), "another's": other, "an ancestor's": os.getppid()}[whose]
    place.write_text(line(pid))
    assert living_runs(place) == ()
    with machine_lock(VICTIM, command="c", path=place):
        assert [run.run for run in living_runs(place)] == [VICTIM]


@pytest.mark.parametrize("pid", [-1, 0, 1, 1 << 40])
def test_no_line_names_every_process_or_init(pid: int) -> None:
    assert parse_runs(line(os.getpid(), pid=pid)) == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"run": "nearmetal-\x1b[2J"},
        {"run": "nearmetal"},
        {"run": ""},
        {"since": 1e300},
        {"since": -1e300},
    ],
)
def test_lines_that_no_run_writes(fields: dict[str, object]) -> None:
    assert parse_runs(line(os.getpid(), **fields)) == ()


def test_a_line_that_is_nested_too_deeply(place: Path) -> None:
    place.write_text("[" * 60000)
    assert living_runs(place) == ()
    place.write_text('{"a":' * 12000)
    assert living_runs(place) == ()


def test_a_run_cannot_write_to_the_terminal_of_another(place: Path) -> None:
    with (
        run_of_another(place, command="\x1b]0;owned\x07\x1b[2J\u202e" + "x" * 5000),
        pytest.raises(BusyError) as caught,
        machine_lock(VICTIM, command="c", path=place),
    ):
        pass
    said = str(caught.value)
    assert all(c.isprintable() or c == "\n" for c in said) and len(said) < 600, said


def test_the_own_run_may_be_stopped_and_that_of_another_user_not(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_of_another(place) as pid:
        with pytest.raises(BusyError) as caught, machine_lock(VICTIM, command="c", path=place):
            pass
        assert caught.value.remedy is not None and f"kill -INT {pid}" in caught.value.remedy
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(BusyError) as caught, machine_lock(VICTIM, command="c", path=place):
            pass
        assert caught.value.remedy is not None and "kill" not in caught.value.remedy
        assert f"ask {'root' if os.getuid() == 0 else ''}" in caught.value.remedy


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "other name"])
@pytest.mark.usefixtures("no_wait")
def test_things_that_are_no_lock(place: Path, kind: str) -> None:
    precious = place.with_name("precious")
    precious.write_text("precious")
    match kind:
        case "fifo":
            os.mkfifo(place)
        case "directory":
            place.mkdir()
        case "link":
            place.symlink_to(precious)
        case _:
            os.link(precious, place)
    assert living_runs(place) == ()
    with (
        pytest.raises(RunError, match="cannot open the lock") as caught,
        machine_lock(VICTIM, command="c", path=place),
    ):
        pass
    assert caught.value.remedy is not None and "--force" in caught.value.remedy
    with machine_lock(VICTIM, command="c", force=True, path=place):
        assert VICTIM in living_labels()
    assert precious.read_text() == "precious"


def test_a_file_without_end(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(1 << 40)
    assert living_runs(place) == ()
    with machine_lock(VICTIM, command="c", path=place):
        assert [run.run for run in living_runs(place)] == [VICTIM]


def test_a_file_that_is_full_of_lines(place: Path) -> None:
    with place.open("w") as file:
        while file.tell() + 120 < lock.LIMIT:
            file.write(line(os.getpid(), run=f"nearmetal-{file.tell():06x}"))
    with machine_lock(VICTIM, command="c", path=place):
        assert [run.run for run in living_runs(place)] == [VICTIM]


def test_a_process_that_holds_the_lock_and_names_no_run(place: Path) -> None:
    with place.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BusyError) as caught, machine_lock(VICTIM, command="c", path=place):
            pass
        assert f"process {os.getpid()} (" in caught.value.what and caught.value.remedy is not None
        assert "kill" not in caught.value.remedy and "--force" in caught.value.remedy
        with machine_lock(VICTIM, command="c", force=True, path=place):
            assert [run.run for run in living_runs(place)] == [VICTIM]


def test_a_run_of_a_version_without_marks_is_known_by_the_lock_that_it_holds(place: Path) -> None:
    with locked_by_another("flock", place) as process:
        place.write_text(line(process.pid, run=VICTIM) + line(os.getpid()))
        assert [run.run for run in living_runs(place)] == [VICTIM]
        with pytest.raises(BusyError, match=VICTIM), machine_lock(FORGED, command="c", path=place):
            pass
        process.kill()
    assert living_runs(place) == ()


def test_the_lock_is_left_over_if_nobody_holds_it(place: Path) -> None:
    def found() -> list[str]:
        return [item.detail for item in leftovers.find() if item.kind is leftovers.LeftoverKind.LOCK]

    assert found() == []
    os.mkfifo(place)
    assert found() == [str(place)]
    place.unlink()
    with place.open("w") as file:
        assert found() == [str(place)]
        fcntl.flock(file, fcntl.LOCK_EX)
        assert found() == [], "its holder is just starting"


@pytest.mark.usefixtures("no_wait")
def test_a_process_that_never_lets_the_lines_be_changed(place: Path) -> None:
    place.touch()
    with locked_by_another("lockf", place), machine_lock(VICTIM, command="c", path=place):
        assert [run.run for run in living_runs(place)] == [VICTIM]


def test_a_lock_in_a_directory_of_its_own_does_not_hide_a_run(place: Path, tmp_path: Path) -> None:
    """As in a job whose /tmp is private: its lock file is another file."""
    assert leftovers.wanted_names()(f"{FORGED}-0-1")
    with run_of_another(tmp_path / "lock of its own"):
        assert not leftovers.wanted_names()(f"{FORGED}-0-1")
    assert leftovers.wanted_names()(f"{FORGED}-0-1")


def test_a_mark_can_be_forged_for_one_run_only() -> None:
    name = Path("/proc/self/comm")
    before = name.read_text()
    try:
        for forged in ("nearmetal", "nearmetal-", "nearmetal\x1b[2J"):
            name.write_text(forged)
            assert FORGED not in living_labels()
    finally:
        name.write_text(before)
    with set_mark("nearmetal"):
        assert FORGED not in living_labels()
    with set_mark(FORGED):
        assert name.read_text() == f"{process_name(FORGED)}\n"
        assert {FORGED, VICTIM} & living_labels() == {FORGED}
    assert name.read_text() == before


def test_processes_of_an_outer_pid_namespace_are_no_members(tmp_path: Path) -> None:
    """The kernel lists them as 0, and kill(0) would end all processes of the caller's group."""
    (tmp_path / "cgroup.procs").write_text("0\n17\n0\n")
    assert cgroups.members([tmp_path]) == {17}
