"""The directory of a checkpoint: its description, and whether there is room for it."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from ...errors import RunError, UnavailableError, UsageError
from ...lifecycle import Method
from ...model.change import replace
from ..criu_images import check_images, read_pagemap
from .contract import Saved

MANIFEST = "nearmetal-checkpoint.json"
"""Written last, so that a checkpoint without it is not complete."""
BEGUN = "nearmetal-begun.json"
"""The same without sizes, written first: what a checkpoint is of whose tool was killed."""
_INVENTORY = "inventory.img"
"""CRIU's last image. It ends the instance only afterwards."""
_REWRITTEN = ("criu", "stats-restore")
"""Files that each restore writes anew."""
_MORE = 64 << 20
"""Bytes beside the memory: logs, page tables, devices."""


def require_room(directory: Path, memory: int) -> int:
    """Check that a checkpoint fits on the file system of a directory, and return its free bytes.

    memory: bytes of the instance's memory.
    Raises UnavailableError if it does not fit.
    """
    at = next(p for p in (directory, *directory.absolute().parents) if p.exists())
    free, needed = shutil.disk_usage(at).free, memory + _MORE
    if free < needed:
        raise UnavailableError(
            f"a checkpoint needs up to {needed >> 20} MiB, and {free >> 20} MiB are free",
            where=str(directory),
            remedy="--to with a directory on a larger file system",
        )
    return free


def require_new(directory: Path) -> None:
    """Make a directory for images. Raises UsageError if it contains something or cannot be made."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise UsageError(
                f"{directory} is not empty", remedy="a new directory: no image is ever overwritten"
            )
        directory.chmod(0o700)  # images hold the memory; the directory may have been there already
    except OSError as e:
        raise UsageError(f"{directory}: {e.strerror}", remedy="a directory that can be written to") from e


def write_begun(directory: Path, saved: Saved) -> None:
    """Write the description of a checkpoint that begins."""
    (directory / BEGUN).write_text(_text(saved, {}))


def write_saved(directory: Path, saved: Saved) -> int:
    """Complete a checkpoint with its description, and return the bytes of all files."""
    sizes = _sizes(directory)
    (directory / MANIFEST).write_text(_text(saved, sizes))
    (directory / BEGUN).unlink(missing_ok=True)
    return sum(sizes.values())


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
    """Read the description of a checkpoint, and check that its files are whole.

    Raises UsageError if they are not.
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
    """Return what was being written when the tool was killed, if CRIU has completed the images; else None.

    The instance itself may still run.
    """
    if (directory / MANIFEST).exists() or not (directory / _INVENTORY).exists():
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RunError):
        saved, _ = _read(directory / BEGUN)
        check_images(directory)
        # Without the pagemaps the memory is at a page server, and pages that are lazy are with the source.
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
    """Remove torn images, and keep CRIU's logs, since an error names them."""
    for file in sorted(directory.rglob("*"), reverse=True):  # what is in a directory before the directory
        if file.is_dir() and not file.is_symlink():
            with contextlib.suppress(OSError):  # it keeps a log
                file.rmdir()
        elif file.suffix != ".log":
            file.unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()


def _sizes(directory: Path) -> dict[str, int]:
    files = [p for p in directory.rglob("*") if p.is_file() and p.name not in (MANIFEST, BEGUN)]
    images = [p for p in files if p.suffix not in (".log", ".pid") and p.name not in _REWRITTEN]
    return {str(p.relative_to(directory)): p.stat().st_size for p in sorted(images)}
