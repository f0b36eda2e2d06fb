"""Moves of a user's process to a host with an unlike processor, kernel or library: the source goes on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.system.moving_case import (
    HOST,
    ROOT,
    Program,
    There,
    another_host,
    children,
    criu,
    program,
    state,
    there,
)

from nearmetal.api.moves import moving
from nearmetal.cli.moving import plan_json, plan_lines
from nearmetal.environments.external import CheckOutcome
from nearmetal.environments.external.machine import build_id
from nearmetal.errors import UnavailableError
from nearmetal.host.facts.provenance import cpu_flags
from nearmetal.host.ssh import SshWay
from nearmetal.lifecycle import Method

pytestmark = [pytest.mark.apart, pytest.mark.no_run, ROOT]
__all__ = ["criu", "program", "state", "there"]
HOW = moving.MoveOptions(method=Method.CRIU)


def put_there(there: There, ours: Path, path: str) -> None:
    """Let the other host, and no other one, see another file at a path."""
    inside = ["nsenter", f"--target={children(there.daemon.pid)[0]}", "--mount"]
    subprocess.run([*inside, "mount", "--bind", str(ours), path], check=True)


def refused(program: Program, there: There, state: Path) -> UnavailableError:
    """The plan and the move are refused in the same words before a dump, and the program goes on."""
    with pytest.raises(UnavailableError) as planned:
        moving.plan_migrate(str(program.pid), "there", HOW)
    with pytest.raises(UnavailableError) as moved:
        moving.migrate(str(program.pid), "there", HOW)
    assert str(moved.value) == str(planned.value)
    assert moved.value.where == "there" and moved.value.remedy
    assert moved.value.what.startswith(f"pid:{program.pid} is not moved, and continues here: ")
    program.goes_on()
    assert program.running and not there.left()
    assert not list((state / "checkpoints").glob("*"))
    return moved.value


def test_a_processor_without_an_instruction(
    program: Program, there: There, state: Path, tmp_path: Path
) -> None:
    """The flag nopl of x86 names no instruction that only some processors have."""
    flags, cpuinfo = cpu_flags(HOST), Path("/proc/cpuinfo").read_text()
    lacking = "sse2" if "sse2" in flags else min(flags)
    unlike = tmp_path / "cpuinfo"
    unlike.write_text(re.sub(r" nopl\b", "", cpuinfo))
    put_there(there, unlike, "/proc/cpuinfo")
    assert moving.plan_migrate(str(program.pid), "there", HOW).findings[0].answer is CheckOutcome.FINE
    unlike.write_text(re.sub(rf" (?:nopl|{lacking})\b", "", cpuinfo))
    error = refused(program, there, state)
    assert f"processor: it lacks {lacking}, which the instance may use" in error.what
    assert "a processor with these features; or write a checkpoint" in error.remedy


def test_a_library_of_another_build(program: Program, there: There, state: Path, tmp_path: Path) -> None:
    """The copy has another build ID or, if Python has none, another size. Nothing runs the copy."""
    python = os.path.realpath(sys.executable)
    content, own = Path(python).read_bytes(), bytes.fromhex(build_id(Path(python)))
    other = tmp_path / "python"
    other.write_bytes(content.replace(own, own[::-1]) if own else content + b"\0")
    put_there(there, other, python)
    error = refused(program, there, state)
    assert f"programs and libraries: of another build: {python}" in error.what
    assert error.remedy == "install the same versions as at the source"


@pytest.fixture
def old(tmp_path: Path, criu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[There]:
    """A host on which uname reports Linux 2.6."""
    with another_host(tmp_path, net=["setarch", "--uname-2.6"]) as made:
        monkeypatch.setattr(moving, "SshWay", partial(SshWay, config=str(made.config)))
        yield made


def test_an_older_kernel(program: Program, old: There, state: Path) -> None:
    error = refused(program, old, state)
    found = re.search(r"kernel: it is 2\.6\.\S+, and (\S+) at the source", error.what)
    assert found is not None and found[1] == os.uname().release
    assert "boot a kernel that is at least as new" in error.remedy


def test_a_like_host_is_said_to_be_one_and_moved_to(program: Program, there: There) -> None:
    plan = moving.plan_migrate(str(program.pid), "there", HOW)
    looked_at = ["processor", "kernel", "programs and libraries", "memory", "process IDs"]
    assert [f.subject for f in plan.findings] == looked_at
    assert {f.answer for f in plan.findings} == {CheckOutcome.FINE}
    assert any(
        re.fullmatch(r"fine      programs and libraries: all \d+ mapped .*", s) for s in plan_lines(plan)
    )
    form = json.loads(json.dumps(plan_json(plan)))
    assert [f["answer"] for f in form["findings"]] == ["fine"] * len(looked_at)
    done = moving.migrate(str(program.pid), "there", HOW)
    assert done.now == f"pid:{program.pid} at there"
    program.goes_on()
    assert not program.running and not there.left()
