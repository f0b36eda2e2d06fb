"""Moves of a user's process with a fault in the middle. Never do two copies run; if none runs, the error says
so or the images bring it back; and nothing is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from benchmarks.criu_moves import large_pipes
from tests.conftest import NEARMETAL
from tests.patience import until
from tests.system.moving_case import (
    ROOT,
    Program,
    There,
    acted,
    at_moment,
    criu,
    moved_by_a_tool,
    program,
    state,
    there,
    waits_for,
)
from tests.system.test_moving import NAME, root, started_lxc, started_runc
from tests.system.test_quick import left_behind, nearmetal

from nearmetal.api.moves import hosts as moving_hosts
from nearmetal.api.moves import moving
from nearmetal.api.moves import plans as move_plans
from nearmetal.errors import RunError
from nearmetal.host import namespaces
from nearmetal.lifecycle import Method

pytestmark = [pytest.mark.apart, pytest.mark.no_run, ROOT]
__all__ = ["criu", "program", "root", "state", "there"]
AT_DUMP, AT_RESTORE = ("pre-dump", "post-dump"), ("pre-restore", "post-restore", "pre-resume", "post-resume")
METHODS = (Method.CRIU, Method.CRIU_PAGESERVER, Method.CRIU_LAZY)


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    with large_pipes():
        yield
    assert left_behind(tmp_path) == []


def criu_has_ended(directory: Path) -> None:
    """A CRIU whose tool was killed goes on by itself for a moment."""

    def running() -> list[str]:
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = file.read_bytes().split(b"\0")
                if b"--images-dir" in words and any(str(directory).encode() in w for w in words):
                    found.append(file.parent.name)
        return found

    until(lambda: not running(), "the end of CRIU")


def comes_back(program: Program, images: Path, cwd: Path, *, begun: bool = False) -> None:
    """The images, which the error or the documentation names, are whole. begun: whether a restore from them
    was ended, so that the note of it must be removed first."""
    if begun:
        note = images / "nearmetal-restored.txt"
        refused = nearmetal("restore", str(images), cwd=cwd)
        assert refused.returncode == 2 and f"if it does not run: rm {note} && " in refused.stderr
        note.unlink()
    done = nearmetal("restore", str(images), cwd=cwd)
    assert done.returncode == 0, done.stderr
    program.goes_on()


@pytest.mark.parametrize("moment", [*AT_DUMP, *AT_RESTORE])
def test_the_tool_is_killed(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.chdir(tmp_path)
    note = tmp_path / "tool"
    env = at_moment(tmp_path, moment, f"kill -9 $(cat {note})")
    with moved_by_a_tool(str(program.pid), "./i", "criu", "none", env=env, note=note) as tool:
        tool.communicate()
    assert tool.returncode == -signal.SIGKILL and acted(tmp_path)
    criu_has_ended(tmp_path)
    assert len(program.copies) <= 1
    if program.copies:
        program.goes_on()
        refused = nearmetal("restore", "i", cwd=tmp_path)
        assert refused.returncode != 0 and len(program.copies) == 1, "no second copy is made"
    else:
        comes_back(program, tmp_path / "i", tmp_path, begun=moment in AT_RESTORE)


@pytest.mark.parametrize("moment", [*AT_DUMP, *AT_RESTORE])
def test_criu_is_killed(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.chdir(tmp_path)
    env = at_moment(tmp_path, moment, "kill -9 $PPID")
    with moved_by_a_tool(str(program.pid), "./i", "criu", "none", env=env) as tool:
        said = tool.communicate()[1]
    assert acted(tmp_path) and "Traceback" not in said
    if moment in AT_DUMP:
        assert tool.returncode == 4 and "which continues" in said
        program.goes_on()
        assert not list((tmp_path / "i").glob("*.img"))
    elif tool.returncode == 0:
        program.goes_on()
    else:
        assert tool.returncode == 4 and "runs nowhere" in said and "nearmetal restore" in said
        assert not program.copies
        program.out.unlink()  # what it did after it was resumed is done again
        program.out.touch()
        done = nearmetal("restore", "i", cwd=tmp_path)
        assert done.returncode == 0 and len(program.copies) == 1, done.stderr


@pytest.mark.parametrize("moment", AT_DUMP)
def test_the_source_is_killed(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.chdir(tmp_path)
    env = at_moment(tmp_path, moment, f"kill -9 {program.pid}")
    with moved_by_a_tool(str(program.pid), "./i", "criu", "none", env=env) as tool:
        said = tool.communicate()[1]
    assert acted(tmp_path) and "Traceback" not in said
    if tool.returncode == 0:  # it had been written already
        program.goes_on()
    else:
        assert not program.copies and "which has ended" in said


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("moment", AT_RESTORE)
def test_criu_is_killed_there(
    program: Program, there: There, state: Path, tmp_path: Path, method: Method, moment: str
) -> None:
    env = at_moment(tmp_path, moment, "kill -9 $PPID")
    there.make_criu(*(f"export {k}={v}" for k, v in env.items()))
    error = None
    try:
        moving.migrate(str(program.pid), "there", moving.MoveOptions(method=method))
    except RunError as e:
        error = e.what
    assert acted(tmp_path) and len(program.copies) <= 1
    if error is None or "continues here" in error:
        if moment in ("pre-resume", "post-resume"):  # what it may have done there is done again here
            before = program.passes
            until(lambda: program.passes > before and len(program.copies) == 1, "one that runs")
        else:
            program.goes_on()
    else:
        assert "is lost" in error or "runs nowhere" in error, error
        assert not program.copies
    assert not there.left()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("moment", ["pre-restore", "pre-resume"])
def test_the_connection_breaks_during_the_restore(
    program: Program, there: There, state: Path, tmp_path: Path, method: Method, moment: str
) -> None:
    note, cut = tmp_path / "reached", tmp_path / "cut"
    env = at_moment(tmp_path, moment, f": >{note}", waits_for(cut), "sleep 1")
    there.make_criu(*(f"export {k}={v}" for k, v in env.items()))
    words = (str(program.pid), "there", method.value, str(there.config))
    with moved_by_a_tool(*words, env={}) as tool:
        until(note.exists, "the restore there")
        there.cut()
        cut.touch()
        said = tool.communicate()[1]
    assert tool.returncode == 4 and "Traceback" not in said
    assert "not known whether" in said or "is lost" in said, said
    until(lambda: len(program.copies) <= 2, "copies")
    running = [state for state in program.copies.values() if state != "T"]
    assert len(running) <= 1, "of two one is stopped, and the error says how it goes on"
    for directory in there.left():
        shutil.rmtree(directory)  # nobody could reach them


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_connection_breaks_during_the_copy(
    program: Program, there: There, state: Path, number: signal.Signals
) -> None:
    """It is silent, or ends: before the restore was requested there, it continues here."""
    words = (str(program.pid), "there", "criu", str(there.config), "bandwidth=4e6", "time_limit=5")
    with moved_by_a_tool(*words, env={}) as tool:
        until(lambda: not program.copies, "the end of the source")
        until(lambda: any(d.iterdir() for d in there.left()), "the copy")
        there.cut(number)
        said = tool.communicate()[1]
    assert tool.returncode == 4 and "continues here" in said, said
    program.goes_on()
    there.cut()
    for directory in there.left():
        shutil.rmtree(directory)  # nobody could reach them


@pytest.mark.parametrize("method", METHODS)
def test_the_tool_is_killed_during_the_restore_there(
    program: Program, there: There, state: Path, tmp_path: Path, method: Method
) -> None:
    note, reached, killed = tmp_path / "tool", tmp_path / "reached", tmp_path / "killed"
    env = at_moment(tmp_path, "pre-restore", f": >{reached}", waits_for(killed), "sleep 2")
    there.make_criu(*(f"export {k}={v}" for k, v in env.items()))
    words = (str(program.pid), "there", method.value, str(there.config))
    with moved_by_a_tool(*words, env={}, note=note) as tool:
        until(reached.exists, "the restore there")
        tool.kill()
        killed.touch()
        tool.communicate()
    criu_has_ended(Path("/var/tmp"))
    running = [state for state in program.copies.values() if state != "T"]
    assert len(running) <= 1
    images = list((state / "checkpoints").iterdir())
    assert len(images) == 1
    if not program.copies and method is Method.CRIU:
        refused = nearmetal("restore", str(images[0]), cwd=tmp_path)
        assert refused.returncode == 2 and "were copied to there:" in refused.stderr, refused.stderr
        (images[0] / "nearmetal-handed-over.txt").unlink()  # as it says
        comes_back(program, images[0], tmp_path)
    for directory in there.left():
        shutil.rmtree(directory)  # nobody could reach them
    assert nearmetal("clean", cwd=tmp_path).returncode == 0, "the connection of the tool is left"


def test_ctrl_c_ends_what_a_restore_has_begun(program: Program, tmp_path: Path) -> None:
    assert nearmetal("checkpoint", str(program.pid), "--to", "i", cwd=tmp_path).returncode == 0
    reached = tmp_path / "reached"
    env = os.environ | at_moment(tmp_path, "pre-resume", f": >{reached}", "sleep 600")
    words = [NEARMETAL, "restore", "i"]
    with subprocess.Popen(words, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as tool:
        until(reached.exists, "the restore")
        tool.send_signal(signal.SIGINT)
        said = tool.communicate()[1]
    assert "interrupted; whether" in said, said
    assert "rm i/nearmetal-restored.txt && nearmetal restore i" in said, said
    until(lambda: not program.copies, "the end of what was restored")
    comes_back(program, tmp_path / "i", tmp_path, begun=True)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system that has room for the file that measures its speed, and not for the images."""
    path = tmp_path / "tiny"
    path.mkdir()
    namespaces.mount("nearmetal-test", path, "tmpfs", options="size=33280k")
    yield path
    namespaces.detach(path)


