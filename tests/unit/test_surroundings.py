"""What a restore finds on a machine, the pace of a copy, and locks of moves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from nearmetal.api.move_locks import only_one, only_one_of
from nearmetal.environments.external import Answer, Finding, compare, describe
from nearmetal.environments.external.surroundings import address, build_id
from nearmetal.host import LocalHost, paced
from nearmetal.model.record import JsonValue

OWN = os.getpid()
HOST = LocalHost()


def answers(machine: Mapping[str, JsonValue], memory: int = 1 << 20) -> dict[str, Finding]:
    return {f.subject: f for f in compare(machine, HOST, memory)}


def test_the_machine_that_wrote_an_instance_has_all_that_it_needs() -> None:
    machine = describe(HOST, [OWN])
    files = machine["files"]
    assert isinstance(files, Mapping) and os.path.realpath(sys.executable) in files
    found = answers(machine)
    assert {f.answer for f in found.values()} == {Answer.FINE}, found
    assert found["programs and libraries"].text.startswith(f"all {len(files)} ")


def test_what_differs_or_is_in_the_way_is_named() -> None:
    machine = describe(HOST, [OWN])
    program = os.path.realpath(sys.executable)
    unlike = machine | {
        "kernel": "5.0",
        "flags": "avx9000",
        "files": {program: [1, ""], "/no/such/library.so": [1, ""]},
    }
    found = answers(unlike, 1 << 60)
    assert found["kernel"].answer is Answer.DIFFERS and "was 5.0" in found["kernel"].text
    assert found["processor"].answer is Answer.DIFFERS and "avx9000" in found["processor"].text
    lacks = found["programs and libraries"]
    assert lacks.answer is Answer.PREVENTS and lacks.remedy
    assert lacks.text == f"missing: /no/such/library.so; of another build: {program}"
    assert found["memory"].answer is Answer.PREVENTS and found["memory"].remedy
    other = answers(machine | {"architecture": "vax"})
    assert other["processor"].answer is Answer.PREVENTS
    assert answers({})["machine"].answer is Answer.UNKNOWN


def test_an_address_is_free_or_taken_or_not_here() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        machine = describe(HOST, [OWN])
        taken = answers(machine)["address"]
        port = listening.getsockname()[1]
        assert taken.answer is Answer.PREVENTS
        assert taken.text == f"127.0.0.1:{port} listening: another program uses it"
    assert answers(machine)["addresses"].answer is Answer.FINE
    elsewhere = answers(machine | {"addresses": ["192.0.2.7:4711"]})["address"]
    assert elsewhere.answer is Answer.PREVENTS and "does not have it" in elsewhere.text


def test_addresses_of_proc() -> None:
    assert address("0100007F:1F90", socket.AF_INET) == "127.0.0.1:8080"
    assert address("00000000000000000000000001000000:0016", socket.AF_INET6) == "::1:22"


def test_a_build_is_known_by_its_id(tmp_path: Path) -> None:
    known = build_id(Path(os.path.realpath("/bin/sh")))
    shown = subprocess.run(["readelf", "-n", "/bin/sh"], capture_output=True, text=True, check=False).stdout
    assert len(known) == 40 and (f"Build ID: {known}" in shown or not shown)
    text = tmp_path / "text"
    text.write_text("#!/bin/sh\n")
    assert build_id(text) == build_id(tmp_path / "missing") == ""


# -------------------------------------------------------------------------------------------- pace and locks


def test_a_copy_keeps_its_pace_without_bursts(tmp_path: Path) -> None:
    """The clock is the test's: it moves only by sleeping, and once by a delay."""
    now, slept = [0.0], [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds
        now[0] += seconds

    content = os.urandom(1_000_000)
    (tmp_path / "in").write_bytes(content)
    source, target = (
        os.open(tmp_path / "in", os.O_RDONLY),
        os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT),
    )
    try:
        paced.copy(source, target, 250_000.0, lambda: now[0], sleep)
    finally:
        os.close(source)
        os.close(target)
    assert (tmp_path / "out").read_bytes() == content and slept[0] == pytest.approx(4.0, rel=0.01)


def test_a_pipe_is_paced(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = subprocess.run(paced.argv(2e6), input=bytes(400_000), capture_output=True, check=True)
    assert done.stdout == bytes(400_000) and time.monotonic() - begin >= 0.2


def test_an_instance_and_its_images_are_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code = (
        "import sys; from nearmetal.api.move_locks import *; from pathlib import Path\n"
        "with only_one(sys.argv[1]), only_one_of(Path(sys.argv[2])): pass"
    )

    def other(instance: str, directory: Path) -> str:
        words = [sys.executable, "-c", code, instance, str(directory)]
        return subprocess.run(words, capture_output=True, text=True, check=False).stderr

    (tmp_path / "other").mkdir()
    with only_one("pid:7"), only_one_of(tmp_path):
        assert "pid:7 is checkpointed, restored or moved by another command" in other("pid:7", tmp_path)
        assert "another command restores from" in other("pid:8", tmp_path)
        assert other("pid:8", tmp_path / "other") == ""
    assert other("pid:7", tmp_path) == ""
