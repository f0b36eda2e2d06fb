"""Running a command: nothing is lost, whoever talks more, and whatever time allows."""

import sys
import time
from pathlib import Path

from tests.patience import one_fits

from nearmetal.host import LocalHost

HOST = LocalHost()
ECHO = "import sys; sys.stderr.write('e' * 300000); sys.stdout.write(sys.stdin.read())"


def test_input_and_output_may_exceed_the_pipe_buffers() -> None:
    text = "0123456789" * 50_000
    done = HOST.run([sys.executable, "-c", ECHO], timeout=600, stdin=text)
    assert done.ok and done.stdout == text and done.stderr == "e" * 300_000


def test_empty_and_unread_input_are_no_errors() -> None:
    assert HOST.run(["cat"], timeout=600, stdin="").stdout == ""
    assert HOST.run(["true"], timeout=600, stdin="x" * 1_000_000).ok


def test_output_before_a_timeout_is_kept() -> None:
    # A busy machine may need longer than the timeout to start the shell.
    done = one_fits(
        lambda: HOST.run(["sh", "-c", "echo early; exec sleep 3600"], timeout=1),
        lambda d: d.stdout != "",
        attempts=60,
    )
    assert (done.returncode, done.stdout) == (124, "early\n") and done.seconds < 3600


def test_each_second_is_called_about_once_a_second() -> None:
    calls: list[float] = []
    done = HOST.run(["sleep", "2.5"], timeout=600, each_second=lambda: calls.append(time.monotonic()))
    assert 1 <= len(calls) <= done.seconds, "less often where this process had to wait for a CPU"


def test_any_bytes_and_any_line_ends() -> None:
    done = HOST.run(["printf", r"a\r\nb\rc\xff"], timeout=600)
    assert done.stdout == "a\nb\nc\ufffd"


def test_return_code_tells_exit_signal_and_missing_program() -> None:
    assert HOST.run(["sh", "-c", "exit 3"], timeout=600).returncode == 3
    assert HOST.run(["sh", "-c", "kill -9 $$"], timeout=600).returncode == -9
    assert HOST.run(["/no/such/program"], timeout=600).returncode == 127


def test_a_program_without_an_interpreter_cannot_be_started(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo no first line that names an interpreter\n")
    script.chmod(0o755)
    done = HOST.run([str(script)], timeout=600)
    assert (done.returncode, done.failure()) == (127, "script cannot be started: Exec format error")
