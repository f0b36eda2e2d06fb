"""Puts the files of a checkpoint on the disk before the instance ends, so that a power cut at any moment
leaves the instance or its images."""

from __future__ import annotations

import fcntl
import os
import shlex
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ...host import Host
from ...host.durable import sync_directory, write_file
from ...host.runtime import cache_directory, scratch_directory
from ...host.untrusted import UntrustedDirectory
from ..program import write_script
from .contract import SECONDS

SYNC_LOG = "sync.log"
"""Name of the file with the messages of a sync that has failed during a dump."""
_SCRIPT = "nearmetal-before-end"
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h."""
_SYNCHRONOUS = 0x08
"""FS_SYNC_FL: every write to the file is on the disk when it returns."""


def write_note(file: Path, text: str) -> None:
    """Write a file that only this user can read. It is on the disk when the function returns.

    Raises OSError. The file is then as it was before.
    """
    write_file(file, text.encode(), mode=0o600)


def make_directory(directory: Path) -> None:
    """Make a directory that only this user can enter, and its parents, so that their names are on the disk.
    Raises OSError."""
    missing = [path for path in (directory, *directory.absolute().parents) if not path.exists()]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in missing:
        sync_directory(path.absolute().parent)


def sync_command(directory: Path) -> list[str]:
    """Return the command that takes everything in a directory away from other users, and flushes it to the
    disk. It fails if that is not possible. Other data of the file system, which may be much more, are not
    flushed."""
    commands = (("chmod", "go="), ("sync", "--"))
    return ["find", str(directory), *(word for words in commands for word in ("-exec", *words, "{}", "+"))]


def sync_images(host: Host, directory: Path) -> None:
    """Flush all files of a checkpoint to the disk. Raises RunError if that is not possible."""
    host.run(sync_command(directory), timeout=SECONDS).require(
        "the images are not known to be on the disk", remedy="another disk"
    )


@contextmanager
def synced_before_end(images: Path, also: Sequence[str]) -> Iterator[dict[str, str]]:
    """Let CRIU flush the images to the disk at the end of a dump, before it ends the instance. Yields the
    environment variables for CRIU, or for the program that starts it.

    CRIU runs a script when it has written all images, while all processes are stopped. If the script fails,
    CRIU lets the processes continue.

    images: directory of the images.
    also: another command that must succeed before the instance ends; empty for none.
    """
    commands = " && ".join(shlex.join(words) for words in (sync_command(images), also) if words)
    text = f"""#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0
{{ {commands}; }} 2>{shlex.quote(str(images / SYNC_LOG))}
"""
    with scratch_directory(f"nearmetal-check-{os.getpid()}-dump") as scratch:
        script = write_script(None, _executable_directory(images) / f"{_SCRIPT}-{os.getpid()}", text)
        # CRIU's configuration file has no way to quote all paths, so it names a link.
        link, configuration = scratch / "directory", scratch / "criu.conf"
        link.symlink_to(script.parent)
        own = os.environ.get("CRIU_CONFIG_FILE")
        before = Path(own).read_text() if own else ""  # trusted: this user has named it
        configuration.write_text(f"{before}\naction-script {link / script.name}\n")  # trusted: of this run
        try:
            yield {"CRIU_CONFIG_FILE": str(configuration)}
        finally:
            script.unlink(missing_ok=True)
            if not sync_failure(images):
                (images / SYNC_LOG).unlink(missing_ok=True)


def _executable_directory(images: Path) -> Path:
    """Return a directory for a script: that of the images, or the cache if it is mounted with noexec."""
    if not os.statvfs(images).f_flag & os.ST_NOEXEC:
        return images
    cache = cache_directory()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    return cache


def sync_failure(images: Path) -> str:
    """Return why the images were not flushed to the disk during a dump; empty if they were, or if that was
    not tried."""
    with suppress(OSError):
        return UntrustedDirectory(images).read_bytes(SYNC_LOG).decode(errors="replace").strip()
    return ""


def make_synchronous(file: Path) -> None:
    """Make an empty file such that everything written to it is on the disk at once, if the file system can do
    that. Raises OSError if it cannot be made."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(file, flags, 0o600)  # trusted: new
    try:
        with suppress(OSError):  # a file system without this flag, such as NFS
            (before,) = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, bytes(struct.calcsize("l"))))
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", before | _SYNCHRONOUS))
    finally:
        os.close(fd)
    sync_directory(file.parent)
