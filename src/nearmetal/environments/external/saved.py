"""Checks, describes and cleans the directory of a checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from ...errors import RunError, UnavailableError, UsageError
from ...lifecycle import Method
from ...model.change import replace
from ..criu_images import check_images, read_pagemap
from .contract import Saved, restore_line

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
_DESCRIPTIONS = (MANIFEST, f".{MANIFEST}", BEGUN, HANDED_OVER, RESTORED)
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
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.stat().st_uid != os.geteuid():
            raise UsageError(
                f"{directory} belongs to another user", remedy="a new directory: images hold the memory"
            )
        if any(directory.iterdir()):
            raise UsageError(
                f"{directory} is not empty", remedy="a new directory: no image is ever overwritten"
            )
        directory.chmod(0o700)  # images hold the memory; the directory may have been there already
    except OSError as e:
        raise UsageError(f"{directory}: {e.strerror}", remedy="a directory that can be written to") from e


def write_begun(directory: Path, saved: Saved) -> None:
    """Write the description BEGUN."""
    (directory / BEGUN).write_text(_text(saved, {}))


def write_saved(directory: Path, saved: Saved) -> int:
    """Write the description MANIFEST, which completes a checkpoint. Return the bytes of all its files.

    Raises RunError if it cannot be written. The images can be restored without it.
    """
    sizes, aside = _sizes(directory), directory / f".{MANIFEST}"
    try:
        aside.write_text(_text(saved, sizes))
        aside.rename(directory / MANIFEST)
        (directory / BEGUN).unlink(missing_ok=True)
    except OSError as e:
        raise RunError(
            f"{saved.name} was written to files, but not their description: {e.strerror}",
            where=str(directory),
            remedy=f"if it does not run: {restore_line(directory)}",
        ) from e
    return sum(sizes.values())


def write_handed_over(directory: Path, host: str, path: Path) -> None:
    """Write HANDED_OVER: the images were copied to a path on another host."""
    (directory / HANDED_OVER).write_text(f"{host}:{path}\n")


def write_restored(directory: Path, name: str, *, finished: bool = True) -> None:
    """Write RESTORED: the images were restored as an instance or, if not finished, are about to be. On a full
    disk, nothing is written."""
    with contextlib.suppress(OSError):  # an instance that runs, or can be restored, is worth more than a note
        (directory / RESTORED).write_text(f"{name}\n" if finished else f"{name}\n{_UNFINISHED}\n")


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
    if where := _note(directory / HANDED_OVER):
        raise UsageError(
            f"the images in {directory} were copied to {where}, to restore the instance there",
            remedy=f"find out there; if it does not run: {again_line(directory)}",
        )
    if note := _note(directory / RESTORED):
        name, *unfinished = note.splitlines()
        if unfinished:
            raise UsageError(
                f"nearmetal was ended while it restored {name} from {directory}; {name} may run",
                remedy=f"find out; if it does not run: {again_line(directory)}",
            )
        raise UsageError(
            f"the images in {directory} were restored already, as {name}",
            remedy=f"if that copy runs nowhere any more: {again_line(directory)}",
        )


def _note(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text().strip()
    return ""


def _text(saved: Saved, sizes: Mapping[str, int]) -> str:
    description = {
        "instance": saved.name,
        "method": saved.method.value,
        "own": dict(saved.own),
        "machine": dict(saved.machine),
        "files": dict(sizes),
    }
    return f"{json.dumps(description, indent=2)}\n"


def read_saved(directory: Path) -> Saved:
    """Read the description of a complete checkpoint, and check that all its files have the described sizes.

    Raises UsageError if the description or a file is missing or damaged.
    """
    file = directory / MANIFEST
    remedy = f"a directory that nearmetal checkpoint has written: it contains {MANIFEST}"
    try:
        saved, sizes = _read(file)
    except FileNotFoundError as e:
        if (directory / BEGUN).exists():
            remedy = "if the instance still runs: checkpoint it again, to a new directory"
        raise UsageError(f"{directory} contains no complete checkpoint", remedy=remedy) from e
    except OSError as e:
        raise UsageError(f"{file}: {e.strerror}", remedy=remedy) from e
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise UsageError(f"{file} is damaged: {e}", remedy=remedy) from e
    there = _sizes(directory)
    for name, size in sizes.items():
        if there.get(name) != size:
            found = f"has {there[name]} of {size} bytes" if name in there else "is missing"
            raise UsageError(f"{directory}: image {name} {found}", remedy="copy the whole directory again")
    return replace(saved, size=sum(sizes.values()))


def read_interrupted(directory: Path) -> Saved | None:
    """Return the description of a checkpoint during which nearmetal was killed, if its images were completed.

    None if there is no such checkpoint, or its images do not contain the whole memory. The instance may still
    run.
    """
    if (directory / MANIFEST).exists():
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RunError):
        saved, _ = _read(directory / BEGUN)
        if not saved.method.by_criu:
            with (directory / STATE).open("rb") as file:
                begin = file.read(len(_LIBVIRT_PART))
            return saved if len(begin) == len(_LIBVIRT_PART) and begin != _LIBVIRT_PART else None
        if not (directory / _INVENTORY).exists():
            return None
        check_images(directory)
        # Without pagemaps, the memory is at a page server. Lazy pages are still at the source.
        maps = [read_pagemap(file.read_bytes()) for file in directory.glob("pagemap-*.img")]
        if maps and not any(found.lazy for found in maps):
            return saved
    return None


def _read(file: Path) -> tuple[Saved, dict[str, int]]:
    read = json.loads(file.read_text())
    saved = Saved(
        name=str(read["instance"]),
        method=Method(read["method"]),
        own={str(k): str(v) for k, v in read["own"].items()},
        machine=dict(read.get("machine", {})),
    )
    return saved, {str(name): int(size) for name, size in read["files"].items()}


def sizes_of(directory: Path) -> int:
    """Return the bytes of all images in a directory."""
    return sum(_sizes(directory).values())


def remove_images(directory: Path) -> None:
    """Remove the images of a failed checkpoint. Logs of CRIU are kept, because the error message names
    them."""
    for file in sorted(directory.rglob("*"), reverse=True):  # the content of a directory before the directory
        if file.is_dir() and not file.is_symlink():
            with contextlib.suppress(OSError):  # it still contains a log
                file.rmdir()
        elif file.suffix != ".log":
            file.unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()


def _sizes(directory: Path) -> dict[str, int]:
    files = [p for p in directory.rglob("*") if p.is_file() and p.name not in _DESCRIPTIONS]
    images = [p for p in files if p.suffix not in (".log", ".pid") and p.name not in _REWRITTEN]
    return {str(p.relative_to(directory)): p.stat().st_size for p in sorted(images)}
