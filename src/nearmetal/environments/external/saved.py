"""Checks, describes and cleans the directory of a checkpoint."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
from pathlib import Path

from ...errors import RunError, UnavailableError, UsageError
from ...host.durable import is_temporary
from ...host.untrusted import UntrustedDirectory
from ...model.change import replace
from ..criu_images import check_images, read_pagemaps
from .contract import Saved, restore_line
from .description import (
    DescriptionError,
    entries_of,
    find_stranger,
    read_description,
    require_plain,
    text_of,
)
from .disk import make_directory, write_note

MANIFEST = "nearmetal-checkpoint.json"
"""Name of the description of a complete checkpoint. It is written last: a checkpoint without it is
incomplete."""
BEGUN = "nearmetal-begun.json"
"""Name of the description of a checkpoint that has begun. It has no file sizes. It is written first, so that
the checkpoint can be identified if nearmetal is killed."""
HANDED_OVER = "nearmetal-handed-over.txt"
"""Name of the file that names the host to which the images were copied. It is written before the instance is
restored on that host. From then on the instance may run there."""
RESTORED = "nearmetal-restored.txt"
"""Name of the file that says as which instance the images were restored. A second restore would run a second
copy. It is written before the restore, with the line _UNFINISHED, and again after it: if nearmetal is killed
between, the instance may run."""
_UNFINISHED = "not known to be finished"
_INVENTORY = "inventory.img"
"""The image that CRIU writes last. CRIU ends the instance only after it."""
STATE = "guest.state"
"""Name of the file with the state of a guest."""
_LIBVIRT_PART = b"LibvirtQemudPart"
"""Beginning of a file that libvirt has not completed; then it is LibvirtQemudSave. The states of other guests
get the name STATE only when they are complete."""
_REWRITTEN = ("criu", "stats-restore")
"""Files that every restore overwrites."""
_DESCRIPTIONS = (MANIFEST, BEGUN, HANDED_OVER, RESTORED)
_LONGEST_NOTE = 4096
_MORE = 64 << 20
"""Space in bytes that a checkpoint needs apart from memory and files: for logs, page tables and devices."""


def require_room(directory: Path, size: int) -> int:
    """Check that the file system of a directory has room for a checkpoint, and return its free bytes.

    size: bytes of the images, without logs, page tables and devices.
    Raises UnavailableError if there is not enough room.
    """
    at = next(p for p in (directory, *directory.absolute().parents) if p.exists())
    free, needed = shutil.disk_usage(at).free, size + _MORE
    if free < needed:
        raise UnavailableError(
            f"a checkpoint needs up to {needed >> 20} MiB, and {free >> 20} MiB are free",
            where=str(directory),
            remedy="--to with a directory on a larger file system",
        )
    return free


def require_new(directory: Path) -> None:
    """Make a directory for images, which only this user can read.

    Raises UsageError if it exists and is not empty, belongs to another user, or cannot be made.
    """
    try:
        make_directory(directory)
        if directory.stat().st_uid != os.geteuid():
            raise UsageError(
                f"{directory} belongs to another user", remedy="a new directory: images hold the memory"
            )
        if UntrustedDirectory(directory).names():
            raise UsageError(
                f"{directory} is not empty", remedy="a new directory: no image is ever overwritten"
            )
        directory.chmod(0o700)  # images hold the memory; the directory may have been there already
    except OSError as e:
        raise UsageError(f"{directory}: {e.strerror}", remedy="a directory that can be written to") from e


def write_begun(directory: Path, saved: Saved) -> None:
    """Write the description BEGUN."""
    write_note(directory / BEGUN, text_of(saved, {}))


def write_saved(directory: Path, saved: Saved) -> int:
    """Write the description MANIFEST, which completes a checkpoint. Return the bytes of all its files.

    Raises RunError if it cannot be written. The images can be restored without it.
    """
    sizes = sizes_by_file(directory)
    try:
        write_note(directory / MANIFEST, text_of(saved, sizes))
        (directory / BEGUN).unlink(missing_ok=True)
    except OSError as e:
        raise RunError(
            f"{saved.name} was written to files, but not their description: {e.strerror}",
            where=str(directory),
            remedy=f"if it does not run: {restore_line(directory)}",
        ) from e
    return sum(sizes.values())


def write_handed_over(directory: Path, host: str, path: Path) -> None:
    """Write HANDED_OVER: the images were copied to a path on another host. It is on the disk when the
    function returns. Raises OSError."""
    write_note(directory / HANDED_OVER, f"{host}:{path}\n")


def write_restored(directory: Path, name: str, *, finished: bool = True) -> None:
    """Write RESTORED: the images were restored as an instance or, if not finished, are about to be. On a full
    disk, nothing is written."""
    with contextlib.suppress(OSError):  # an instance that runs, or can be restored, is worth more than a note
        write_note(directory / RESTORED, f"{name}\n" if finished else f"{name}\n{_UNFINISHED}\n")


def forget_restored(directory: Path) -> None:
    """Remove RESTORED, since the restore has failed."""
    with contextlib.suppress(OSError):
        (directory / RESTORED).unlink(missing_ok=True)


def take_back(directory: Path) -> None:
    """Remove HANDED_OVER, since the instance was not restored on the other host."""
    (directory / HANDED_OVER).unlink(missing_ok=True)


def again_line(directory: Path) -> str:
    """Return the command line that restores an instance from a directory, which may have been handed over or
    restored before, if it does not run."""
    notes = [f for f in (directory / HANDED_OVER, directory / RESTORED) if f.exists()]
    taken = f"rm {shlex.join(map(str, notes))} && " if notes else ""
    return f"{taken}{restore_line(directory)}"


def require_kept(directory: Path) -> None:
    """Raises UsageError if the instance may run already: a directory was handed over to another host, or the
    instance was restored from it."""
    if (where := _note(directory, HANDED_OVER)) is not None:
        raise UsageError(
            f"its images were copied to {where or 'another host'}, to restore the instance there",
            where=str(directory),
            remedy=f"find out there; if it does not run: {again_line(directory)}",
        )
    if (note := _note(directory, RESTORED)) is not None:
        name, *unfinished = note.splitlines() or ("an instance", _UNFINISHED)
        if unfinished:
            raise UsageError(
                f"nearmetal was ended while it restored {name}; {name} may run",
                where=str(directory),
                remedy=f"find out; if it does not run: {again_line(directory)}",
            )
        raise UsageError(
            f"its images were restored already, as {name}",
            where=str(directory),
            remedy=f"if that copy runs nowhere any more: {again_line(directory)}",
        )


def _note(directory: Path, name: str) -> str | None:
    """Return the content of a note; None if it does not exist. An empty or unreadable one is a note too."""
    try:
        return UntrustedDirectory(directory).read_bytes(name, _LONGEST_NOTE).decode(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return ""


def distrust(directory: Path) -> str:
    """Return why a checkpoint may come from somebody else, whose program a restore would run with the rights
    of this user; '' if this user has made it, or if it has no readable description."""
    for name in (MANIFEST, BEGUN):
        with contextlib.suppress(OSError, DescriptionError):
            _, _, own = read_description(directory, name)
            if stranger := find_stranger(directory):
                return stranger
            return "" if own else f"{directory} was not written by this user on this machine"
    return ""


def read_saved(directory: Path) -> Saved:
    """Read the description of a complete checkpoint, and check that all its files have the described sizes.

    Raises UsageError if the description or a file is missing or damaged.
    """
    file = directory / MANIFEST
    remedy = f"a directory that nearmetal checkpoint has written: it contains {MANIFEST}"
    try:
        saved, sizes, _ = read_description(directory, MANIFEST)
        require_plain(directory)
    except FileNotFoundError as e:
        if (directory / BEGUN).exists():
            remedy = "if the instance still runs: checkpoint it again, to a new directory"
        raise UsageError(f"{directory} contains no complete checkpoint", remedy=remedy) from e
    except OSError as e:
        raise UsageError(str(e.strerror), where=str(file), remedy=remedy) from e
    except DescriptionError as e:
        raise UsageError(f"is damaged: {e}", where=str(file), remedy=remedy) from e
    there = sizes_by_file(directory)
    for name, size in sizes.items():
        if there.get(name) != size:
            found = f"has {there[name]} of {size} bytes" if name in there else "is missing"
            raise UsageError(
                f"image {name} {found}", where=str(directory), remedy="copy the whole directory again"
            )
    return replace(saved, size=sum(sizes.values()))


def read_interrupted(directory: Path) -> Saved | None:
    """Return the description of a checkpoint during which nearmetal was killed, if its images were completed.

    None if there is no such checkpoint, or its images do not contain the whole memory. The instance may still
    run.
    """
    if (directory / MANIFEST).exists():
        return None
    with contextlib.suppress(OSError, DescriptionError, RunError):
        saved, _, _ = read_description(directory, BEGUN)
        require_plain(directory)
        if not saved.method.by_criu:
            with UntrustedDirectory(directory).open_file(STATE) as file:
                begin = file.read(len(_LIBVIRT_PART))
            return saved if len(begin) == len(_LIBVIRT_PART) and begin != _LIBVIRT_PART else None
        if not (directory / _INVENTORY).exists():
            return None
        check_images(directory)
        # Without pagemaps, the memory is at a page server. Lazy pages are still at the source.
        maps = list(read_pagemaps(directory))
        if maps and not any(found.lazy for found in maps):
            return saved
    return None


def sizes_of(directory: Path) -> int:
    """Return the bytes of all images in a directory."""
    return sum(sizes_by_file(directory).values())


def remove_images(directory: Path) -> None:
    """Remove the images of a failed checkpoint. Logs of CRIU are kept, because the error message names
    them."""
    # The content of a directory comes before the directory.
    for file in sorted(directory.rglob("*"), reverse=True):  # trusted: this run has made it
        if file.is_dir() and not file.is_symlink():
            with contextlib.suppress(OSError):  # it still contains a log
                file.rmdir()
        elif file.suffix != ".log":
            file.unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()


def sizes_by_file(directory: Path) -> dict[str, int]:
    """Return the bytes of each image in a directory by its path there, without descriptions, notes and
    logs."""
    return {
        str(path): status.st_size
        for path, status in sorted(entries_of(directory))
        if stat.S_ISREG(status.st_mode)
        and path.name not in (*_DESCRIPTIONS, *_REWRITTEN)
        and path.suffix not in (".log", ".pid")
        and not is_temporary(path.name)
    }
