"""Settings that only Xen guests have, and settings of other guests that they cannot have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from ...model.capabilities import KeyPath, Misfits
from ...model.environments.environment import BackendSettings, Environment
from ...model.environments.image import HOST
from ...model.keys import INTERFACE, SOME_TEXT, TRUTH, key, key_made, key_or, matching, one_of, whole


class XenType(StrEnum):
    """Type of a Xen guest: paravirtual (pv); paravirtual except for memory and CPU, which use the processor's
    virtualisation (pvh); or a full machine with emulated devices, beside paravirtual drivers (hvm)."""

    PV = "pv"
    PVH = "pvh"
    HVM = "hvm"


class XenScheduler(StrEnum):
    """Schedulers of the hypervisor."""

    CREDIT = "credit"
    CREDIT2 = "credit2"


class XenDiskKind(StrEnum):
    """The storage of a guest's writable disk on dom0: a file, a whole block device, or a volume made for
    it."""

    FILE = "file"
    BLOCK = "block"
    LVM = "lvm"


@dataclass(frozen=True, kw_only=True)
class XenDisk:
    """Storage of a guest's writable disk and its swap on dom0."""

    kind: XenDiskKind = key_or(
        XenDiskKind.FILE,
        one_of(XenDiskKind),
        "of guest: writable and swap; file: raw files; block: a device for writable;"
        " lvm: volumes made for them",
        "lvm",
    )
    path: str | None = key_or(
        None,
        SOME_TEXT,
        "on dom0; file: a directory, /var/tmp if omitted; block: the device; lvm: the group",
        "vg0",
    )
    overwrite: bool = key_or(
        False, TRUTH, "block: yes, destroy what the device holds; it is not touched otherwise", True
    )


@dataclass(frozen=True, kw_only=True)
class Dom0:
    """A machine whose dom0 is reached by ssh."""

    destination: str = field(
        metadata=key(
            matching(
                r"^(?!-)(ssh://)?[A-Za-z0-9_.@:\[\]-]{1,255}$", "a destination of ssh, such as root@node7"
            ),
            "as ssh takes it; a command there must need no password",
            "root@node7",
            name="host",
        )
    )
    config: str | None = key_or(
        None, SOME_TEXT, "a file for ssh -F; your own if omitted", "/home/me/.ssh/cluster", name="ssh_config"
    )


@dataclass(frozen=True, kw_only=True)
class XenSettings(BackendSettings):
    """Settings of a guest under Xen, in addition to those of every guest.

    dom0: None if it is this machine.
    """

    section = "xen"
    title = "Xen"
    doc = "of a guest of Xen (backend xen): what only that has"
    example = {"type": "pv", "weight": 512}  # noqa: RUF012  a ClassVar of the base

    type: XenType = key_or(
        XenType.PVH,
        one_of(XenType),
        "pv: paravirtual in all; pvh: the processor's virtualisation for memory and CPU;"
        " hvm: with emulated devices for what has no drivers",
        "pv",
    )
    dom0: Dom0 | None = key_or(
        None,
        Dom0,
        "another machine, where xl runs; this one if omitted",
        {"host": "root@node7"},
        written_before="disk",
    )
    scheduler: XenScheduler | None = key_or(
        None, one_of(XenScheduler), "that the hypervisor must run; any if omitted", "credit2"
    )
    weight: int | None = key_or(
        None, whole(1, 65_535), "of its vCPUs against those of others; 256 is usual", 512
    )
    cap: int | None = key_or(
        None, whole(0, 65_535), "most CPU time, in hundredths of one CPU; 0 means no cap", 50
    )
    bridge: str | None = key_or(
        None,
        INTERFACE,
        "of dom0, for an interface of the guest; only by attachment none or loopback",
        "xenbr0",
    )
    disk: XenDisk = key_made(XenDisk, XenDisk, "where dom0 stores its disks", {"kind": "lvm", "path": "vg0"})

    @property
    def devices(self) -> tuple[str, ...]:
        """Path of the block device of the guest's disk, or of the directory of its volume group in /dev;
        empty for disks in files, or if dom0 is another machine."""
        if self.dom0 is not None or self.disk.kind is XenDiskKind.FILE or self.disk.path is None:
            return ()
        return (self.disk.path if self.disk.kind is XenDiskKind.BLOCK else f"/dev/{self.disk.path}",)


