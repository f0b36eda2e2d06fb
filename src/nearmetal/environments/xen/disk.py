"""Provides the writable disks of a guest on its dom0: files, a block device, or logical volumes. Files and
volumes are created before the guest starts, and removed after it has ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ...errors import UnavailableError
from ...host import Host
from .settings import XenDisk, XenDiskKind

MAKE_SECONDS = 120.0
FILES = "/var/tmp"
SAVED = "-saved"
"""End of the name of the file with the state of a guest that is moved."""
_MIB = 1 << 20


@contextmanager
def disks_made(
    dom0: Host, disk: XenDisk, label: str, *, writable: int | None, swap: int | None
) -> Iterator[tuple[str, str]]:
    """Create a disk with an ext4 file system and a swap disk on dom0 until exit. Yields their two paths
    there; '' for a disk that is not requested.

    label: label of the instance, from which files and volumes are named.
    writable, swap: sizes in bytes of the disk and of the swap disk; None if it is not requested.

    Raises UnavailableError if dom0 lacks a program or a usable device.
    Raises RunError if a command fails.
    """
    with ExitStack() as stack:
        targets = []
        for part, size in (("writable", writable), ("swap", swap)):
            targets.append("")
            if size is not None:
                targets[-1] = stack.enter_context(_made(dom0, disk, f"{label}-{part}", size))
                _format(dom0, targets[-1], part)
        yield targets[0], targets[1]


@contextmanager
def _made(dom0: Host, disk: XenDisk, name: str, size: int) -> Iterator[str]:
    match disk.kind:
        case XenDiskKind.FILE:
            path = f"{disk.path or FILES}/{name}"
            try:
                _must(dom0, ["truncate", "--size", str(size), path], f"no file {path}")
                yield path
            finally:
                dom0.run(["rm", "-f", path], timeout=MAKE_SECONDS)
        case XenDiskKind.LVM:
            group = disk.path or ""
            if dom0.which("lvcreate") is None:
                raise UnavailableError(f"no lvcreate on {dom0.name}", remedy="apt-get install lvm2")
            argv = ["lvcreate", "--yes", "--wipesignatures", "y", "--name", name]
            try:
                _must(dom0, [*argv, "--size", f"{-(-size // _MIB)}m", group], f"no volume in {group}")
                yield f"/dev/{group}/{name}"
            finally:
                remove_volume(dom0, f"{group}/{name}")
        case XenDiskKind.BLOCK:
            yield _device(dom0, disk, size)


def _device(dom0: Host, disk: XenDisk, size: int) -> str:
    """Check the block device of a disk, and return its path.

    size: required size in bytes.
    Raises UnavailableError if the path is not a block device, or the device is too small, is mounted, or
    contains data that must not be overwritten.
    Raises RunError if its size cannot be read.
    """
    path = disk.path or ""
    if not dom0.run(["test", "-b", path], timeout=MAKE_SECONDS).ok:
        raise UnavailableError(
            f"{path} is not a block device of {dom0.name}", remedy="lsblk shows what there is"
        )
    has = int(_must(dom0, ["blockdev", "--getsize64", path], f"the size of {path} cannot be read"))
    if has < size:
        raise UnavailableError(
            f"{path} of {dom0.name} is {has // _MIB} MiB large, {-(-size // _MIB)} MiB are requested",
            remedy="a larger device, or a smaller writable",
        )
    holds = dom0.run(["wipefs", "--noheadings", path], timeout=MAKE_SECONDS).stdout.strip()
    if holds and not disk.overwrite:
        raise UnavailableError(
            f"{path} of {dom0.name} contains data: {holds.splitlines()[0]}",
            remedy="take another device, or write overwrite: true",
        )
    if dom0.run(["findmnt", "--noheadings", "--source", path], timeout=MAKE_SECONDS).ok:
        raise UnavailableError(f"{path} of {dom0.name} is mounted", remedy=f"umount {path}")
    return path


def _format(dom0: Host, target: str, part: str) -> None:
    argv = ["mkswap", target] if part == "swap" else ["mkfs.ext4", "-q", "-F", "-E", "nodiscard", target]
    _must(dom0, argv, f"{target} cannot be formatted")


def remove_volume(dom0: Host, volume: str) -> None:
    """Remove a logical volume. Errors are ignored, for example if it does not exist.

    volume: 'group/name'.
    """
    dom0.run(["lvremove", "--force", volume], timeout=MAKE_SECONDS)


def volumes(dom0: Host) -> tuple[str, ...]:
    """Return all logical volumes of a machine as 'group/name'; empty without LVM."""
    if dom0.which("lvs") is None:
        return ()
    done = dom0.run(["lvs", "--noheadings", "--options", "vg_name,lv_name"], timeout=MAKE_SECONDS)
    lines = [line.split() for line in done.stdout.splitlines()]
    return tuple("/".join(words) for words in lines if len(words) == 2) if done.ok else ()


def _must(host: Host, argv: list[str], failed: str) -> str:
    return host.run(argv, timeout=MAKE_SECONDS).require(failed).stdout
