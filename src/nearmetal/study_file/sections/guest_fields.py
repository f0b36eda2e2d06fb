"""The types of a virtual machine's keys. Imports pydantic: imported by the sections alone."""

from __future__ import annotations

from typing import Annotated

from ...model.guest import LIBVIRT_URI, Accelerator, Aio, Cache, DiskFormat, MachineType, Nic, StartFrom
from ...model.keys import matching, one_of
from ..fields import Taken

PCI = r"^([0-9a-f]{4}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]$"

AcceleratorWord = Annotated[Accelerator, Taken(one_of(Accelerator))]
MachineWord = Annotated[MachineType, Taken(one_of(MachineType))]
NicWord = Annotated[Nic, Taken(one_of(Nic))]
FormatWord = Annotated[DiskFormat, Taken(one_of(DiskFormat))]
CacheWord = Annotated[Cache, Taken(one_of(Cache))]
AioWord = Annotated[Aio, Taken(one_of(Aio))]
StartWord = Annotated[StartFrom, Taken(one_of(StartFrom))]
PciAddress = Annotated[str, Taken(matching(PCI, "a PCI address such as 0000:01:10.0"))]
LibvirtUri = Annotated[
    str, Taken(matching(LIBVIRT_URI, "the URI of a libvirt of this machine such as qemu:///system"))
]
