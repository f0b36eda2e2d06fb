"""Creates the storage of instances: directories on the machine, which every backend can mount in an instance
at the same path. A backend needs to know only this path."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import NearmetalError, RunError
from ..host import Host, namespaces, text_of
from ..host.mounts import parse_mounts
from ..host.outside import outside_directory
from ..host.runtime import scratch_directory
from ..model.environments import environment as model
from ..model.study import Storage, StorageKind
from .contract import Unavailable

DISKS = Path(model.DISKS)
BLOCK_DEVICES = Path("/sys/dev/block")

MAKE_LIMIT = 300.0
"""Time limit for creating a file system or mounting an export, in seconds."""

MKFS = ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard")
"""Command that creates a file system. It writes everything at once: initialisation in the background would
disturb the measurements."""

NEEDS_ROOT = frozenset({StorageKind.TMPFS, StorageKind.LOOP, StorageKind.BLOCK, StorageKind.NFS})
SHARED = frozenset({StorageKind.BLOCK, StorageKind.NFS})
"""Kinds that are mounted once in a run. Every instance has a directory of its own there."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """The storage of one instance.

    path: path of the directory, the same inside and outside the instance.
    inside: whether a command in the instance must create the directory in the instance's own root, where it
        disappears with the instance. Otherwise it exists on the machine and must be mounted in the instance.
    """

    path: Path
    inside: bool


def why_not(host: Host, storage: Storage, *, own_root: bool) -> Unavailable | None:
    """Return why this machine cannot provide the storage; None if no reason is found without creating it.

    own_root: whether the instances have a root file system of their own.
    """
    missing = why_no_kind(host, storage.kind)
    if missing is not None:
        return missing
    if storage.kind is StorageKind.OVERLAY and own_root and not host.is_root():
        # Directories of the root belong to users that are not mapped in the user namespace, so overlayfs
        # cannot copy them up.
        return Unavailable(
            reason=f"storage overlay: without root nothing can be made in {DISKS} of an instance",
            remedy="run as root, or take bind",
        )
    path = Path(storage.path or "")
    if storage.kind is StorageKind.BIND and not os.access(path, os.W_OK | os.X_OK):
        return Unavailable(
            reason=f"storage bind: {path} is not a directory that this user may write to",
            remedy="another path",
        )
    if storage.kind is StorageKind.BLOCK:
        return _why_not_device(host, path, overwrite=storage.overwrite)
    return None


def why_no_kind(host: Host, kind: StorageKind) -> Unavailable | None:
    """Return which privilege, program or kernel feature is missing here for a kind of storage; None if
    nothing is missing. Paths are not checked."""
    if kind in NEEDS_ROOT and not host.is_root():
        return Unavailable(
            reason=f"storage {kind} needs root, because it is mounted; overlay and bind need no root",
            remedy="run as root, or take another kind",
        )
    if kind in (StorageKind.LOOP, StorageKind.BLOCK):
        lacking = [name for name in ("mkfs.ext4", "mount") if host.which(name) is None]
        if lacking:
            return Unavailable(
                reason=f"storage {kind} needs {' and '.join(lacking)}",
                remedy="apt-get install e2fsprogs mount",
            )
    if kind is StorageKind.NFS:
        if not {"nfs", "nfs4"} & set(text_of(host, "/proc/filesystems").split()):
            return Unavailable(
                reason="storage nfs: this kernel has no NFS client (yet)", remedy="modprobe nfs"
            )
        if host.which("mount.nfs") is None:
            return Unavailable(reason="storage nfs needs mount.nfs", remedy="apt-get install nfs-common")
    return None


def check_storage(host: Host, kind: StorageKind, label: str) -> Unavailable | None:
    """Return why this machine cannot provide a kind of storage; None if it can.

    Runs why_no_kind(). A tmpfs and a loop file are also created and removed, as a test.
    label: name of a temporary directory for the test.
    """
    missing = why_no_kind(host, kind)
    if missing is not None or kind not in (StorageKind.TMPFS, StorageKind.LOOP):
        return missing
    try:
        with (
            scratch_directory(label) as scratch,
            volume(
                host,
                Storage(kind=kind, size=4 << 20),
                label=label,
                directory=scratch / "storage",
                shared=None,
                own_root=False,
            ),
        ):
            return None
    except NearmetalError as e:
        return Unavailable(reason=e.what, remedy=e.remedy or "run it where mounts are allowed")


def _why_not_device(host: Host, device: Path, *, overwrite: bool) -> Unavailable | None:
    """Return why a block device must not be overwritten; None if it may be.

    A device must not be overwritten if it is in use, or if the user has not allowed it.

    overwrite: whether the user has allowed it.
    """
    try:
        found = device.stat()
    except OSError as e:
        return Unavailable(reason=f"storage block: {device}: {e.strerror}", remedy="another path")
    if not stat.S_ISBLK(found.st_mode):
        return Unavailable(reason=f"storage block: {device} is not a block device", remedy="another path")
    if not overwrite:
        return Unavailable(
            reason=f"storage block makes a file system on {device}, which destroys its contents",
            remedy="write overwrite: true in its storage if it may be destroyed",
        )
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    user = device_user(host, number)
    if user is None:
        return None
    return Unavailable(reason=f"storage block: {device} is in use: {user}", remedy="free it, or another path")


def _entries(directory: Path) -> list[Path]:
    """Return the entries of a directory; none if it cannot be read."""
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def device_user(host: Host, number: str) -> str | None:
    """Return what uses a block device or one of its partitions (a mount, swap or another device); None if
    nothing does.

    number: device number, such as '8:0'.
    """
    numbers = {number: "it"}
    block = BLOCK_DEVICES / number
    with contextlib.suppress(OSError):
        parts = [part for part in sorted(block.iterdir()) if (part / "partition").exists()]
        numbers |= {text_of(host, part / "dev").strip(): part.name for part in parts}
        holders = {held.name for device in (block, *parts) for held in _entries(device / "holders")}
        if holders:
            return f"held by {', '.join(sorted(holders))}"
    for mount in parse_mounts(text_of(host, "/proc/self/mountinfo")):
        if mount.device in numbers:
            return f"{numbers[mount.device]} is mounted on {mount.point}"
    for line in text_of(host, "/proc/swaps").splitlines()[1:]:
        with contextlib.suppress(OSError):
            used = Path(line.split()[0]).stat().st_rdev
            if f"{os.major(used)}:{os.minor(used)}" in numbers:
                return "it is swap"
    return None


@contextmanager
def mounted_once(host: Host, storage: Storage, target: Path) -> Iterator[Path]:
    """Mount the file system that the instances of a run share, and unmount it on exit.

    target: mount point; the directory is created.
    Raises UnavailableError if this machine cannot provide the storage.
    Raises RunError if creating or mounting the file system fails.
    """
    why = why_not(host, storage, own_root=False)
    if why is not None:
        raise why.error()
    target.mkdir()
    with ExitStack() as stack:
        stack.callback(namespaces.unmount, target)
        if storage.kind is StorageKind.BLOCK:
            _run(host, [*MKFS, storage.path or ""])
            namespaces.mount(storage.path or "", target, "ext4")
        else:
            _run(host, ["mount", "-t", "nfs", "-o", "nosuid,nodev", storage.path or "", str(target)])
        yield target


@contextmanager
def volume(
    host: Host,
    storage: Storage,
    *,
    label: str,
    directory: Path,
    shared: Path | None,
    own_root: bool,
) -> Iterator[Volume]:
    """Create the storage of one instance, and remove all of it on exit.

    label: label of the instance.
    directory: mount point for a tmpfs or a loop file; it is created.
    shared: mount point of the storage that all instances share; None for other kinds.
    own_root: whether the instance has a root file system of its own.
    Raises RunError if the storage cannot be created.
    """
    match storage.kind:
        case StorageKind.OVERLAY if own_root:
            yield Volume(path=DISKS / label, inside=True)
        case StorageKind.OVERLAY:
            with _shown_directory(DISKS / label) as path:
                yield Volume(path=path, inside=False)
        case StorageKind.BIND:
            with _shown_directory(Path(storage.path or "") / label) as path:
                yield Volume(path=path, inside=False)
        case StorageKind.BLOCK | StorageKind.NFS:
            assert shared is not None
            with _shown_directory(shared / label) as path:
                yield Volume(path=path, inside=False)
        case StorageKind.TMPFS:
            size = [f"size={storage.size}"] if storage.size else []
            with _mount_point(directory) as path:
                namespaces.mount("tmpfs", path, "tmpfs", options=",".join([*size, "mode=0755"]))
                yield Volume(path=path, inside=False)
        case StorageKind.LOOP:
            disks = Path(storage.path) if storage.path else DISKS
            with (
                outside_directory(disks / label) as own,
                _mount_point(directory) as path,
            ):
                _mount_file(host, own / "disk.ext4", storage.size or 0, path)
                yield Volume(path=path, inside=False)


@contextmanager
def _shown_directory(path: Path) -> Iterator[Path]:
    """Make an outside_directory(), and yield a directory in it that every user of an instance can enter."""
    with outside_directory(path) as closed:
        shown = closed / "files"
        shown.mkdir()
        shown.chmod(0o755)
        yield shown


def _mount_file(host: Host, file: Path, size: int, target: Path) -> None:
    """Create a file of a size in bytes with an ext4 file system, and mount it. All blocks of the file are
    allocated at once: a sparse file would grow during a measurement.

    Raises RunError.
    """
    try:
        with file.open("xb") as new:
            os.posix_fallocate(new.fileno(), 0, size)
    except OSError as e:
        raise RunError(f"storage loop: {file}: {e.strerror}", remedy="a smaller size, or another path") from e
    _run(host, [*MKFS, str(file)])
    # mount(8) chooses a free loop device. The kernel releases it on unmount (autoclear).
    _run(host, ["mount", "-t", "ext4", "-o", "loop,nosuid,nodev", str(file), str(target)])


@contextmanager
def _mount_point(path: Path) -> Iterator[Path]:
    path.mkdir()
    try:
        yield path
    finally:
        namespaces.unmount(path)
        path.rmdir()


def _run(host: Host, argv: Sequence[str]) -> None:
    host.run(argv, timeout=MAKE_LIMIT).require("storage")
