"""Undo notes: records of changes to this machine, each on persistent storage before the change is made.

A note contains parameters only, no command. It is one file in a directory that only this user may enter:
below /var/lib/nearmetal for root, else below the user's state directory. If neither can be written, it lies
in the runtime directory. Users' home directories may be shared by several machines, so each machine has a
directory of its own. A note is removed when its change is undone, and host/undo.py reads the notes that
killed runs have left.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import NearmetalError, RunError
from .durable import sync_directory
from .facts.provenance import BOOT_ID
from .runtime import find_exposure, make_runtime_directory, runtime_directory, user_state
from .untrusted import UntrustedDirectory

ROOT_STATE = Path("/var/lib/nearmetal")
MACHINE_ID = Path("/etc/machine-id")

_NAME = re.compile(r"(?P<label>nearmetal-[\w.-]+)\.(?P<number>\d{1,9})\.json")
_UNFINISHED = ".unfinished"
_LARGEST = 1 << 16
_held: set[Path] = set()


class Functions(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """The number of SR-IOV virtual functions of a network card was changed.

    before, made: the number before the change, and after it.
    """

    card: str
    before: int
    made: int


class Card(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """A network card of the machine was moved to a network namespace of the run, and set up there.

    netns: path of the namespace.
    alias, mtu, queue_length, up, offloads: the settings before (facts.devices.DeviceState).
    """

    name: str
    netns: str
    alias: str
    mtu: int
    queue_length: int
    up: bool
    offloads: dict[str, bool]


class Controllers(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Controllers of a control group of version 2 were turned on for its children.

    group: directory of the group.
    names: the controllers.
    leaf: child to which the processes of the group were moved; '' if they were not moved.
    """

    group: str
    names: tuple[str, ...]
    leaf: str = ""


