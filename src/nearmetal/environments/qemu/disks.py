"""Creates the disks of a guest: its image, a disk for everything that it writes, and its swap space."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host
from ...host.outside import outside_directory
from ...model.environments.guest import DiskFormat, GuestSettings
from ..contract import GuestBase, InstanceRequest
from ..storage import DISKS, MKFS
from .argv import QemuDisk

MAKE_LIMIT = 120.0


@dataclass(frozen=True, kw_only=True)
class Disks:
    """The disks of a guest, and the names by which nm-guest finds them: 'serial:NAME', or a device.

    root: 'NAME:FSTYPE' of the root file system; empty if it is not on a disk.
    upper: name of the disk for everything that the guest writes; empty if it writes to its memory.
    swap: name of the disk with the swap space; empty if there is none.
    """

    files: tuple[QemuDisk, ...]
    root: str
    upper: str
    swap: str


@contextmanager
def own_disks(
    host: Host, request: InstanceRequest, base: GuestBase, settings: GuestSettings
) -> Iterator[Disks]:
    """Create the disks of one instance, and remove them on exit.

    Raises UnavailableError if a program that creates them is missing.
    Raises RunError if they cannot be created.
    """
    files: list[QemuDisk] = []
    upper = swap = ""
    overlaid = base.root is not None and not base.disk and settings.format is DiskFormat.QCOW2
    if not overlaid and settings.writable is None and settings.swap is None:
        yield Disks(files=_image(base, settings), root=_root(base, settings), upper="", swap="")
        return
    with outside_directory(DISKS / request.label) as directory:
        try:
            files += [_overlay(host, base, settings, directory)] if overlaid else _image(base, settings)
            if settings.writable is not None:
                upper = "serial:writable"
                files.append(_made(host, directory / "writable", settings.writable, settings, [*MKFS]))
            if settings.swap is not None:
                swap = "serial:swap"
                files.append(_made(host, directory / "swap", settings.swap, settings, ["mkswap"]))
        except OSError as e:
            what = f"disk {directory}: {e.strerror}"
            raise RunError(what, remedy="nearmetal clean, or a smaller disk") from e
        yield Disks(files=tuple(files), root=_root(base, settings), upper=upper, swap=swap)


def _root(base: GuestBase, settings: GuestSettings) -> str:
    if base.root is None:
        return ""
    return f"{settings.root_device}:auto" if base.disk else "serial:image:erofs"


def _image(base: GuestBase, settings: GuestSettings) -> tuple[QemuDisk, ...]:
    """Return the image as a disk; empty if the guest has no image. The file is never written to, so several
    guests can use it at the same time."""
    if base.root is None:
        return ()
    return (
        QemuDisk(
            name="image",
            file=base.root,
            format=settings.format if base.disk else DiskFormat.RAW,
            read_only=not settings.snapshot,
            snapshot=settings.snapshot,
        ),
    )


def _overlay(host: Host, base: GuestBase, settings: GuestSettings, directory: Path) -> QemuDisk:
    """Create a qcow2 file whose backing file is the image, and return it as a disk."""
    file = directory / "image"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base.root), "-F", "raw", str(file)]
    _run(host, argv)
    return QemuDisk(
        name="image", file=file, format=DiskFormat.QCOW2, read_only=True, snapshot=settings.snapshot
    )


def _made(host: Host, file: Path, size: int, settings: GuestSettings, make: list[str]) -> QemuDisk:
    """Create a file with a file system or a swap space, and return it as a disk.

    All blocks of a raw file are allocated at once: a sparse file would grow during a measurement.
    size: size in bytes.
    make: command that formats the file; its path is appended.
    """
    with file.open("xb") as new:
        if settings.format is DiskFormat.RAW:
            os.posix_fallocate(new.fileno(), 0, size)
        else:
            new.truncate(size)
    file.chmod(0o600)
    _run(host, [*make, str(file)])
    if settings.format is DiskFormat.QCOW2:
        raw = file.rename(file.with_suffix(".raw"))
        _run(host, ["qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", str(raw), str(file)])
        raw.unlink()
    return QemuDisk(
        name=file.name, file=file, format=settings.format, read_only=False, snapshot=settings.snapshot
    )


def _run(host: Host, argv: list[str]) -> None:
    if host.which(argv[0]) is None:
        raise UnavailableError(
            f"disks of guests need {argv[0]}", remedy="apt-get install e2fsprogs util-linux qemu-utils"
        )
    host.run(argv, timeout=MAKE_LIMIT).require("disk")
