"""What is asked of a guest under Xen beyond what every guest has."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class XenType(StrEnum):
    """How much of the machine is paravirtual: all of it (pv), all but memory and CPU (pvh), as much as
    drivers know of (hvm)."""

    PV = "pv"
    PVH = "pvh"
    HVM = "hvm"


class XenScheduler(StrEnum):
    """Of the hypervisor's CPUs."""

    CREDIT = "credit"
    CREDIT2 = "credit2"


class XenDiskKind(StrEnum):
    """What a guest's writable disk is on dom0: a file, a whole block device, or a volume made for it."""

    FILE = "file"
    BLOCK = "block"
    LVM = "lvm"


@dataclass(frozen=True, kw_only=True)
class XenDisk:
    """Where a guest's writable disk and its swap lie on dom0.

    path: of FILE the directory they are made in, None: /var/tmp; of BLOCK the device; of LVM the volume
        group.
    overwrite: what the device holds may be destroyed.
    """

    kind: XenDiskKind = XenDiskKind.FILE
    path: str | None = None
    overwrite: bool = False


@dataclass(frozen=True, kw_only=True)
class Dom0:
    """A machine whose dom0 is reached by ssh.

    destination: as ssh takes it.
    config: a file for ssh -F, None: the user's own.
    """

    destination: str
    config: str | None = None


@dataclass(frozen=True, kw_only=True)
class XenSettings:
    """dom0: None where it is this machine; scheduler: that the hypervisor must have, None: whichever it has;
    weight, cap: of the guest (cap in hundredths of a CPU, 0 = none); bridge: of dom0, for an interface of the
    guest that takes no seat on a network; disk: of what it writes, where the guest has a disk of its own."""

    type: XenType = XenType.PVH
    dom0: Dom0 | None = None
    scheduler: XenScheduler | None = None
    weight: int | None = None
    cap: int | None = None
    bridge: str | None = None
    disk: XenDisk = field(default_factory=XenDisk)
