"""Standard input of programs: each run reads it from the same place on, whatever the caller's is."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest

from nearmetal.errors import UsageError
from nearmetal.host import caller
from nearmetal.host.caller import NO_INPUT, StandardInput, caller_input, inherited_state


def read(given: StandardInput) -> bytes:
    with given.opened() as fd:
        return os.read(fd, 100)


def test_a_file_is_read_from_its_place_by_each_run(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("abcdef")
    fd = os.open(tmp_path / "in", os.O_RDONLY)
    os.read(fd, 2)
    (tmp_path / "in").unlink()
    with caller_input(fd) as given:
        assert [read(given), read(given)] == [b"cdef", b"cdef"] and not given.note
        assert given.what == "a file of 6 bytes from byte 2 on"
    assert os.lseek(fd, 0, os.SEEK_CUR) == 2
    os.close(fd)


def test_a_pipe_is_kept_for_each_run() -> None:
    reader, writer = os.pipe()

    def write() -> None:
        for piece in (b"ab", b"c"):
            os.write(writer, piece)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    with caller_input(reader) as given:
        assert [read(given), read(given)] == [b"abc", b"abc"] and not given.note
    thread.join()
    os.close(reader)


def test_a_silent_pipe_is_empty_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "SILENT", 0.01)
    reader, writer = os.pipe()
    with caller_input(reader) as given:
        assert read(given) == b"" and "empty standard input" in given.note
    os.write(writer, b"half")
    with pytest.raises(UsageError, match="did not end"), caller_input(reader):
        pass
    os.close(reader)
    os.close(writer)


def test_a_pipe_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "MOST_INPUT", 3)
    reader, writer = os.pipe()
    os.write(writer, b"four")
    with pytest.raises(UsageError, match="which is kept for all runs") as error, caller_input(reader):
        pass
    assert "< FILE" in error.value.remedy
    os.close(reader)
    os.close(writer)


def test_a_terminal_and_nothing_are_empty() -> None:
    ours, terminal = os.openpty()
    with caller_input(terminal) as given:
        assert read(given) == b"" and "terminal" in given.note
    os.close(ours)
    os.close(terminal)
    with caller_input(terminal) as given:
        assert given is NO_INPUT


def test_the_state_has_all_limits_of_the_kernel() -> None:
    umask, nice, _, _, _, *limits = inherited_state().split()
    assert int(umask, 8) == os.umask(int(umask, 8)) and int(nice) == os.getpriority(os.PRIO_PROCESS, 0)
    assert limits[resource.RLIMIT_NOFILE] == ":".join(map(str, resource.getrlimit(resource.RLIMIT_NOFILE)))
    assert len(limits) == 16
