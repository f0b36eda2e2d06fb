"""The working directories of programs: made empty, filled, read and removed again."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path, PurePath
from typing import BinaryIO

from ...errors import TrialFailedError
from ...host.processes.bounded import gap
from ...host.removal import discard_tree, remove_tree
from ...host.untrusted import UntrustedDirectory
from ...model.study import CommandWorkload
from ...model.workloads.script import SCRIPT
from ...node.trial import Trial
from ...workloads.program_output import SEARCHED, printed_text
from ...workloads.reference import difference

#: Bytes of one output that are read. The marker where a long one was cut is searched as well.
KEPT = SEARCHED - 100


def own_directory(
    trial: Trial, workload: CommandWorkload, part: str = ""
) -> AbstractContextManager[Path | None]:
    """Make the directory of one run of a program, fill it with the program's files, and yield it. It is
    removed on exit. Yields None if the program runs in the directory where nearmetal was started.

    part: end of the directory's name, which tells apart copies that run at the same time.

    Raises TrialFailedError if the directory cannot be filled, or if nothing can be executed in it.
    """
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
        discard_tree(directory)


def fill(directory: Path, texts: Mapping[str, str], files: Mapping[str, str]) -> None:
    """Fill a directory, which instances may see too: nothing is written through a link that leads out of its
    parent.

    texts: contents of new files, by name.
    files: files and directories to copy; a path is mapped to the name in the directory.
    Raises TrialFailedError if a file cannot be read or written.
    """
    at, own = directory, UntrustedDirectory.part(directory)
    try:
        for name, text in texts.items():
            at = directory / name
            _make_parents(own, PurePath(name))
            own.overwrite(name, text.encode())
        for path, name in files.items():
            at = Path(path)
            _make_parents(own, PurePath(name))
            _copy(at, own, PurePath(name))
    except OSError as e:
        raise TrialFailedError(f"{at} cannot be put into {directory}: {_words(e)}") from e


def _make_parents(own: UntrustedDirectory, name: PurePath) -> None:
    for parent in reversed(name.parents):
        own.make_directory(parent)


def _copy(source: Path, own: UntrustedDirectory, name: PurePath) -> None:
    """Copy a file, or a directory with its contents, with modes and times. Links in it are followed."""
    status = source.stat()
    if source.is_dir():
        own.make_directory(name)
        for inner in sorted(source.iterdir()):  # trusted: the user names it
            _copy(inner, own, name / inner.name)
        fd = own.open(name, os.O_RDONLY | os.O_DIRECTORY)
    elif source.is_file():
        own.unlink(name)
        fd = own.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(os.dup(fd), "wb") as out, source.open("rb") as data:  # trusted: the user names it
            shutil.copyfileobj(data, out, 1 << 20)
    else:
        raise OSError(errno.EINVAL, "is neither a file nor a directory", str(source))
    try:
        os.fchmod(fd, stat.S_IMODE(status.st_mode))
        os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(fd)


def empty(directory: Path) -> None:
    """Make a working directory anew. Raises TrialFailedError if an instance has put something else there."""
    try:
        remove_tree(directory)
        directory.mkdir()
    except OSError as e:
        raise TrialFailedError(f"{directory} cannot be made anew: {_words(e)}") from e


def forget_outputs(directory: Path, names: Iterable[str]) -> None:
    """Remove the outputs of an earlier run, which must not be taken for those of the next one.

    Raises TrialFailedError if one cannot be removed.
    """
    try:
        for name in names:
            UntrustedDirectory.part(directory).unlink(name)
    except OSError as e:
        raise TrialFailedError(f"the earlier {name} in {directory} cannot be removed: {_words(e)}") from e


def _require_executable(program: Path) -> None:
    """Raise TrialFailedError if a program was copied to a file system on which nothing can be executed."""
    if program.is_file() and os.statvfs(program).f_flag & os.ST_NOEXEC:
        raise TrialFailedError(
            f"{program.name} was copied to {program.parent}, where nothing can be run (mounted noexec)",
            remedy="write the program's own absolute path into command, and take it out of files",
        )


def _words(e: OSError) -> str:
    where = f" ({e.filename})" if e.filename else ""
    return f"{e.strerror or e}{where}"


def read_outputs(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the contents of files by name. A long file is cut in the middle; a missing file is left out.

    Raises TrialFailedError if one is not a regular file.
    """
    found = {}
    for name in names:
        file = _open_output(directory, name)
        if file is not None:
            with file:
                found[name] = _read(file)
    return found


def _open_output(directory: Path, name: str) -> BinaryIO | None:
    """Open a file that a program may have written. Return None if it does not exist.

    Raises TrialFailedError if it is not a regular file: the program may have left a FIFO without a writer, or
    a link to a file of somebody else.
    """
    try:
        fd = UntrustedDirectory.part(directory).open(name, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise TrialFailedError(f"{name}, which it wrote, cannot be read: {e.strerror}") from e
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise TrialFailedError(f"{name}, which it wrote, is not a regular file")
    return os.fdopen(fd, "rb")


def _read(file: BinaryIO) -> str:
    size = os.fstat(file.fileno()).st_size
    data = file.read(KEPT)
    if size > len(data):
        half = KEPT // 2
        file.seek(-half, os.SEEK_END)
        data = b"".join([data[:half], gap(size - 2 * half).encode(), file.read(half)])
    return data.decode(errors="replace")


def compared(workload: CommandWorkload, directory: Path | None, stdout: str, stderr: str = "") -> str | None:
    """Return how the output of a program differs from its reference; empty if it does not, None if the study
    names no reference.

    directory: working directory of the program.
    Raises TrialFailedError if the reference cannot be read, or if the output is not a regular file.
    """
    verify = workload.verify
    if verify is None or verify.reference is None:
        return None
    if verify.file is None:
        text = printed_text(verify.stream, stdout, stderr)
        found: BinaryIO | None = io.BytesIO(text.encode(errors="replace"))
    else:
        assert directory is not None
        found = _open_output(directory, verify.file)
    if found is None:
        return "nothing was written"
    try:
        with found, Path(verify.reference.path).open("rb") as wanted:  # trusted: the user names it
            return difference(found, wanted, verify.reference)
    except OSError as e:
        raise TrialFailedError(
            f"the reference cannot be read: {e.strerror}", where=verify.reference.path
        ) from e