class Directories(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Directories whose names begin with the label of the run are made in another directory.

    parent: that directory, without symbolic links.
    """

    parent: str


Change = Functions | Card | Controllers | Directories


class _Content(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file of a note."""

    boot: str
    change: Change


@dataclass(frozen=True, kw_only=True)
class Note:
    """A note that was written.

    label: label of the run that made the change.
    boot: boot ID of the machine at that time.
    """

    file: Path
    label: str
    boot: str
    change: Change


@dataclass(frozen=True, kw_only=True)
class RefusedNote:
    """A file in the place of a note that is not acted upon, and why."""

    file: Path
    why: str


def note_error(file: Path, why: str) -> RunError:
    """Return the error about a note that is not acted upon."""
    return RunError(f"undo note {file}: {why}; it was ignored", remedy=f"read it, and remove {file}")


def boot_id() -> str:
    """Return an identifier of the time since this machine was started."""
    return Path(BOOT_ID).read_text().strip()


def write_note(label: str, change: Change) -> Note:
    """Write a note. When this function returns, the note survives a power cut.

    label: label of the run that makes the change.

    Raises RunError if the note cannot be written. The change must not be made then.
    """
    reasons = []
    for base in _bases():
        try:
            return _write_in(_make_directory(base), label, change)
        except (OSError, RunError) as e:
            reasons.append(str(e))
    raise RunError(
        f"the note for undoing a change of this machine cannot be written: {'; '.join(reasons)}",
        remedy=f"make {_bases()[0]} writable for this user only",
    )


@contextmanager
def undo_after(label: str, change: Change, undo: Callable[[Note], None]) -> Iterator[None]:
    """Write a note, and on exit undo the change and remove the note. The caller makes the change in the body.

    undo: raises RunError or OSError if the change is not undone. The note stays in this case.

    Raises RunError. If the body raises an error, that error is raised even if the change is not undone.
    """
    note = write_note(label, change)
    try:
        yield
    except BaseException:
        _settle_quietly(note, undo)
        raise
    settle(note, undo)


def settle(note: Note, undo: Callable[[Note], None]) -> None:
    """Undo a change and remove its note.

    Raises RunError if the change is not undone. The note stays then.
    """
    try:
        undo(note)
    except (OSError, ValueError) as e:
        reason = f"{e.filename}: {e.strerror}" if isinstance(e, OSError) else f"{note.change}: {e}"
        raise RunError(
            f"what {note.label} has changed is not undone: {reason}",
            remedy=f"undo it and remove {note.file}",
        ) from e
    drop_note(note)


def _settle_quietly(note: Note, undo: Callable[[Note], None]) -> None:
    with contextlib.suppress(NearmetalError):  # the note stays, and `nearmetal clean` says why
        settle(note, undo)


def note_until_exit(label: str, change: Change, undo: Callable[[Note], None]) -> None:
    """Write a note. When this process exits, the change is undone and the note is removed."""
    note = write_note(label, change)
    _held.add(note.file)
    atexit.register(_settle_quietly, note, undo)


def is_held(note: Note) -> bool:
    """Return whether this process removes a note when it exits."""
    return note.file in _held


def drop_note(note: Note) -> None:
    """Remove a note whose change is undone. Harmless if it does not exist."""
    note.file.unlink(missing_ok=True)


def read_notes() -> tuple[tuple[Note, ...], tuple[RefusedNote, ...]]:
    """Return the notes of this user on this machine, the last written first, and the files that are refused.

    A file is refused if it is not a small regular file of this user that contains a note.
    """
    notes: list[tuple[int, Note]] = []
    refused = []
    for base in _bases():
        directory = _directory(base)
        try:
            if (why := _unsafe(directory)) is not None:
                refused.append(RefusedNote(file=directory, why=why))
                continue
            names = UntrustedDirectory(directory).names()
        except FileNotFoundError:
            continue
        except OSError as e:
            refused.append(RefusedNote(file=directory, why=e.strerror or str(e)))
            continue
        for name in names:
            try:
                if not name.endswith(_UNFINISHED):
                    notes.append(_read(directory, name))
            except FileNotFoundError:  # its run has removed it meanwhile
                continue
            except (OSError, ValueError) as e:
                why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
                refused.append(RefusedNote(file=directory / name, why=why))
    return tuple(note for _, note in sorted(notes, key=lambda n: -n[0])), tuple(refused)


def unfinished_notes() -> tuple[tuple[str, Path], ...]:
    """Return the label and the path of the notes that were not written to the end. Their changes have not
    been made."""
    found: list[Path] = []
    for base in _bases():
        with contextlib.suppress(OSError):
            if _unsafe(_directory(base)) is None:
                found += sorted(_directory(base).glob(f"*{_UNFINISHED}"))
    return tuple((path.name.partition(".")[0], path) for path in found)


@contextmanager
def notes_locked() -> Iterator[None]:
    """Keep other processes of this user from changing shared things of the machine, such as controllers that
    several runs use, at the same time."""
    for base in _bases():
        with contextlib.suppress(OSError, RunError):
            fd = os.open(_make_directory(base), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            break
    else:
        yield
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _bases() -> tuple[Path, ...]:
    """Return the directories in which notes may be, the persistent one first."""
    if os.geteuid() == 0:
        return ROOT_STATE, runtime_directory()
    try:
        return user_state() / "nearmetal", runtime_directory()
    except OSError:  # this user has no home directory
        return (runtime_directory(),)


def _directory(base: Path) -> Path:
    try:
        machine = MACHINE_ID.read_text().strip()
    except OSError:
        machine = ""
    # The host name too: machines that were installed as copies of one disk may have the same ID.
    return base / "undo" / re.sub(r"[^\w.-]", "_", f"{machine}-{os.uname().nodename}")


def _make_directory(base: Path) -> Path:
    """Return the directory of the notes. It is made if it is missing.

    Raises OSError, RunError.
    """
    directory = _directory(base)
    if base == runtime_directory():
        make_runtime_directory()
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        sync_directory(path.parent)
    if (why := _unsafe(directory)) is not None:
        raise RunError(f"{directory}: {why}")
    return directory


def _unsafe(directory: Path) -> str | None:
    """Return why another user could have made or changed the notes in a directory; None if no other user
    could.

    Raises OSError, for instance FileNotFoundError.
    """
    return find_exposure(directory) or find_exposure(directory.parent)


def _write_in(directory: Path, label: str, change: Change) -> Note:
    note = _Content(boot=boot_id(), change=change)
    numbers = [int(m["number"]) for name in os.listdir(directory) if (m := _NAME.match(name))]  # noqa: PTH208
    number = max(numbers, default=0)
    while True:
        number += 1
        file = directory / f"{label}.{number}.json"
        # Written under another name first, so that a note is complete or absent.
        aside = file.with_name(f"{file.name}{_UNFINISHED}")
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        try:
            with os.fdopen(fd, "wb") as out:
                out.write(msgspec.json.encode(note))
                out.flush()
                os.fsync(fd)
            os.link(aside, file)
        except FileExistsError:
            continue
        finally:
            aside.unlink()
        sync_directory(directory)
        return Note(file=file, label=label, boot=note.boot, change=change)


def _read(directory: Path, name: str) -> tuple[int, Note]:
    """Return the number of a note, and the note.

    Raises OSError, ValueError.
    """
    matched = _NAME.fullmatch(name)
    if matched is None:
        raise ValueError("the name is not that of a note")
    data = UntrustedDirectory(directory).read_own(name, _LARGEST)
    content = msgspec.json.decode(data, type=_Content)  # DecodeError is a ValueError
    note = Note(file=directory / name, label=matched["label"], boot=content.boot, change=content.change)
    return int(matched["number"]), note
