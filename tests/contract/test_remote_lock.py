"""The entry of a run in the lock file of another machine: who sees it, whom it refuses, and what is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearmetal.environments import Tools
from nearmetal.errors import BusyError, RunError
from nearmetal.host import LocalHost, lock
from nearmetal.host.leftovers import wanted_names
from nearmetal.host.lock import RunInfo, living_runs, machine_lock, parse_runs
from nearmetal.host.processes.birth import birth
from nearmetal.node import remote_lock
from nearmetal.node.remote_lock import entered, living_there

pytestmark = pytest.mark.beside

LABEL = "nearmetal-0a1b2c"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock file, in a directory to which all users may write."""
    for module in (lock, remote_lock):
        monkeypatch.setattr(module, "SHARED", tmp_path)
    tmp_path.chmod(0o1777)
    return tmp_path / "nearmetal.lock"


@contextmanager
def serving(tools: Tools, label: str) -> Iterator[subprocess.Popen[bytes]]:
    """The agent of a run on the other machine."""
    argv = [str(tools / "nm-guest"), "serve", label]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.read(1)
        yield process
        process.kill()


@pytest.fixture
def agent(tools: Tools) -> Iterator[subprocess.Popen[bytes]]:
    with serving(tools, LABEL) as process:
        yield process


def of(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text()


def test_a_run_over_machines_is_known_there(
    place: Path, agent: subprocess.Popen[bytes], tools: Tools
) -> None:
    there, program, label = LocalHost(), Path(tools / "nm-guest"), LABEL
    assert not wanted_names()(f"{label}-0-1"), "its mark is seen without the file"
    with entered(there, "n1", program, of(agent), label, force=False):
        (run,) = living_runs()
        assert (run.pid, run.run) == (agent.pid, label) and run.command.startswith(
            f"on {os.uname().nodename}"
        )
        assert not wanted_names()(label) and not wanted_names()(f"{label}-0-1"), "clean keeps its ranks"
        assert wanted_names()("nearmetal-ffffff")
        with pytest.raises(BusyError, match=label), machine_lock("nearmetal-ffffff", command="c"):
            pass
        with machine_lock("nearmetal-ffffff", command="c", force=True):
            assert [r.run for r in living_runs()] == [label, "nearmetal-ffffff"]
        assert living_runs() == (run,)
        agent.kill()
        agent.wait()
        assert living_runs() == () and wanted_names()(label), "the entry ends with the agent"
    assert not place.exists()


def test_a_machine_on_which_another_run_measures_is_refused(
    place: Path, agent: subprocess.Popen[bytes], tools: Tools
) -> None:
    there, program, other = LocalHost(), Path(tools / "nm-guest"), "nearmetal-ffffff"
    dead = RunInfo(pid=agent.pid, born=1, run="nearmetal-dead00", since=0.0, command="c")
    place.write_text(f"{dead.line}\nno line of ours\n")
    with entered(there, "n1", program, of(agent), LABEL, force=False), serving(tools, other) as second:
        assert [r.run for r in parse_runs(place.read_text())] == ["nearmetal-dead00", LABEL]
        before = place.read_text()
        with (
            pytest.raises(BusyError, match=f"{LABEL} measures on n1"),
            entered(there, "n1", program, of(second), other, force=False),
        ):
            pass
        assert place.read_text() == before
        with entered(there, "n1", program, of(second), other, force=True):
            assert len(living_runs()) == 2
    assert place.read_text() == f"{dead.line}\nno line of ours\n"
    place.unlink()
    place.symlink_to(place.parent / "other")
    with (
        pytest.raises(RunError, match="cannot be used"),
        entered(there, "n1", program, of(agent), LABEL, force=True),
    ):
        pass


def change(tools: Tools, place: Path, line: str) -> subprocess.CompletedProcess[bytes]:
    argv = [str(tools / "nm-guest"), "add-line", str(place), line]
    return subprocess.run(argv, capture_output=True, timeout=60, check=False)


@pytest.mark.attack
@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "other name"])
def test_things_that_are_no_lock_there(place: Path, tools: Tools, kind: str) -> None:
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
    done = change(tools, place, "line")
    assert done.returncode == 1 and b"open" in done.stderr and precious.read_text() == "precious"
    assert living_there(LocalHost()) == frozenset()


@pytest.mark.attack
def test_a_file_that_others_have_filled_or_locked(place: Path, tools: Tools) -> None:
    place.write_bytes(b"\xff" * 100_000)
    assert living_there(LocalHost()) == frozenset()
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print(flush=True); input()"
    )
    argv = [sys.executable, "-c", program, str(place)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        assert change(tools, place, "line").returncode == 0 and place.read_text() == "line\n"
        process.kill()


@pytest.mark.attack
def test_a_line_there_that_names_a_process_which_is_no_run(
    place: Path, agent: subprocess.Popen[bytes], tools: Tools
) -> None:
    born = birth(os.getpid())
    assert born is not None
    forged = RunInfo(pid=os.getpid(), born=born, run="nearmetal-ffffff", since=0.0, command="c")
    place.write_text(f"{forged.line}\n")
    with entered(LocalHost(), "n1", Path(tools / "nm-guest"), of(agent), LABEL, force=False):
        assert living_there(LocalHost()) >= {LABEL}