def test_the_disk_here_is_full(
    program: Program, tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else fills it after the room was looked at."""
    monkeypatch.setattr(move_plans, "require_room", lambda *_: 1)
    with pytest.raises(RunError, match="which continues: "):
        moving.checkpoint(str(program.pid), tiny / "i", moving.MoveOptions())
    program.goes_on()
    assert [p.name for p in (tiny / "i").iterdir()] == ["dump.log"]


@pytest.mark.parametrize("method", METHODS)
def test_the_disk_there_is_full(
    program: Program, tiny: Path, there: There, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    monkeypatch.setattr(move_plans, "_require_remote_room", lambda *_: None)
    monkeypatch.setattr(moving_hosts, "REMOTE", f"{tiny}/images.XXXXXX")
    try:
        moving.migrate(str(program.pid), "there", moving.MoveOptions(method=method))
    except RunError as e:
        assert "continues" in e.what, e.what
        assert method is not Method.CRIU_LAZY
    else:
        assert method is Method.CRIU_LAZY, "its memory is written to no file"
    program.goes_on()
    assert not list(tiny.iterdir())


def test_a_second_move_is_refused_meanwhile(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    go = tmp_path / "go"
    env = at_moment(tmp_path, "pre-dump", waits_for(go))
    with moved_by_a_tool(str(program.pid), "./i", "criu", "none", env=env) as tool:
        until(partial(acted, tmp_path), "the dump")
        for words in (
            ["migrate", str(program.pid), "--to", "./j"],
            ["checkpoint", str(program.pid), "--to", "k"],
        ):
            second = nearmetal(*words, cwd=tmp_path)
            assert (
                second.returncode == 3
                and "is checkpointed, restored or moved by another command" in second.stderr
            )
        assert not (tmp_path / "j").exists() and not (tmp_path / "k").exists()
        go.touch()
        assert tool.wait() == 0, tool.communicate()[1]
    program.goes_on()


def test_images_are_restored_once_at_a_time(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = nearmetal("checkpoint", str(program.pid), "--to", "i", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    go = tmp_path / "go"
    env = at_moment(tmp_path, "pre-restore", waits_for(go))
    words = [NEARMETAL, "restore", "i"]
    first = subprocess.Popen(words, env={**os.environ, **env}, stderr=subprocess.DEVNULL)
    until(partial(acted, tmp_path), "the restore")
    second = nearmetal("restore", "i", cwd=tmp_path)
    assert second.returncode == 3 and "another command restores from i" in second.stderr
    go.touch()
    assert first.wait() == 0
    program.goes_on()


FREEZE_AND_KILL = """#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = pre-dump ] || exit 0
groups=/proc/$CRTOOLS_INIT_PID/cgroup
version1=/sys/fs/cgroup/freezer$(sed -n 's/^[0-9]*:freezer://p' $groups)/freezer.state
version2=/sys/fs/cgroup$(sed -n 's/^0:://p' $groups)/cgroup.freeze
if [ -e $version1 ]; then echo FROZEN >$version1; else echo 1 >$version2; fi
kill -9 $PPID
"""


@pytest.mark.parametrize("kind", ["runc", "lxc"])
def test_a_container_goes_on_whose_criu_is_killed_while_it_is_frozen(
    kind: str, root: Path, tmp_path: Path, criu: None, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which({"runc": "runc", "lxc": "lxc-checkpoint"}[kind]) is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{kind} is not installed")
    out, script, configuration = root / "data" / "out", tmp_path / "act", tmp_path / "criu.conf"
    script.write_text(FREEZE_AND_KILL)
    script.chmod(0o755)
    configuration.write_text(f"action-script {script}\n")
    monkeypatch.setenv("CRIU_CONFIG_FILE", str(configuration))

    def count() -> int:
        return len(out.read_text().split()) if out.exists() else 0

    name = (started_runc if kind == "runc" else started_lxc)(root)
    try:
        until(lambda: count() > 2, "the program")
        with pytest.raises(RunError, match="no checkpoint of "):
            moving.checkpoint(name, tmp_path / "i", moving.MoveOptions())
        before = count()
        until(lambda: count() > before + 2, "the program to go on")
    finally:
        if kind == "runc":
            subprocess.run(["runc", "delete", "--force", NAME], check=False)
        else:
            subprocess.run(["lxc-stop", "-P", str(root.parents[1]), "-n", NAME, "-k"], check=False)
