"""The connection to QEMU's monitor, with a QEMU that is stopped, or ends, meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import until

from nearmetal.environments.qemu import qmp
from nearmetal.environments.qemu.qmp import Monitor
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
    socket = tmp_path / "qmp"
    words = [PROGRAM, "-nodefaults", "-display", "none", "-S", "-m", "16"]
    process = subprocess.Popen([*words, "-accel", "tcg", "-qmp", f"unix:{socket},server=on,wait=off"])
    try:
        until(lambda: answers(socket), "the monitor")
        yield process, socket
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
    process, socket = qemu
    with Monitor(socket) as monitor:
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
    process, socket = qemu
    os.kill(process.pid, signal.SIGSTOP)
    with monkeypatch.context() as short:
        short.setattr(qmp, "QMP_SECONDS", 0.2)
        with pytest.raises(RunError, match=r"did not answer connect within 0\.2 s"), Monitor(socket):
            pass
    os.kill(process.pid, signal.SIGCONT)
    with Monitor(socket) as monitor:
        assert monitor.ask("query-status")["status"] == "prelaunch"


def test_a_qemu_that_has_ended_is_said(qemu: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, socket = qemu
    with Monitor(socket) as monitor:
        process.kill()
        process.wait()
        with pytest.raises(RunError, match="QEMU's monitor, query-status: "):
            monitor.ask("query-status")
    with pytest.raises(RunError, match="Connection refused"), Monitor(socket):
        pass
