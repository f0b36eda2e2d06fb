"""Writes files of results directories, and reports a full disk clearly."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path, PurePath

from ..errors import DiskFullError, RecordsError
from ..host.untrusted import UntrustedDirectory
from ..plain_text import shell_word

_FULL = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "disk quota exceeded",
    errno.EIO: "input/output error of the device",
}


def resume_line(directory: Path | str) -> str:
    """Return the command that resumes the run of a results directory."""
    return f"nearmetal resume {shell_word(str(directory))}"


TRY_SECONDS = 90
"""Default time limit of the command try, in seconds."""


def try_line(directory: Path | str) -> str:
    """Return the command that tries the changes suggested for a results directory."""
    return f"nearmetal try {shell_word(str(directory))}"


def analyze_line(directory: Path | str) -> str:
    """Return the command that shows every figure of a results directory.

    The path is left out if the directory is directly below results/, because the command shows the newest
    results there by default.
    """
    named = "" if Path(directory).parent == Path("results") else f" {shell_word(str(directory))}"
    return f"nearmetal analyze --all{named}"


def failure(error: OSError, where: Path, *, kept: str, remedy: str = "") -> RecordsError:
    """Return the error to raise for `error` while writing below `where`.

    kept: data that are safe on the disk, as text.
    remedy: what to do if the disk is not full.
    """
    if error.errno in _FULL:
        return DiskFullError(
            f"{_FULL[error.errno]}; {kept}", where=str(where), remedy=f"make room, then: {resume_line(where)}"
        )
    return RecordsError(f"cannot write: {error.strerror or error}", where=str(where), remedy=remedy)


def write_output(path: Path, data: bytes) -> None:
    """Write a file that the user has named, such as a pipe or an existing file. A link is refused, because
    somebody else may have planted it in a results directory.

    Raises OSError.
    """
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o666)  # trusted: the user has named it
    except OSError as e:
        if e.errno == errno.ELOOP and path.is_symlink():
            raise OSError(e.errno, "is a symbolic link; name its target") from e
        raise
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def is_there(directory: UntrustedDirectory, name: str) -> bool:
    """Return whether a file exists, even if another NFS client has just created or removed it. True also for
    a file that cannot be read.

    An NFS client caches for up to a minute whether a name exists. Opening the directory makes it ask its
    server.
    """
    with suppress(OSError):
        os.close(directory.open(PurePath(name).parent, os.O_RDONLY | os.O_DIRECTORY))
    return directory.exists(name)


def require_owner(directory: UntrustedDirectory, name: str, why: str = "it says what is executed") -> None:
    """Check that a file of a shared results directory belongs to this user or to the owner of the directory.
    Without this check, anybody who may write into the directory could have commands executed or forge
    results.

    why: why the owner matters, as the end of the error message.

    Raises RecordsError if the file belongs to another user, and OSError if it cannot be reached.
    """
    owner = directory.status(name).st_uid
    if owner not in (os.geteuid(), directory.path.stat().st_uid):
        raise RecordsError(
            f"belongs to another user (number {owner}), and {why}",
            where=str(directory.path_to(name)),
            remedy="remove it, and keep other users from writing into the results directory",
        )


def store_file(
    directory: UntrustedDirectory, name: str, data: bytes, *, kept: str = "the records are whole"
) -> None:
    """Write a file of a results directory, so that it is on the disk when the function returns.

    kept: data that are safe on the disk, as text for the error message.

    Raises DiskFullError and RecordsError.
    """
    try:
        directory.replace_file(name, data)
    except OSError as e:
        raise failure(e, directory.path, kept=kept) from e
