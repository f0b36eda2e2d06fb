"""Notes on the results directories that this user's own commands have made, in the user's state directory.

A results directory that was unpacked or cloned belongs to its user too, and says what it likes about itself.
So nothing in it is executed because of its owner, its dates or its file about workers, but only if there is
a note about it here. All machines that share the home directory have the same notes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from ..errors import RecordsError
from ..host.durable import write_file
from ..host.runtime import find_exposure, user_state
from ..host.untrusted import UntrustedDirectory

KEPT = 1000
"""Number of notes above which the oldest ones are removed. Notes about living workers are always kept."""
_DEFINITIONS = ("study.yaml", "series.json")
_STUDIES = "studies"


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Workers that an engine was told to start.

    options: options of the engine.
    ids: what the engine calls them.
    """

    engine: str
    options: Mapping[str, str]
    ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OwnRun:
    """A note about a results directory, or the directory of a series.

    path: the directory, for people who read the note. It is found by the name of the file.
    owner: user number of its owner.
    studies: SHA-256 of all that says what is executed, in hex; see studies_digest().
    since: when this user made the directory, or first trusted it, in Unix seconds.
    workers: workers that may still run; None if there are none.
    """

    path: str
    owner: int
    studies: str
    since: float
    workers: Workers | None = None


def studies_digest(directory: Path) -> str:
    """Return the SHA-256 of the files of a directory that say what its run executes, in hex: the study, or
    the series and its studies. They never change.

    Raises RecordsError if one of them cannot be read.
    """
    files, sha = UntrustedDirectory(directory), hashlib.sha256()
    names = [name for name in _DEFINITIONS if os.path.lexists(directory / name)]
    try:
        if "series.json" in names:
            names += [f"{_STUDIES}/{name}" for name in files.names(_STUDIES)]
        for name in names:
            data = files.read_bytes(name)
            sha.update(f"{name}\0{len(data)}\0".encode(errors="surrogateescape") + data)
    except OSError as e:
        raise RecordsError(f"cannot read: {e.strerror}", where=str(e.filename or directory)) from e
    return sha.hexdigest()


def note_run(directory: Path, workers: Workers | None = None) -> None:
    """Note that this user has made a directory, or trusts it, and which workers were submitted for it.

    Raises OSError if nothing can be noted, and RecordsError if the studies cannot be read.
    """
    place, path = _place(), directory.resolve()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.chmod(0o700)
    if (why := find_exposure(place)) is not None:
        raise PermissionError(errno.EPERM, why, str(place))
    before = None
    with suppress(RecordsError):  # a corrupt note is replaced
        before = own_run(path)
    run = OwnRun(
        path=bytes(path).decode(errors="replace"),
        owner=path.stat().st_uid,
        studies=studies_digest(path),
        since=time.time() if before is None else before.since,
        workers=workers,
    )
    write_file(place / _name(path), json.dumps(asdict(run)).encode(), mode=0o600)
    _forget_oldest(place)


def try_note_run(directory: Path, note: Callable[[str], None]) -> None:
    """Note that this user has made a directory. If that is impossible, only say so.

    note: called with the reason, as text.
    """
    try:
        note_run(directory)
    except OSError as e:
        note(f"nearmetal resume will ask for trust in this run, which cannot be noted: {e}")


def own_run(directory: Path) -> OwnRun | None:
    """Return the note about a directory; None if this user has not made it, if it was moved or copied, if it
    belongs to another user now, or if its studies were changed.

    Raises RecordsError if the note is corrupt.
    """
    path = directory.resolve()
    try:
        place, name = _place(), _name(path)
    except OSError:  # no home directory, so no notes
        return None
    if not _is_private(place):
        return None
    try:
        run = msgspec.json.decode(UntrustedDirectory(place).read_bytes(name), type=OwnRun)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise RecordsError(f"cannot read: {e.strerror}", where=str(place / name)) from e
    except (ValueError, RecursionError) as e:
        remedy = "remove it; nearmetal resume then asks whether the run is trusted"
        raise RecordsError(f"corrupt: {e}", where=str(place / name), remedy=remedy) from e
    same = run.owner == path.stat().st_uid and run.studies == studies_digest(path)
    return run if same else None


def newest_own_run(parent: Path, wanted: Callable[[Path], bool]) -> Path | None:
    """Return the directory directly below `parent` that this user has made last; None if there is none.

    wanted: returns whether a directory may be the one.

    Raises RecordsError if a note is corrupt.
    """
    try:
        names = UntrustedDirectory(parent).names()
    except OSError:
        return None
    below = [path for path in (parent / name for name in names) if path.is_dir() and wanted(path)]
    since = {path: run.since for path in below if (run := own_run(path)) is not None}
    return max(since, key=since.__getitem__, default=None)


def _place() -> Path:
    return user_state() / "nearmetal" / "runs"


def _is_private(place: Path) -> bool:
    """Return whether there are notes that nobody else can have written. The home directory may be that of
    another user."""
    try:
        return find_exposure(place) is None
    except OSError:
        return False


def _name(path: Path) -> str:
    return hashlib.sha256(bytes(path)).hexdigest()[:32] + ".json"


def _forget_oldest(place: Path) -> None:
    notes = UntrustedDirectory(place)
    written = {
        name: facts.st_mtime
        for name in notes.names()
        if name.endswith(".json") and (facts := notes.stat(name)) is not None
    }
    for name in sorted(written, key=written.__getitem__)[: max(0, len(written) - KEPT)]:
        with suppress(OSError, ValueError, RecursionError):
            if msgspec.json.decode(notes.read_bytes(name), type=OwnRun).workers is None:
                notes.unlink(name)
