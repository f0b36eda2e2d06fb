"""Errors of programs name the process that failed, whatever else was written to the same stream."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.host import Completed
from nearmetal.host.processes.failure import (
    ErrorLine,
    describe_end,
    describe_failure,
    failed_program,
    failed_rank,
    find_error_line,
    find_message,
    outer_program,
)

WRONG = '{"event":"error","program":"nm-dgemm","process":"CPU 1","what":"wrong product of order 384"}'
KILLED = '{"event":"error","program":"nm-dgemm","process":"CPU 0","what":"killed by signal 4"}'


def completed(
    stderr: str, status: int = 1, argv: tuple[str, ...] = ("/bin/app",), stdout: str = ""
) -> Completed:
    return Completed(argv=argv, returncode=status, stdout=stdout, stderr=stderr, seconds=12.5)


@pytest.mark.parametrize(
    "output",
    [
        f"{WRONG}\nCore: Haswell\n",
        f"Core: Haswell\n{WRONG}\n",
        f"Core: Has{WRONG}\nwell\n",
        f"{WRONG}\n{KILLED}\n",
        f'{{"event":"error","program":"nm-dgemm",{WRONG}\n',
    ],
)
def test_an_error_line_is_found_among_other_output(output: str) -> None:
    found = find_error_line(output)
    assert found == ErrorLine(program="nm-dgemm", process="CPU 1", what="wrong product of order 384")
    assert completed(output).failure() == "nm-dgemm (CPU 1): wrong product of order 384"


@pytest.mark.parametrize(
    "output",
    ["", "error", '{"event":"error"}', WRONG[:-1], '{"event":"error","program":1,"process":2,"what":3}'],
)
def test_anything_else_is_no_error_line(output: str) -> None:
    assert find_error_line(output) is None


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_around_an_error_line_is_skipped(before: str, after: str) -> None:
    found = find_error_line(f"{before}{WRONG}\n{after}")
    assert found is not None and found.process == "CPU 1"


def test_bytes_beyond_ascii_are_read_as_our_programs_write_them() -> None:
    line = json.loads(WRONG) | {"what": "/tmp/\u00c3\u00a9: no such file"}
    found = find_error_line(json.dumps(line, separators=(",", ":")))
    assert found is not None and found.what == "/tmp/é: no such file"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", ""),
        ("one\n\ntwo\n\n", "two"),
        ("docker: no space\nSee 'docker run --help'.\n", "docker: no space"),
        ("docker: no space\n\nRun 'docker run --help' for more information\n", "docker: no space"),
        ("no BLAS\nCore: Haswell\n", "no BLAS"),
        ("Core: Haswell\n", "Core: Haswell"),
        ("cannot open /x\nqemu-system-x86_64: warning: host lacks a feature\n", "cannot open /x"),
        ("cannot open /x\n2026-01-02 03:04:05.678+0000: 12: warning : fd 3\n", "cannot open /x"),
        ('failed\ntime="2026-01-02" level=warning msg="no cgroup"\n', "failed"),
        ("failed\nWARN[0000] no cgroup\n", "failed"),
        ("failed\n==123== HEAP SUMMARY:\n", "failed"),
        ("all compiler warnings are errors\n", "all compiler warnings are errors"),
        ("---------------\n", ""),
        ("hello\nsorry\n---------------\nmpirun detected that\n  Exit code: 3\n---------------\n", "sorry"),
        ("---------------\nPrimary job ended\nbut one process\n", "Primary job ended"),
        ("\n===============\n=   BAD TERMINATION\n=   PID 7\n===============\n", "BAD TERMINATION"),
        ("a\nb --\n", "b --"),
        ("---------------\na warning\n---------------\nsorry\n", "sorry"),
        ("sorry\n[mpiexec@a] launcher returned error\n===============\n=   BAD\nYOUR OWN\n", "sorry"),
    ],
)  # fmt: skip
def test_the_message_of_a_foreign_program(output: str, message: str) -> None:
    assert find_message(output) == message


@pytest.mark.parametrize(
    ("status", "codes", "text"),
    [
        (139, (0,), "was killed by SIGSEGV"),
        (-9, (0,), "was killed by SIGKILL"),
        (3, (0,), "ended with 3"),
        (255, (0,), "ended with 255"),
        (0, (3, 4), "ended with 0, not with 3 or 4"),
    ],
)
def test_how_a_program_ended(status: int, codes: tuple[int, ...], text: str) -> None:
    assert describe_end(status, codes) == text


@pytest.mark.parametrize(
    ("argv", "outer", "inner"),
    [
        (["/usr/bin/fio", "--", "x"], "fio", "fio"),
        (["/t/nm-box", "kvm"], "nm-box", "nm-box"),
        (["/t/nm-box", "enter", "--pid", "3", "--", "true"], "true", "true"),
        (["/t/nm-box", "enter", "--", "env", "LC_ALL=C", "ldd", "/x"], "env", "ldd"),
        (["/t/nm-box", "wrap", "--", "lxc-attach", "-n", "c", "--", "/t/nm-box", "enter", "--", "ls"],
         "lxc-attach", "ls"),
        (["runc", "exec", "c", "/t/nm-box", "enter", "--", "/t/nm-rank", "--", "app", "--", "y"],
         "runc", "app"),
        (["mpirun", "-n", "2", "/t/nm-rank", "--cpus", "0,1", "--", "/t/nm-micro", "--once"],
         "mpirun", "nm-micro"),
    ],
)  # fmt: skip
def test_the_program_of_a_command_line(argv: list[str], outer: str, inner: str) -> None:
    assert (outer_program(argv), failed_program(argv)) == (outer, inner)


OPEN_MPI_STATUS = """sorry
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[12,1],1]
  Exit code:    3
--------------------------------------------------------------------------
"""
OPEN_MPI_SIGNAL = """--------------------------------------------------------------------------
mpirun noticed that process rank 1 with PID 0 on node n exited on
signal 11 (Segmentation fault).
--------------------------------------------------------------------------
"""


def test_the_rank_that_failed_is_named() -> None:
    argv = ("mpirun", "-n", "2", "/t/nm-rank", "--", "app")
    assert failed_rank(OPEN_MPI_STATUS) == (1, 3) and failed_rank(OPEN_MPI_SIGNAL) == (1, 139)
    assert completed(OPEN_MPI_STATUS, 3, argv).failure() == "app (rank 1) ended with 3: sorry"
    assert completed(OPEN_MPI_SIGNAL, 139, argv).failure().startswith("app (rank 1) was killed by SIGSEGV: ")
    assert completed("no slots\n", 1, argv).failure() == "mpirun ended with 1: no slots"


def test_a_failure_names_program_end_and_message() -> None:
    assert completed("app: no file\nCore: Zen\n", 2).failure() == "app ended with 2: no file"
    assert completed("", -11).failure() == "app was killed by SIGSEGV and printed no message"
    assert completed("", 1, stdout="usage\n").failure() == "app ended with 1: usage"
    assert completed("half\n", 124).failure() == "app did not end within 12.5 s: half"
    assert (
        completed("cannot be started: No such file", 127).failure() == "app cannot be started: No such file"
    )
    assert describe_failure("qemu", None, "") == "qemu has not ended and printed no message"
