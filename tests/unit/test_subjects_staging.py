"""Directories of programs: filled, and read whatever a program left there; output within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.errors import TrialFailedError
from nearmetal.host.processes.bounded import BoundedOutput, Drain, shortened
from nearmetal.model.study import CommandWorkload, Reference, VerifySpec
from nearmetal.subjects.launches.staging import KEPT, compared, fill, read_outputs


def test_texts_files_and_directories_are_put_there(tmp_path: Path) -> None:
    source, there = tmp_path / "source", tmp_path / "there"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a").write_text("a")
    (source / "link").symlink_to("deep/a")
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    there.mkdir()
    fill(
        there,
        {"sub/text": "t"},
        {str(source): "all", str(source / "run"): "bin/run", str(source / "deep"): "."},
    )
    assert (there / "sub" / "text").read_text() == "t"
    assert (there / "all" / "link").read_text() == "a" and not (there / "all" / "link").is_symlink()
    assert os.access(there / "bin" / "run", os.X_OK)
    assert (there / "a").read_text() == "a"


def test_file_that_cannot_be_staged_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrialFailedError, match=r"gone cannot be put into .*No such file"):
        fill(tmp_path, {}, {str(tmp_path / "gone"): "x"})


def test_only_files_are_read_and_nothing_blocks(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"a\xff\0b")
    assert read_outputs(tmp_path, ("out", "absent")) == {"out": "a\ufffd\0b"}
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "directory").mkdir()
    for name in ("pipe", "link", "directory"):
        with pytest.raises(TrialFailedError, match=f"{name}, which it wrote"):
            read_outputs(tmp_path, (name,))


def test_beginning_and_end_of_a_long_file_are_read(tmp_path: Path) -> None:
    with (tmp_path / "long").open("wb") as file:
        file.write(b"first\n")
        file.truncate(1 << 40)  # takes no room
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast")
    text = read_outputs(tmp_path, ("long",))["long"]
    assert text.startswith("first\n") and text.endswith("\nlast") and "bytes left out]" in text
    assert len(text) < KEPT + 100


def test_a_reference_is_compared_with_a_file_or_the_output(tmp_path: Path) -> None:
    (tmp_path / "want").write_text("7\n")
    (tmp_path / "out").write_text("7\n")
    reference = Reference(path=str(tmp_path / "want"))
    load = CommandWorkload(name="w", argv=("p",), verify=VerifySpec(reference=reference))
    assert compared(load, None, "7\n") == "" and compared(load, None, "8\n")
    filed = CommandWorkload(name="w", argv=("p",), verify=VerifySpec(file="out", reference=reference))
    assert compared(filed, tmp_path, "") == ""
    (tmp_path / "out").unlink()
    assert compared(filed, tmp_path, "") == "nothing was written"
    (tmp_path / "want").unlink()
    with pytest.raises(TrialFailedError, match="the reference cannot be read: No such file"):
        compared(load, None, "")
    assert compared(CommandWorkload(name="w", argv=("p",)), None, "") is None


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(2, 60))
def test_kept_output_is_bounded_and_says_how_much_was_left_out(parts: list[bytes], most: int) -> None:
    bounded, everything = BoundedOutput(most), BoundedOutput(None)
    for part in parts:
        bounded.take(part)
        everything.take(part)
    whole = b"".join(parts)
    assert everything.content() == whole
    kept, half = bounded.content(), most // 2
    if len(whole) <= 2 * half:
        assert kept == whole
    else:
        assert kept.startswith(whole[:half]) and kept.endswith(whole[-half:])
        assert f"{len(whole) - 2 * half} bytes left out".encode() in kept


def test_a_text_is_shortened_in_the_middle() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("a" * 50 + "b" * 50, 10) == "aaaaa\n[nearmetal: 90 bytes left out]\nbbbbb"


def test_a_pipe_is_drained_into_a_bounded_file(tmp_path: Path) -> None:
    out, end = os.pipe()
    drain = Drain(out, tmp_path / "log", 100)
    for _ in range(1000):
        os.write(end, b"x" * 100)
    os.close(end)
    drain.join(10)
    text = (tmp_path / "log").read_text()
    assert len(text) < 200 and "99900 bytes left out" in text