NOT_OF_GUEST = {
    "accelerator": "the hypervisor runs every guest itself",
    "machine": "write xen: type",
    "cpu": "the hypervisor gives its own model",
    "huge_pages": "the hypervisor chooses pages by itself",
    "numa": "xl divides no guest into nodes",
    "format": "its disks are raw",
    "cache": "its disks are read and written by dom0's kernel, which has no such modes",
    "aio": "its disks are read and written by dom0's kernel, which has no such modes",
    "snapshot": "its image is never written to; write writable",
    "nic": "its card is paravirtual",
    "vfio": "no device is passed through",
    "start": "no start from a checkpoint is made for it",
}


def settings_for(environment: Environment) -> XenSettings:
    own = environment.own
    return own if isinstance(own, XenSettings) else XenSettings()


def misfits(environment: Environment, given: Collection[KeyPath]) -> Misfits:
    """Yield the settings of an environment that Xen guests do not support, each with the reason."""
    guest = environment.guest
    if environment.image == HOST and (guest is None or guest.disk is None):
        what = "a guest of Xen sees nothing of the machine, so it has no image host; write image: debian-mpi"
        yield ("image",), what
    for name, limit in (("cpu", environment.limits.cpu_quota), ("cpu_shares", environment.limits.cpu_shares)):
        if limit is not None:
            yield ("limits", name), "the hypervisor holds a guest; write xen: cap, or weight"
    if isinstance(environment.own, XenSettings):
        for at, what in _own_misfits(environment, environment.own, given):
            yield (XenSettings.section, *at), what


def _own_misfits(environment: Environment, x: XenSettings, given: Collection[KeyPath]) -> Misfits:
    attachment, guest = environment.attachment, environment.guest
    if x.bridge is not None and attachment.seated:
        yield ("bridge",), f"attachment {attachment} gives it an interface already; write attachment: none"
    if x.dom0 is not None and attachment.seated:
        what = (
            f"a network built here for {attachment} does not reach a guest on {x.dom0.destination}; "
            "write attachment: none, or run nearmetal there"
        )
        yield ("dom0",), what
    describes_disk = any(path[:2] == (XenSettings.section, "disk") and len(path) > 2 for path in given)
    if describes_disk and (guest is None or (guest.writable is None and guest.swap is None)):
        yield ("disk",), "the guest has no disk of its own; write guest: {writable: 2 GiB}"
    if x.disk.kind is XenDiskKind.BLOCK and guest is not None and guest.swap is not None:
        yield ("disk", "kind"), "one device is one disk, and swap would be a second; write lvm or file"
    if x.disk.kind is not XenDiskKind.FILE and x.disk.path is None:
        what = "the device" if x.disk.kind is XenDiskKind.BLOCK else "the volume group"
        yield ("disk",), f"disk {x.disk.kind} needs its path: {what}"
    if x.disk.overwrite and x.disk.kind is not XenDiskKind.BLOCK:
        yield ("disk", "overwrite"), f"nearmetal makes a new disk {x.disk.kind}, which overwrites nothing"
    if x.disk.path is not None and (mistake := _path_mistake(x.disk.kind, x.disk.path)):
        yield ("disk", "path"), mistake


def _path_mistake(kind: XenDiskKind, path: str) -> str:
    """Return an error message if a path is invalid for a kind of disk; '' if it is valid.

    Only plain characters are allowed, because for example a comma would end the path in xl's configuration.
    """
    plain = all(c.isalnum() or c in "/_.+-" for c in path)
    if kind is XenDiskKind.LVM:
        wrong = not plain or "/" in path or path.startswith("-")
        return f'"{path[:60]}" is not the name of a volume group' if wrong else ""
    wrong = not plain or not path.startswith("/")
    return f'"{path[:60]}" is not an absolute path of letters, digits and /_.+-' if wrong else ""
