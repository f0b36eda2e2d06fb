"""The types of a virtual machine's keys. Imports pydantic: imported by the sections alone."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from ...model.guest import Accelerator, Aio, Cache, DiskFormat, MachineType, Nic, StartFrom
from ...model.libvirt import LIBVIRT_URI
from ..fields import matching, one_of, words

PCI = r"^([0-9a-f]{4}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]$"

AcceleratorWord = Annotated[Accelerator, BeforeValidator(one_of(Accelerator)), words(Accelerator)]
MachineWord = Annotated[MachineType, BeforeValidator(one_of(MachineType)), words(MachineType)]
NicWord = Annotated[Nic, BeforeValidator(one_of(Nic)), words(Nic)]
FormatWord = Annotated[DiskFormat, BeforeValidator(one_of(DiskFormat)), words(DiskFormat)]
CacheWord = Annotated[Cache, BeforeValidator(one_of(Cache)), words(Cache)]
AioWord = Annotated[Aio, BeforeValidator(one_of(Aio)), words(Aio)]
StartWord = Annotated[StartFrom, BeforeValidator(one_of(StartFrom)), words(StartFrom)]
PciAddress = Annotated[str, matching(PCI, "a PCI address such as 0000:01:10.0")]
LibvirtUri = Annotated[
    str, matching(LIBVIRT_URI, "the URI of a libvirt of this machine such as qemu:///system")
]
