"""The store of images on disk. Each image is an entry with a key. An entry is complete or absent. Several
names can refer to one entry.

names/<name>.json    {"key": ...}
trees/<key>/         an entry: tree/, image.json, forms/
making/<key>/        an entry that is being made
locks/<key>          locked by the process that makes it

Only the user can enter the store: trees contain programs with set-user-ID bits that nobody updates.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from ..errors import BusyError, RunError, UsageError
from ..host.durable import write_file
from ..host.processes import labelled as processes
from ..host.removal import remove_tree
from ..host.untrusted import read_named
from ..model.environments.image import HOST, Expired, ImageDefinition
from ..model.keys import NAME_PATTERN
from ..records.json_files import parse_json
from .config import ImageConfig

FORMAT = 1
RECORD = "image.json"
_MODE = 0o700


@dataclass(frozen=True, kw_only=True)
class TreeDescription:
    """Description of the tree of an image.

    digest: SHA-256 of the tree in hex (digest.tree_digest).
    origin: suite from which it was built, or format and name of the file from which it was imported.
    created: time of creation in UTC, in ISO 8601 format.
    size: bytes on the disk.
    packages: 'name version' of each package that dpkg or pip installed.
    config: what it states for its programs; empty unless it was imported from an OCI or Docker image.
    """

    digest: str
    origin: str
    created: str
    size: int
    packages: tuple[str, ...]
    config: ImageConfig = field(default_factory=ImageConfig)


@dataclass(frozen=True, kw_only=True)
class Image(TreeDescription):
    """An image in the store.

    key: key of its entry.
    directory: directory of the entry.
    """

    name: str
    key: str
    directory: Path

    @property
    def tree(self) -> Path:
        return self.directory / "tree"


def definition_key(definition: ImageDefinition, suite: str) -> str:
    """Return the key of the entry for a definition: a SHA-256 in hex of everything in it except the name.
    Images with equal definitions share one entry.

    suite: name of the suite, from sources.resolved_suite().
    """
    content = {**asdict(definition), "suite": suite, "packages": sorted(set(definition.packages))}
    del content["name"]
    if definition.expired is Expired.REFUSE:
        del content["expired"]  # keeps the keys of images that were built before this setting existed
    if not definition.pip:
        del content["pip"]
    text = json.dumps([FORMAT, platform.machine(), content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def checked_name(name: str) -> str:
    """Return the name of an image unchanged if it is valid.

    Raises UsageError if it is not.
    """
    if not re.fullmatch(NAME_PATTERN, name) or name.endswith("\n"):
        raise UsageError(
            f"{name!r} is not a name for an image", remedy="letters, digits, - and _, not starting with -"
        )
    if name == HOST:
        raise UsageError(f"image {HOST} is the machine's own root", remedy="call it something else")
    return name


class ImageStore:
    """The store in a directory. The directory is created when it is needed, and must be used by nearmetal
    only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, name: str, key: str | None) -> Image | None:
        """Return the image with a name; None if there is none.

        key: key of the entry, from definition_key(); None for the entry that was last built or imported under
            this name.
        Raises UsageError if the key is None and the name is not valid.
        """
        if key is None:
            try:
                key = str(parse_json(read_named(self._name(name)))["key"])
            except (OSError, ValueError, KeyError, TypeError):
                return None
        return self._entry(name, key)

    def all(self) -> tuple[Image, ...]:
        """Return the image of every name, sorted by name. An image with several names occurs several
        times."""
        names = sorted(p.stem for p in (self.directory / "names").glob("*.json"))  # trusted: of the store
        return tuple(image for name in names if (image := self.find(name, None)) is not None)

    def _name(self, name: str) -> Path:
        return self.directory / "names" / f"{checked_name(name)}.json"

    def _close(self) -> None:
        """Let only this user enter the store. Earlier versions made stores that everybody could enter."""
        with contextlib.suppress(OSError):  # no store yet, or a read-only one
            if stat.S_IMODE(self.directory.stat().st_mode) != _MODE:
                self.directory.chmod(_MODE)

    def _entry(self, name: str, key: str) -> Image | None:
        directory = self.directory / "trees" / key
        self._close()
        try:
            made = msgspec.convert(parse_json(read_named(directory / RECORD)), TreeDescription)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return Image(name=name, key=key, directory=directory, **vars(made))

    @contextmanager
    def making(self, name: str, key: str) -> Iterator[Path]:
        """Lock the key of an entry and yield an empty directory in which the entry can be made. On exit, the
        directory is removed unless adopt() has taken it.

        If an earlier process that made the entry was killed, the processes that it left are killed first.
        Raises BusyError while another process makes the entry.
        """
        work = self.directory / "making" / key
        lock = self.directory / "locks" / key
        for directory in (work.parent, lock.parent):
            directory.mkdir(parents=True, exist_ok=True)
        self._close()
        with locked(lock, f"image {name} is being made"):
            _end_dead_maker(lock)
            remove_tree(work)
            lock.write_text(making_label(key))  # trusted: of the store
            try:
                work.mkdir()
                yield work
            finally:
                remove_tree(work)

    def unfinished(self) -> tuple[Path, ...]:
        """Return the directories of the images that killed processes have not finished, or not removed
        entirely."""
        directory = self.directory / "making"
        found = sorted(directory.iterdir()) if directory.is_dir() else []  # trusted: of the store
        return tuple(path for path in found if not is_locked(self.directory / "locks" / path.name))

    def remove_unfinished(self, name: str) -> None:
        """Remove such a directory, and the processes of its dead maker.

        name: name of the directory.
        Raises BusyError if another process works on it again, RunError if it cannot be removed.
        """
        lock, work = self.directory / "locks" / name, self.directory / "making" / name
        lock.parent.mkdir(exist_ok=True)
        with locked(lock, f"image {name} is being made"):
            _end_dead_maker(lock)
            try:
                remove_tree(work)
            except OSError as e:
                raise RunError(f"{work}: {e.strerror}", remedy=f"remove {work}") from e

    def adopt(self, name: str, key: str, work: Path, made: TreeDescription) -> Image:
        """Store the image that was made in work/tree, and let a name refer to it. If the store contains an
        entry with this key already, that entry is used.

        work: directory from making().
        """
        write_file(work / RECORD, json.dumps(asdict(made), indent=1).encode())
        target = self.directory / "trees" / key
        target.parent.mkdir(parents=True, exist_ok=True)
        if self._entry(name, key) is None:
            remove_tree(target)
            work.rename(target)
        self.point(name, key)
        image = self._entry(name, key)
        assert image is not None
        return image

    def point(self, name: str, key: str) -> None:
        file = self._name(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, json.dumps({"key": key}).encode())

    def require(self, name: str) -> Image:
        """Return the image that was last built or imported under a name.

        Raises UsageError if there is none.
        """
        image = self.find(name, None)
        if image is None:
            known = ", ".join(i.name for i in self.all())
            remedy = f"there are {known}" if known else "nearmetal image list"
            raise UsageError(f"no image {checked_name(name)}", remedy=remedy)
        return image

    def remove(self, name: str) -> Image:
        """Remove a name, and also its entry if no other name refers to it. Return the removed image.

        Raises UsageError if there is none, BusyError while a run uses the entry.
        """
        image = self.require(name)
        others = [i for i in self.all() if i.key == image.key and i.name != name]
        if not others:
            with locked(image.directory / RECORD, f"image {name} is in use"):
                # Renamed first, so that a key always has a complete entry or none.
                gone = self.directory / "making" / f"removed-{image.key}"
                lock = self.directory / "locks" / gone.name
                for parent in (gone.parent, lock.parent):
                    parent.mkdir(parents=True, exist_ok=True)
                with locked(lock, f"image {name} is being removed"):
                    remove_tree(gone)
                    image.directory.rename(gone)
                    remove_tree(gone)
        self._name(name).unlink(missing_ok=True)
        return image


@contextmanager
def in_use(image: Image) -> Iterator[None]:
    """Prevent the removal of an image until exit, by a shared lock."""
    with (image.directory / RECORD).open("rb") as file:  # trusted: of the store
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold an exclusive flock(2) on a file until exit. The kernel releases it if the process is killed.

    path: path of the file, which is created if it is missing.
    what: beginning of the error message.
    Raises BusyError if another process has locked the file.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)  # trusted: of the store
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise BusyError(f"{what}: another process holds it", remedy="wait until it has ended") from e
        yield
    finally:
        os.close(fd)


def is_locked(path: Path) -> bool:
    """Return whether a process has locked a file by locked()."""
    try:
        with path.open("rb") as file:  # trusted: of the store
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def making_label(key: str) -> str:
    """Return the label for processes by which this process makes an entry."""
    return f"nearmetal-image-{os.getpid()}-{key[:12]}"


def _end_dead_maker(lock: Path) -> None:
    """Kill the processes that were left by an earlier, killed maker of an entry.

    lock: lock file of the entry, which contains their label. The caller must hold the lock.
    """
    if label := lock.read_text():  # trusted: of the store
        processes.kill_labelled(label)
