"""Programs that write to their working directory begin each run in the same state, and leave nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.patience import PATIENCE

from nearmetal.environments import Tools
from nearmetal.host import LocalHost
from nearmetal.node.working_directory import View, WorkingDirectory

pytestmark = [
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root binds a copy over a directory"),
]
HOST = LocalHost()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    job = tmp_path / "job, with: signs"
    (job / "results").mkdir(parents=True)
    (job / "in.txt").write_text("1\n")
    return job


@pytest.fixture
def working(tools: Tools, job: Path) -> Iterator[WorkingDirectory]:
    with ExitStack() as stack:
        yield WorkingDirectory(HOST, tools, job, "nearmetal-0a1b2c", stack)
    assert sorted(p.name for p in job.parent.iterdir()) == [job.name]


def typed(working: WorkingDirectory, script: str) -> Callable[[Sequence[str]], None]:
    def run(prefix: Sequence[str]) -> None:
        argv = [*prefix, "sh", "-c", script]
        HOST.run(argv, timeout=PATIENCE, cwd=working.path).require()

    return run


def seen(working: WorkingDirectory, script: str) -> str:
    """Return what a command prints that runs on bare metal in the view."""
    working.prepare()
    argv = [working._tools / "nm-box", "enter", "--pid", "0", *working.over, "--", "sh", "-c", script]
    return HOST.run(argv, timeout=PATIENCE, cwd=working.path).require().stdout


def test_a_program_that_writes_nothing_has_the_directory_itself(working: WorkingDirectory) -> None:
    assert working.choose(typed(working, "cat in.txt"), working.path / "results") == ""
    assert working.view is View.DIRECTORY and working.source == working.path and not working.over


def test_a_program_that_writes_has_a_copy_that_is_the_same_in_each_run(working: WorkingDirectory) -> None:
    script = "cat in.txt; ls; pwd; echo 2 >>in.txt; mkdir made"
    before = sorted(working.path.iterdir())
    assert working.choose(typed(working, script), working.path / "results") == ""
    assert working.view is View.COPY and working.written == ("in.txt", "made")
    runs = {seen(working, script) for _ in range(3)}
    assert runs == {f"1\nin.txt\n{working.path}\n"}
    assert sorted(working.path.iterdir()) == before
    assert (working.path / "in.txt").read_text() == "1\n"


def test_what_is_too_large_to_copy_is_shared_and_that_is_said(
    working: WorkingDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearmetal.node.working_directory.MOST_ENTRIES", 1)
    note = working.choose(typed(working, "echo x >out.dat"), working.path / "results")
    assert working.view is View.SHARED and "out.dat" in note and "too many" in note


def test_a_run_that_is_resumed_has_the_same_view(working: WorkingDirectory, tools: Tools) -> None:
    working.choose(typed(working, "echo x >out.dat"), working.path / "results")
    with ExitStack() as stack:
        again = WorkingDirectory(HOST, tools, working.path, "nearmetal-3d4e5f", stack)
        again.reopen(working.record(), working.path / "results")
        assert again.view is View.COPY and "out.dat" not in seen(again, "ls")
