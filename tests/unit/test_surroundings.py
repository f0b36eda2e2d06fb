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

from nearmetal.api.moves.locks import only_one, only_one_of
from nearmetal.environments.external import (
    CheckOutcome,
    HostCheck,
    MachineProperties,
    compare,
    describe,
    read_by_command,
    read_here,
)
from nearmetal.environments.external.machine import FACTS, address, build_id
from nearmetal.environments.external.surroundings import Build
from nearmetal.errors import UnavailableError
from nearmetal.host import Completed, LocalHost, paced
from nearmetal.host.facts.provenance import cpu_flags_in
from nearmetal.model.change import replace
from nearmetal.model.record import JsonValue
from nearmetal.testing.fake_host import FakeHost

OWN = os.getpid()
HOST = LocalHost()


def answers(machine: Mapping[str, JsonValue], memory: int = 1 << 20) -> dict[str, HostCheck]:
    return {f.subject: f for f in compare(machine, read_here(HOST, machine), memory)}


def test_the_machine_that_wrote_an_instance_has_all_that_it_needs() -> None:
    machine = describe(HOST, [OWN])
    files = machine["files"]
    assert isinstance(files, Mapping) and os.path.realpath(sys.executable) in files
    found = answers(machine)
    assert {f.answer for f in found.values()} == {CheckOutcome.FINE}, found
    assert found["programs and libraries"].text.startswith(f"all {len(files)} ")


def test_what_differs_or_is_in_the_way_is_named() -> None:
    machine = describe(HOST, [OWN])
    program = os.path.realpath(sys.executable)
    unlike = machine | {
        "kernel": "99.0",
        "flags": "avx9000",
        "files": {program: [1, ""], "/no/such/library.so": [1, ""]},
    }
    found = answers(unlike, 1 << 60)
    assert found["kernel"].answer is CheckOutcome.DIFFERS and "99.0 at the source" in found["kernel"].text
    assert found["processor"].answer is CheckOutcome.DIFFERS and "avx9000" in found["processor"].text
    lacks = found["programs and libraries"]
    assert lacks.answer is CheckOutcome.PREVENTS and lacks.remedy
    assert lacks.text == f"missing: /no/such/library.so; of another build: {program}"
    assert found["memory"].answer is CheckOutcome.PREVENTS and found["memory"].remedy
    other = answers(machine | {"architecture": "vax"})
    assert other["processor"].answer is CheckOutcome.PREVENTS
    assert answers({})["machine"].answer is CheckOutcome.UNKNOWN


def test_an_address_is_free_or_taken_or_not_here() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        machine = describe(HOST, [OWN])
        taken = answers(machine)["address"]
        port = listening.getsockname()[1]
        assert taken.answer is CheckOutcome.PREVENTS
        assert taken.text == f"127.0.0.1:{port} listening: another program uses it"
    assert answers(machine)["addresses"].answer is CheckOutcome.FINE
    elsewhere = answers(machine | {"addresses": ["192.0.2.7:4711"]})["address"]
    assert elsewhere.answer is CheckOutcome.PREVENTS and "does not have it" in elsewhere.text


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


# ------------------------------------------------------------------------------ two machines, without reading

SOURCE: Mapping[str, JsonValue] = {
    "kernel": "6.12.48-1",
    "architecture": "x86_64",
    "flags": "avx2 fpu pti sse2 vmx",
    "files": {"/bin/it": [70, "0a"], "/etc/cache": [9, ""]},
    "addresses": [],
}
ALIKE = MachineProperties(
    kernel="6.12.48-1",
    architecture="x86_64",
    flags=frozenset({"avx2", "fpu", "pti", "sse2", "vmx"}),
    files={"/bin/it": Build(70, "0a"), "/etc/cache": Build(9, "")},
    memory=1 << 30,
)


def against(**changed: object) -> dict[str, HostCheck]:
    return {f.subject: f for f in compare(SOURCE, replace(ALIKE, **changed), 1 << 20)}


def test_two_like_machines_are_fine() -> None:
    found = against()
    assert list(found) == ["processor", "kernel", "programs and libraries", "memory"]
    assert {f.answer for f in found.values()} == {CheckOutcome.FINE}


def test_only_flags_of_instructions_count() -> None:
    found = against(flags=frozenset({"fpu", "sse2"}))["processor"]
    assert found.answer is CheckOutcome.DIFFERS
    assert found.text == "it lacks avx2, which the instance may use" and found.remedy
    assert against(flags=frozenset({"avx2", "fpu", "sse2"}))["processor"].answer is CheckOutcome.FINE


