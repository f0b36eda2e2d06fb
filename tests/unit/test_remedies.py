"""What to do about a program that did not start or ended with an error: one cure for each kind."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from nearmetal.model.study import Environment, Limits
from nearmetal.subjects.launches.remedies import FailedRun, end_remedy, start_remedy

HERE = Path("/home/me/my job")


def failed(
    *argv: str,
    mpi: int = 0,
    directory: Path | None = HERE,
    image: str = "host",
    memory: int | None = None,
    virtual: bool = False,
    works_by_hand: bool = False,
    head: bytes = b"",
) -> FailedRun:
    environment = Environment(
        name="box", backend="namespaces", image=image, placements=("one",), limits=Limits(memory=memory)
    )
    return FailedRun(
        argv=argv or ("./app",),
        mpi=mpi,
        directory=directory,
        environment=environment,
        virtual=virtual,
        works_by_hand=works_by_hand,
        head=head,
    )


def test_a_status_of_its_own_is_tried_by_hand() -> None:
    remedy = end_remedy(failed("./app", "two words", "{storage}/x"), 3, "no licence")
    assert remedy == "run it by hand: cd '/home/me/my job' && ./app 'two words' /var/tmp/x"
    assert shlex.split(remedy.partition("&& ")[2]) == ["./app", "two words", "/var/tmp/x"]
    assert end_remedy(failed(mpi=4), 3, "").endswith("&& mpirun -n 4 ./app")
    alone = end_remedy(failed("./script", directory=None), 1, "")
    assert alone == "run it by hand in a directory with its files: ./script"


LIBRARY = (
    "./app: error while loading shared libraries: libfoo.so.3: cannot open shared object file: No such file"
)
ELF = b"\x7fELF"
ABSENT = "./app cannot be started: No such file or directory"


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (127, LIBRARY, "install the package that has libfoo.so.3 (apt-file search libfoo.so.3)"),
        (1, "./app: libc.so.6: version `GLIBC_2.38' not found (required by ./app)", "newer system"),
        (127, "sh: 1: nosuch: not found", "a command that it starts is not there: install it, or name it by"),
        (126, "sh: 1: ./data: Permission denied", "cannot be executed: chmod +x"),
        (1, "cat: /etc/shadow: Permission denied", "as the user that it runs as"),
        (1, "cat: input: No such file or directory", "run it by hand: cd"),
        (137, "", "this machine ran out of memory, most likely (dmesg says so)"),
        (-9, "", "this machine ran out of memory"),
        (132, "", "compile it without -march=native"),
        (
            139,
            "",
            "run it by hand: cd '/home/me/my job' && ./app; if it fails only in this environment: ulimit",
        ),
        (135, "", "/dev/shm or its storage is full"),
        (153, "", "ulimit -a"),
        (134, "", "run it by hand: cd"),
        (1, "fio: file system does not support O_DIRECT", "buffered ones (mode: buffered)"),
        (1, "dd: writing 'x': No space left on device", "a larger storage"),
    ],
)
def test_each_kind_has_its_cure(status: int, message: str, said: str) -> None:
    assert said in end_remedy(failed(), status, message)


def test_a_cure_depends_on_where_the_program_ran() -> None:
    image = failed(image="debian-mpi")
    assert "to image debian-mpi and build it again, or image: host" in end_remedy(image, 127, LIBRARY)
    assert "install it in image debian-mpi" in end_remedy(image, 127, "sh: 1: x: not found")
    assert "the files of image debian-mpi" in end_remedy(image, 1, "cat: x: No such file or directory")
    limited = end_remedy(failed(memory=64 << 20), 137, "")
    assert limited.startswith("it met limits: {memory: 64 MiB}")
    assert end_remedy(failed(virtual=True), 137, "").startswith("the guest ran out of memory")
    assert end_remedy(failed(virtual=True), 132, "").endswith("guest: {cpu: host}")


@pytest.mark.parametrize(
    ("image", "reason", "head", "said"),
    [
        ("host", "./app cannot be started: Permission denied", ELF, "chmod +x ./app"),
        ("host", "./app cannot be started: Exec format error", ELF, "compiled for another processor"),
        ("host", ABSENT, ELF, "head -1 ./app"),
        ("host", ABSENT, b"", "install it, or name it by"),
        ("host", ABSENT, b"#!/bin/sh\r\necho\r\n", r"carriage return, as on Windows: sed -i 's/\r$//' ./app"),
        (
            "host",
            "./app cannot be started: Exec format error",
            b"\xef\xbb\xbf#!/bin/sh\n",
            r"byte order mark, before #!: sed -i '1s/^\xef\xbb\xbf//' ./app",
        ),
        (
            "mine",
            ABSENT,
            ELF,
            "this machine has it, the image",
        ),
        (
            "mine",
            ABSENT,
            b"",
            "add its package to image mine",
        ),
    ],
)
def test_what_to_do_about_a_program_that_does_not_start(
    image: str, reason: str, head: bytes, said: str
) -> None:
    assert said in start_remedy(failed(image=image, head=head), reason)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("sh: 1: cannot create /scratch/out: Read-only file system", "in {storage}"),
        ("connect 127.0.0.1:27000: Connection refused", "--attachment host"),
        ("cannot open /run/site/licence: No such file or directory", "below the working directory"),
        ("", "in this environment"),
    ],
)
def test_what_works_by_hand_is_not_to_be_tried_by_hand(message: str, said: str) -> None:
    remedy = end_remedy(failed(works_by_hand=True), 3, message)
    assert said in remedy and "run it by hand" not in remedy
