"""Processes that another program has started: fetched when they end, and ended when no longer wanted. And
programs that run from a copy in memory."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import until

from nearmetal.environments import Tools
from nearmetal.errors import RunError
from nearmetal.host import LocalHost
from nearmetal.host.processes.failure import find_error_line
from nearmetal.host.processes.foreign import ForeignProcess, process_of_thread

HOST = LocalHost()
ORPHAN = """
pid=$( (sleep 0.1 >&- & echo $!) )
for i in $(seq 12000); do [ -e /proc/$pid ] || exit 7; sleep 0.05; done
"""
"""Its parent ends at once; 7: somebody has fetched it."""


def test_background_processes_of_a_daemon_are_reaped(tools: Tools) -> None:
    reap = [tools / "nm-box", "reap"]
    assert HOST.run([*reap, "--", "sh", "-c", ORPHAN], timeout=600).returncode == 7
    assert HOST.run([*reap, "sh", "-c", "kill -TERM $$"], timeout=600).returncode == -signal.SIGTERM
    assert HOST.run([*reap, "--", "/no/such"], timeout=600).returncode == 127
    nothing = HOST.run(reap, timeout=600)
    assert nothing.returncode == 111
    assert str(find_error_line(nothing.stderr)) == "nm-box: reap needs a command (reap)"


def test_a_program_runs_from_a_copy_that_nothing_can_write_or_resize(tools: Tools) -> None:
    enter = [tools / "nm-box", "enter", "--pid", "0", "--copy", "--"]
    seals = "import fcntl; print(fcntl.fcntl(open('/proc/self/exe'), fcntl.F_GET_SEALS))"
    done = HOST.run([*enter, sys.executable, "-c", seals], timeout=600)
    all_seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    assert done.ok and int(done.stdout) == all_seals
    assert HOST.run([*enter, "true"], timeout=600).ok  # found by PATH, without a copy
    assert HOST.run([*enter, "/no/such"], timeout=600).returncode == 127


def test_a_daemon_does_not_outlive_its_reaper(tools: Tools) -> None:
    argv = [tools / "nm-box", "reap", "--", "sh", "-c", "echo $$; exec sleep 3600"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as reaper:
        assert reaper.stdout is not None
        daemon = int(reaper.stdout.readline())
        reaper.kill()
        until(lambda: not Path(f"/proc/{daemon}/exe").exists(), "the end of the daemon")


def test_a_process_of_others_is_watched_and_ended() -> None:
    with subprocess.Popen(["sleep", "3600"]) as sleeping:
        with ForeignProcess(process_of_thread(sleeping.pid)) as known:
            assert known.pid == sleeping.pid and known.poll() is None
            with pytest.raises(TimeoutError, match="still runs"):
                known.wait(0.05)
            assert sleeping.poll() is None, "it did not wait for the end"
        assert sleeping.wait(600) == -signal.SIGKILL
        known.kill()  # harmless
        assert known.poll() == 0 and known.wait(600) == 0
    with pytest.raises(RunError, match="process"):
        ForeignProcess(sleeping.pid)
    assert not Path(f"/proc/{sleeping.pid}").exists()
    with subprocess.Popen(["sleep", "3600"]) as hanging, pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearmetal.host.processes.foreign.wait_readable", lambda fd, timeout: False)
        says = r"process \d+ does not end: .* still runs"
        with pytest.raises(RunError, match=says) as told, ForeignProcess(hanging.pid):
            pass
        assert told.value.remedy == "nearmetal clean"
    with pytest.raises(RunError, match="thread"):
        process_of_thread(sleeping.pid)
