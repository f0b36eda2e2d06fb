"""The section of a guest of Xen."""

from __future__ import annotations

from pydantic import Field

from ...model.xen import XenDisk, XenSettings
from ..fields import Interface, SomeText, Truth
from .base import Section
from .xen_fields import Cap, Destination, DiskKindWord, SchedulerWord, TypeWord, Weight


class Dom0Section(Section):
    host: Destination = Field(
        description="as ssh takes it; a command there must need no password", examples=["root@node7"]
    )
    ssh_config: SomeText | None = Field(
        None, description="a file for ssh -F; your own if omitted", examples=["/home/me/.ssh/cluster"]
    )


class XenDiskSection(Section):
    kind: DiskKindWord = Field(
        XenDisk.kind,
        description="of guest: writable and swap; file: raw files; block: a device for writable;"
        " lvm: volumes made for them",
        examples=["lvm"],
    )
    path: SomeText | None = Field(
        XenDisk.path,
        description="on dom0; file: a directory, /var/tmp if omitted; block: the device; lvm: the group",
        examples=["vg0"],
    )
    overwrite: Truth = Field(
        XenDisk.overwrite,
        description="block: yes, destroy what the device holds; it is not touched otherwise",
        examples=[True],
    )


class XenSection(Section):
    type: TypeWord = Field(
        XenSettings.type,
        description="pv: paravirtual in all; pvh: the processor's virtualisation for memory and CPU;"
        " hvm: with emulated devices for what has no drivers",
        examples=["pv"],
    )
    dom0: Dom0Section | None = Field(
        None,
        description="another machine, where xl runs; this one if omitted",
        examples=[{"host": "root@node7"}],
    )
    scheduler: SchedulerWord | None = Field(
        None, description="that the hypervisor must run; any if omitted", examples=["credit2"]
    )
    weight: Weight | None = Field(
        None, description="of its vCPUs against those of others; 256 is usual", examples=[512]
    )
    cap: Cap | None = Field(
        None, description="most CPU time, in hundredths of one CPU; 0 is no cap", examples=[50]
    )
    bridge: Interface | None = Field(
        None,
        description="of dom0, for an interface of the guest; only by attachment none or loopback",
        examples=["xenbr0"],
    )
    disk: XenDiskSection = Field(
        default_factory=lambda: XenDiskSection.model_validate({}),
        description="on what of dom0 its disks stand",
        examples=[{"kind": "lvm", "path": "vg0"}],
    )
