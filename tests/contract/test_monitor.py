"""The connection to QEMU's monitor, with a QEMU that is stopped, or ends, meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.patience import until

from nearmetal.environments.qemu import qmp
from nearmetal.environments.qemu.qmp import Monitor
from nearmetal.environments.qemu.restore import save
from nearmetal.errors import RunError
from nearmetal.host.guest_line import answers

PROGRAM = "qemu-system-x86_64"
pytestmark = [
    pytest.mark.more,
    pytest.mark.beside,
    pytest.mark.skipif(shutil.which(PROGRAM) is None and not os.environ.get("CI"), reason="no QEMU"),
]


@pytest.fixture
def qemu(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A machine that has not started."""
    path = tmp_path / "qmp"
    words = [PROGRAM, "-nodefaults", "-display", "none", "-S", "-m", "16"]
    process = subprocess.Popen([*words, "-accel", "tcg", "-qmp", f"unix:{path},server=on,wait=off"])
    try:
        until(lambda: answers(path), "the monitor")
        yield process, path
    finally:
        process.kill()
        process.wait()


def test_commands_and_events(qemu: tuple[subprocess.Popen[bytes], Path]) -> None:
    with Monitor(qemu[1]) as monitor:
        assert monitor.ask("query-status")["status"] == "prelaunch" and len(monitor.threads()) == 1
        monitor.ask("cont")
        monitor.ask("stop")
        times = monitor.event_times()
        assert times["RESUME"] < times["STOP"] and monitor.event_times() == {}
        with pytest.raises(RunError, match=r"QEMU refuses nonsense: .* not been found"):
            monitor.ask("nonsense")


def test_a_late_answer_is_not_taken_for_that_of_the_next_command(
    qemu: tuple[subprocess.Popen[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, path = qemu
    with Monitor(path) as monitor:
        os.kill(process.pid, signal.SIGSTOP)
        with monkeypatch.context() as short:
            short.setattr(qmp, "QMP_SECONDS", 0.2)
            with pytest.raises(RunError, match=r"did not answer query-name within 0\.2 s"):
                monitor.ask("query-name")
        os.kill(process.pid, signal.SIGCONT)
        assert monitor.ask("query-status")["status"] == "prelaunch"


def test_a_silent_qemu_is_not_waited_for_without_end(
    qemu: tuple[subprocess.Popen[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, path = qemu
    os.kill(process.pid, signal.SIGSTOP)
    with monkeypatch.context() as short:
        short.setattr(qmp, "QMP_SECONDS", 0.2)
        with pytest.raises(RunError, match=r"did not answer connect within 0\.2 s"), Monitor(path):
            pass
    os.kill(process.pid, signal.SIGCONT)
    with Monitor(path) as monitor:
        assert monitor.ask("query-status")["status"] == "prelaunch"


def test_a_connection_waits_while_others_do(qemu: tuple[subprocess.Popen[bytes], Path]) -> None:
    """A connection that does not find room in the queue of a QEMU that is busy is no failure."""
    process, path = qemu
    os.kill(process.pid, signal.SIGSTOP)
    with ExitStack() as waiting:
        with pytest.raises(BlockingIOError):
            for _ in range(9):
                line = waiting.enter_context(socket.socket(socket.AF_UNIX))
                line.setblocking(False)
                line.connect(str(path))
        held = waiting.pop_all()

        def serve() -> None:
            held.close()
            os.kill(process.pid, signal.SIGCONT)

        go_on = threading.Timer(0.3, serve)
        go_on.start()
        with Monitor(path) as monitor:
            assert monitor.ask("query-status")["status"] == "prelaunch"
        go_on.join()


def test_a_checkpoint_that_takes_too_long_names_the_limit_and_the_remedy(
    qemu: tuple[subprocess.Popen[bytes], Path], tmp_path: Path
) -> None:
    _, path = qemu
    with Monitor(path) as monitor:
        monitor.ask("cont")
    with pytest.raises(RunError, match=r"the time limit of 0 s was over before .* was written") as late:
        save(path, tmp_path / "state", 0.0, "a longer --time-limit")
    assert late.value.remedy == "a longer --time-limit"


def test_a_qemu_that_has_ended_is_said(qemu: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, path = qemu
    with Monitor(path) as monitor:
        process.kill()
        process.wait()
        with pytest.raises(RunError, match="QEMU's monitor, query-status: "):
            monitor.ask("query-status")
    with pytest.raises(RunError, match="Connection refused"), Monitor(path):
        pass
