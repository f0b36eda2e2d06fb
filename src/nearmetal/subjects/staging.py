"""The directories that programs run in: made fresh, filled, read and removed again."""

from __future__ import annotations

import io
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from ..errors import TrialFailedError
from ..host.processes.bounded import gap
from ..model.program import SCRIPT
from ..model.study import CommandWorkload
from ..node.trial import Trial
from ..workloads.program_output import SEARCHED
from ..workloads.reference import difference

#: Bytes of one output that are read: what stands where a long one was cut is searched as well.
KEPT = SEARCHED - 100


def own_directory(
    trial: Trial, workload: CommandWorkload, part: str = ""
) -> AbstractContextManager[Path | None]:
    """Where one run of a program takes place, with what it brings along; None where it runs in that of
    nearmetal itself. part: of the name, where several run at once. Raises TrialFailedError."""
    return _staged(trial, workload, part) if workload.own_directory else nullcontext()


@contextmanager
def _staged(trial: Trial, workload: CommandWorkload, part: str) -> Iterator[Path]:
    assert trial.work is not None
    directory = trial.work / f"{workload.name}{part}"
    try:
        directory.mkdir()
        texts = {} if workload.script is None else {SCRIPT: workload.script}
        fill(directory, texts, workload.files)
        if workload.argv:
            _require_executable(directory / workload.argv[0])
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def fill(directory: Path, texts: Mapping[str, str], files: Mapping[str, str]) -> None:
    """Put texts, by name, and copies of files and directories of the machine, names by path, into a
    directory. Raises TrialFailedError."""
    at = directory
    try:
        for name, text in texts.items():
            at = directory / name
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(text)
        for path, name in files.items():
            at = Path(path)
            there = directory / name
            there.parent.mkdir(parents=True, exist_ok=True)
            if at.is_dir():
                shutil.copytree(at, there, dirs_exist_ok=True)
            else:
                shutil.copy(at, there)
    except (OSError, shutil.Error) as e:
        raise TrialFailedError(f"{at} cannot be put into {directory}: {_words(e)}") from e


def _require_executable(program: Path) -> None:
    """A copy of a program on a file system that runs none."""
    if program.is_file() and os.statvfs(program).f_flag & os.ST_NOEXEC:
        raise TrialFailedError(
            f"{program.name} was copied to {program.parent}, where nothing can be run (mounted noexec)",
            remedy="write the program's own absolute path into command, and take it out of files",
        )


def _words(e: Exception) -> str:
    return e.strerror or str(e) if isinstance(e, OSError) else str(e)


def read_outputs(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """The files by name, of a long one its beginning and its end; those that are not there are left out.
    Raises TrialFailedError for what is no file."""
    found = {}
    for name in names:
        file = _opened(directory / name)
        if file is not None:
            with file:
                found[name] = _read(file)
    return found


def _opened(path: Path) -> BinaryIO | None:
    """None where nothing is there. A program may leave anything by that name: a pipe without a writer, a link
    to a file that is not its own."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise TrialFailedError(f"{path.name}, which it wrote, cannot be read: {e.strerror}") from e
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise TrialFailedError(f"{path.name}, which it wrote, is no regular file")
    return os.fdopen(fd, "rb")


def _read(file: BinaryIO) -> str:
    size = os.fstat(file.fileno()).st_size
    data = file.read(KEPT)
    if size > len(data):
        half = KEPT // 2
        file.seek(-half, os.SEEK_END)
        data = b"".join([data[:half], gap(size - 2 * half).encode(), file.read(half)])
    return data.decode(errors="replace")


def compared(workload: CommandWorkload, directory: Path | None, stdout: str) -> str | None:
    """How what a program wrote differs from its reference; None where there is none. Raises
    TrialFailedError."""
    verify = workload.verify
    if verify is None or verify.reference is None:
        return None
    if verify.file is None:
        found: BinaryIO | None = io.BytesIO(stdout.encode(errors="replace"))
    else:
        assert directory is not None
        found = _opened(directory / verify.file)
    if found is None:
        return "nothing was written"
    try:
        with found, Path(verify.reference.path).open("rb") as wanted:
            return difference(found, wanted, verify.reference)
    except OSError as e:
        raise TrialFailedError(
            f"the reference cannot be read: {e.strerror}", where=verify.reference.path
        ) from e
