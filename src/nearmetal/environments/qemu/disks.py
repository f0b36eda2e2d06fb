"""The disks of a guest: its image, read-only or under QEMU's snapshot; what it writes; its swap."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host
from ...host.runtime import note_outside
from ...model.environments.guest import DiskFormat, GuestSettings
from ..contract import GuestBase, InstanceRequest
from ..storage import DISKS, MKFS
from .argv import Disk

MAKE_LIMIT = 120.0


@dataclass(frozen=True, kw_only=True)
class Disks:
    """The disks of a virtual machine, as its kernel names them.

    root: DEVICE:FSTYPE, empty where the root is no disk.
    upper, swap: devices.
    """

    files: tuple[Disk, ...]
    root: str
    upper: str
    swap: str


@contextmanager
def own_disks(
    host: Host, request: InstanceRequest, base: GuestBase, settings: GuestSettings, state: Path
) -> Iterator[Disks]:
    """Made anew for each instance, and gone on leaving. Raises RunError."""
    files: list[Disk] = []
    upper = swap = ""
    overlaid = base.root is not None and not base.disk and settings.format is DiskFormat.QCOW2
    if not overlaid and settings.writable is None and settings.swap is None:
        yield Disks(files=_image(base, settings), root=_root(base, settings), upper="", swap="")
        return
    directory = DISKS / request.label
    note_outside(state, directory)
    try:
        directory.mkdir(mode=0o700)
        files += [_overlay(host, base, settings, directory)] if overlaid else _image(base, settings)
        if settings.writable is not None:
            upper = "serial:writable"
            files.append(_made(host, directory / "writable", settings.writable, settings, [*MKFS]))
        if settings.swap is not None:
            swap = "serial:swap"
            files.append(_made(host, directory / "swap", settings.swap, settings, ["mkswap"]))
        yield Disks(files=tuple(files), root=_root(base, settings), upper=upper, swap=swap)
    except OSError as e:
        raise RunError(f"disk {directory}: {e.strerror}", remedy="nearmetal clean, or a smaller disk") from e
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _root(base: GuestBase, settings: GuestSettings) -> str:
    if base.root is None:
        return ""
    return f"{settings.root_device}:auto" if base.disk else "serial:image:erofs"


def _image(base: GuestBase, settings: GuestSettings) -> tuple[Disk, ...]:
    """An image that nobody writes to may be a disk of many guests at once."""
    if base.root is None:
        return ()
    return (
        Disk(
            name="image",
            file=base.root,
            format=settings.format if base.disk else DiskFormat.RAW,
            read_only=not settings.snapshot,
            snapshot=settings.snapshot,
        ),
    )


def _overlay(host: Host, base: GuestBase, settings: GuestSettings, directory: Path) -> Disk:
    """An image as the base of a qcow2 that goes with the guest."""
    file = directory / "image"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base.root), "-F", "raw", str(file)]
    _run(host, argv)
    return Disk(name="image", file=file, format=DiskFormat.QCOW2, read_only=True, snapshot=settings.snapshot)


def _made(host: Host, file: Path, size: int, settings: GuestSettings, make: list[str]) -> Disk:
    """A raw file is there as a whole: one with holes would be extended while it is measured."""
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
    return Disk(
        name=file.name, file=file, format=settings.format, read_only=False, snapshot=settings.snapshot
    )


def _run(host: Host, argv: list[str]) -> None:
    if host.which(argv[0]) is None:
        raise UnavailableError(
            f"disks of guests need {argv[0]}", remedy="apt-get install e2fsprogs util-linux qemu-utils"
        )
    done = host.run(argv, timeout=MAKE_LIMIT)
    if not done.ok:
        raise RunError(f"disk: {done.failure()}")
