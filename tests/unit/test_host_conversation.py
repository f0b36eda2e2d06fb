"""Running a command: nothing is lost, whoever talks more, and whatever time allows."""

import sys
import time

from nearmetal.host import LocalHost

HOST = LocalHost()
ECHO = "import sys; sys.stderr.write('e' * 300000); sys.stdout.write(sys.stdin.read())"


def test_both_talk_more_than_pipes_hold() -> None:
    text = "0123456789" * 50_000
    done = HOST.run([sys.executable, "-c", ECHO], timeout=60, stdin=text)
    assert done.ok and done.stdout == text and done.stderr == "e" * 300_000


def test_nothing_to_read_and_nobody_who_reads() -> None:
    assert HOST.run(["cat"], timeout=60, stdin="").stdout == ""
    assert HOST.run(["true"], timeout=60, stdin="x" * 1_000_000).ok


def test_what_was_said_before_time_ran_out() -> None:
    begin = time.monotonic()
    done = HOST.run(["sh", "-c", "echo early; exec sleep 60"], timeout=1)
    assert (done.returncode, done.stdout) == (124, "early\n")
    assert time.monotonic() - begin < 30


def test_it_is_called_each_second() -> None:
    calls: list[float] = []
    HOST.run(["sleep", "2.5"], timeout=60, each_second=lambda: calls.append(time.monotonic()))
    assert len(calls) == 2


def test_any_bytes_and_any_line_ends() -> None:
    done = HOST.run(["printf", r"a\r\nb\rc\xff"], timeout=60)
    assert done.stdout == "a\nb\nc\ufffd"


def test_how_it_ended() -> None:
    assert HOST.run(["sh", "-c", "exit 3"], timeout=60).returncode == 3
    assert HOST.run(["sh", "-c", "kill -9 $$"], timeout=60).returncode == -9
    assert HOST.run(["/no/such/program"], timeout=60).returncode == 127
