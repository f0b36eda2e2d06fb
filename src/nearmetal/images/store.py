"""Images on disk: one entry per key, either complete or absent. Names refer to entries.

names/<name>.json    {"key": ...}
trees/<key>/         an entry: tree/, image.json, forms/
making/<key>/        an entry that is being made
locks/<key>          locked by the process that makes it
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import BusyError, UsageError
from ..host.processes import labelled as processes
from ..model.environments.image import HOST, Expired, ImageDefinition
from ..model.keys import NAME_PATTERN

FORMAT = 1
RECORD = "image.json"


@dataclass(frozen=True, kw_only=True)
class TreeDescription:
    """Description of a tree.

    digest: SHA-256 of the tree, in hex.
    origin: suite that it was built from, or format and name of the file that it was imported from.
    created: UTC.
    size: bytes on the disk.
    packages: 'name version' of what dpkg and pip installed.
    """

    digest: str
    origin: str
    created: str
    size: int
    packages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Image(TreeDescription):
    """A complete image.

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
    """Return the key of a definition's entry. Two names with the same definition share it.

    suite: name of the suite, with HOST resolved.
    """
    content = {**asdict(definition), "suite": suite, "packages": sorted(set(definition.packages))}
    del content["name"]
    if definition.expired is Expired.REFUSE:
        del content["expired"]  # as the keys of images were before there was a choice
    if not definition.pip:
        del content["pip"]
    text = json.dumps([FORMAT, platform.machine(), content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def checked_name(name: str) -> str:
    """Return the name if it is valid.

    Raises UsageError if it is not.
    """
    if not re.fullmatch(NAME_PATTERN, name) or name.endswith("\n"):
        raise UsageError(
            f"{name!r} is no name of an image", remedy="letters, digits, - and _, not starting with -"
        )
    if name == HOST:
        raise UsageError(f"image {HOST} is the machine's own root", remedy="call it something else")
    return name


class ImageStore:
    """The images in a directory, which is created if missing, and used by nearmetal only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, name: str, key: str | None) -> Image | None:
        """Return the image with a name; None if there is none.

        key: key of its definition; None for the image last built or imported under the name.
        """
        if key is None:
            try:
                key = str(json.loads(self._name(name).read_text())["key"])
            except (OSError, ValueError, KeyError, TypeError):
                return None
        return self._entry(name, key)

    def all(self) -> tuple[Image, ...]:
        """Return every image that has a name, sorted by name."""
        names = sorted(p.stem for p in (self.directory / "names").glob("*.json"))
        return tuple(image for name in names if (image := self.find(name, None)) is not None)

    def _name(self, name: str) -> Path:
        return self.directory / "names" / f"{checked_name(name)}.json"

    def _entry(self, name: str, key: str) -> Image | None:
        directory = self.directory / "trees" / key
        try:
            record = json.loads((directory / RECORD).read_text())
            made = TreeDescription(**{**record, "packages": tuple(record["packages"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return Image(name=name, key=key, directory=directory, **vars(made))

    @contextmanager
    def making(self, name: str, key: str) -> Iterator[Path]:
        """Yield an empty directory in which an entry is made. It is removed on exit, unless adopted.

        Processes left by an earlier maker that was killed are ended.
        Raises BusyError while another process makes the entry.
        """
        work = self.directory / "making" / key
        lock = self.directory / "locks" / key
        for directory in (work.parent, lock.parent):
            directory.mkdir(parents=True, exist_ok=True)
        with locked(lock, f"image {name} is being made"):
            _end_dead_maker(lock)
            remove_tree(work)
            lock.write_text(making_label(key))
            try:
                work.mkdir()
                yield work
            finally:
                remove_tree(work)

    def adopt(self, name: str, key: str, work: Path, made: TreeDescription) -> Image:
        """Store the entry that was made in work/tree under the name."""
        (work / RECORD).write_text(json.dumps(asdict(made), indent=1))
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
        aside = file.with_name(f".{file.name}.{os.getpid()}")
        aside.write_text(json.dumps({"key": key}))
        aside.replace(file)

    def require(self, name: str) -> Image:
        """Return the image last built or imported under the name.

        Raises UsageError if there is none.
        """
        image = self.find(name, None)
        if image is None:
            known = ", ".join(i.name for i in self.all())
            remedy = f"there are {known}" if known else "nearmetal image list"
            raise UsageError(f"no image {checked_name(name)}", remedy=remedy)
        return image

    def remove(self, name: str) -> Image:
        """Remove a name, and its entry if no other name points to it. Returns the image.

        Raises UsageError if there is none, BusyError while a run uses it.
        """
        image = self.require(name)
        others = [i for i in self.all() if i.key == image.key and i.name != name]
        if not others:
            with locked(image.directory / RECORD, f"image {name} is in use"):
                # Renamed first, so that a key always has a complete entry or none.
                gone = self.directory / "making" / f"removed-{image.key}"
                gone.parent.mkdir(parents=True, exist_ok=True)
                remove_tree(gone)
                image.directory.rename(gone)
                remove_tree(gone)
        self._name(name).unlink(missing_ok=True)
        return image


@contextmanager
def in_use(image: Image) -> Iterator[None]:
    """Keep the image from being removed until exit."""
    with (image.directory / RECORD).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Lock a file by flock until exit. The lock ends with its process, even with kill -9.

    Raises BusyError if another process has it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise BusyError(f"{what}: another process holds it", remedy="wait until it has ended") from e
        yield
    finally:
        os.close(fd)


def making_label(key: str) -> str:
    """Return the label of the processes that make an entry of the store."""
    return f"nearmetal-image-{os.getpid()}-{key[:12]}"


def _end_dead_maker(lock: Path) -> None:
    """End the processes of a maker that was killed. The caller holds the lock."""
    if label := lock.read_text():
        processes.kill_labelled(label)


def remove_tree(path: Path) -> None:
    """Remove a tree if it exists. Directories that their owner may not write to are made writable first."""
    if not path.exists():
        return
    if os.geteuid() != 0:
        for top, names, _ in os.walk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    Path(top, name).chmod(0o700, follow_symlinks=False)
    shutil.rmtree(path)
