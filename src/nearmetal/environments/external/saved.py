"""The directory of a checkpoint: its description, and whether there is room for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ...errors import UnavailableError, UsageError
from ...lifecycle import Method
from .contract import Saved

MANIFEST = "nearmetal-checkpoint.json"
"""Written last, so that a checkpoint without it is not complete."""
_REWRITTEN = ("criu", "stats-restore")
"""Files that each restore writes anew."""
_MORE = 64 << 20
"""Bytes beside the memory: logs, page tables, devices."""


def require_room(directory: Path, memory: int) -> int:
    """Return the free bytes of a file system on which a checkpoint fits.

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


def write_saved(directory: Path, saved: Saved) -> int:
    """Complete a checkpoint with its description, and return the bytes of all files."""
    sizes = _sizes(directory)
    text = json.dumps(
        {
            "instance": saved.name,
            "method": saved.method.value,
            "own": dict(saved.own),
            "files": sizes,
        },
        indent=2,
    )
    (directory / MANIFEST).write_text(f"{text}\n")
    return sum(sizes.values())


def read_saved(directory: Path) -> Saved:
    """Read the description of a checkpoint, and check that its files are whole.

    Raises UsageError if they are not.
    """
    file = directory / MANIFEST
    remedy = f"a directory that nearmetal checkpoint has written: it contains {MANIFEST}"
    try:
        read = json.loads(file.read_text())
        own = {str(k): str(v) for k, v in read["own"].items()}
        saved = Saved(name=str(read["instance"]), method=Method(read["method"]), own=own)
        sizes = {str(name): int(size) for name, size in read["files"].items()}
    except OSError as e:
        raise UsageError(f"{directory} contains no complete checkpoint", remedy=remedy) from e
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise UsageError(f"{file} is damaged: {e}", remedy=remedy) from e
    there = _sizes(directory)
    for name, size in sizes.items():
        if there.get(name) != size:
            found = f"has {there[name]} of {size} bytes" if name in there else "is missing"
            raise UsageError(f"{directory}: image {name} {found}", remedy="copy the whole directory again")
    return saved


def _sizes(directory: Path) -> dict[str, int]:
    files = [p for p in directory.rglob("*") if p.is_file() and p.name != MANIFEST]
    images = [p for p in files if p.suffix not in (".log", ".pid") and p.name not in _REWRITTEN]
    return {str(p.relative_to(directory)): p.stat().st_size for p in sorted(images)}
