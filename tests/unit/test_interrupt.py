"""Ctrl-C: never within what must not be torn, once, and what is left is looked for."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from nearmetal.api.studies import study_from
from nearmetal.cli.moving import signals_as_ctrl_c
from nearmetal.node.machine import Machine
from nearmetal.node.progress import NullProgress
from nearmetal.records import ResultsDirectory
from nearmetal.run import run
from nearmetal.run.interrupt import interruptible


def strike() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_interrupt_is_raised_once_and_undone() -> None:
    seen: list[str] = []
    with pytest.raises(KeyboardInterrupt), interruptible(lambda: seen.append("undone")):
        try:
            strike()
            time.sleep(600)
        finally:
            strike()  # the second does not tear the clean-up
            seen.append("cleaned")
    assert seen == ["cleaned", "undone"]


def test_without_a_signal_nothing_is_undone() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible(lambda: pytest.fail("nothing to undo")):
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_run_under_nohup_continues_when_its_terminal_is_closed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible(lambda: pytest.fail("nothing to undo")):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_move_ends_at_a_signal_as_at_ctrl_c_and_only_once(number: signal.Signals) -> None:
    before, cleaned = signal.getsignal(number), False
    with pytest.raises(KeyboardInterrupt), signals_as_ctrl_c():
        try:
            os.kill(os.getpid(), number)
            time.sleep(600)
        finally:
            os.kill(os.getpid(), number)  # a closed terminal sends several
            cleaned = True
    assert cleaned and signal.getsignal(number) is before


def test_a_move_under_nohup_goes_on_when_its_terminal_is_closed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_ctrl_c():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_while_a_run_is_taken_down_keeps_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def interrupted_at_its_end(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        try:
            yield SimpleNamespace(study=None)
        finally:
            raise KeyboardInterrupt

    def fixed(node: object, directory: ResultsDirectory, *_: object, **__: object) -> tuple[object, None]:
        directory.freeze(seed=1, arms=("a",), provenance={})
        return node, None

    monkeypatch.setattr(run, "machine_lock", lambda *_, **__: nullcontext())
    monkeypatch.setattr(run, "check_study", lambda machine, study, progress: (study, {}, {}))
    monkeypatch.setattr(run, "open_node", interrupted_at_its_end)
    monkeypatch.setattr(run, "fix_plan", fixed)
    monkeypatch.setattr(run, "planner_then", lambda *_: None)
    monkeypatch.setattr(run, "_blocks", lambda *_: None)
    order = run.Order(parent=tmp_path, text="name: s\n", command="nearmetal", started=0.0, force=False)
    outcome = run.start_run(cast("Machine", None), study_from("quick", 1), order, NullProgress())
    assert outcome.interrupted and outcome.directory is not None
    assert outcome.directory.path.parent == tmp_path


def test_entering_and_leaving_are_whole() -> None:
    seen: list[str] = []

    @contextmanager
    def step() -> Iterator[None]:
        strike()
        seen.append("started")
        try:
            yield
        finally:
            seen.append("ended")

    with pytest.raises(KeyboardInterrupt), interruptible(lambda: None), step():
        time.sleep(600)
        seen.append("not reached")
    assert seen == ["started", "ended"]


def test_an_import_is_whole(tmp_path: Path) -> None:
    """In a process of its own: pytest imports by importlib, too."""
    (tmp_path / "half.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhole = True\n"
    )
    (tmp_path / "main.py").write_text(
        "import sys, time\n"
        "from nearmetal.run.interrupt import interruptible\n"
        "try:\n"
        "    with interruptible(lambda: None):\n"
        "        import half\n"
        "        time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        "    print(sys.modules['half'].whole)\n"
    )
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