def test_every_feature_of_an_arm_processor_counts() -> None:
    source = {**SOURCE, "architecture": "aarch64", "flags": "asimd fp sve"}
    there = replace(ALIKE, architecture="aarch64", flags=cpu_flags_in("Features\t: fp asimd\n"))
    found = next(compare(source, there, 1))
    assert found.answer is CheckOutcome.DIFFERS and "it lacks sve," in found.text


@pytest.mark.parametrize(
    ("release", "answer"),
    [
        ("6.12.9", CheckOutcome.FINE),  # of the same series, so without other features
        ("6.13.0-rc1", CheckOutcome.FINE),
        ("10.0", CheckOutcome.FINE),
        ("6.6.110", CheckOutcome.DIFFERS),
        ("5.15.0-91-generic", CheckOutcome.DIFFERS),
        ("unnumbered", CheckOutcome.DIFFERS),
    ],
)
def test_an_older_kernel_differs_and_a_newer_one_does_not(release: str, answer: CheckOutcome) -> None:
    found = against(kernel=release)["kernel"]
    assert found.answer is answer and release in found.text and "6.12.48-1" in found.text
    assert bool(found.remedy) == (answer is CheckOutcome.DIFFERS)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (Build(71, "0a"), "of another build: /bin/it"),
        (Build(70, "0b"), "of another build: /bin/it"),
        (None, "missing: /bin/it"),
    ],
)
def test_a_mapped_file_must_be_of_the_same_build(build: Build | None, text: str) -> None:
    files = {"/etc/cache": Build(9, ""), **({} if build is None else {"/bin/it": build})}
    found = against(files=files)["programs and libraries"]
    assert found.answer is CheckOutcome.PREVENTS and found.text == text and found.remedy


def test_too_little_memory_and_unknown_memory() -> None:
    assert against(memory=1 << 19)["memory"].answer is CheckOutcome.PREVENTS
    assert against(memory=None)["memory"].answer is CheckOutcome.UNKNOWN


# ------------------------------------------------------------------------------ another machine, by a command


def test_a_command_reads_what_is_read_here(tmp_path: Path) -> None:
    plain, odd = tmp_path / "plain", tmp_path / " odd $(name)\\n 'x' "
    for file in (plain, odd):
        file.write_text("text")
    files: dict[str, JsonValue] = {str(p): [0, ""] for p in (plain, tmp_path / "missing", odd)}
    described = describe(HOST, [OWN])
    mapped = described["files"]
    assert isinstance(mapped, Mapping)
    source = {**described, "files": {**files, **mapped}, "addresses": []}
    here, by_command = read_here(HOST, source), read_by_command(HOST, source)
    assert here.memory is not None and by_command.memory is not None
    assert by_command.files == here.files
    assert str(odd) in by_command.files and str(tmp_path / "missing") not in by_command.files
    assert any(build.build_id for build in by_command.files.values())
    assert replace(by_command, files={}, memory=0) == replace(here, files={}, memory=0)


def test_another_build_is_seen_by_a_command(tmp_path: Path) -> None:
    """The description is of the program as it was; then it is replaced by another build of the same size."""
    program = tmp_path / "program"
    content = Path(os.path.realpath("/bin/sh")).read_bytes()
    program.write_bytes(content)
    own = build_id(program)
    at = content.index(bytes.fromhex(own))
    source: dict[str, JsonValue] = {"files": {str(program): [len(content), own]}}
    assert read_by_command(HOST, source).files[str(program)] == Build(len(content), own)
    other = bytes(255 - byte for byte in content[at : at + 20])
    program.write_bytes(content[:at] + other + content[at + 20 :])
    assert read_by_command(HOST, source).files[str(program)] == Build(len(content), other.hex())


def test_a_machine_that_says_nothing_is_unavailable() -> None:
    lost = Completed(argv=("ssh",), returncode=255, stdout="", stderr="it is lost", seconds=0.0)
    fake = FakeHost(commands={("sh", "-c", FACTS): lost})
    with pytest.raises(UnavailableError, match="does not report its kernel") as refused:
        read_by_command(fake, {"files": {"/bin/it": [70, "0a"]}})
    assert refused.value.remedy


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
        "import sys; from nearmetal.api.moves.locks import *; from pathlib import Path\n"
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
