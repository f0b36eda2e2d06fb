"""The section of a virtual machine."""

from __future__ import annotations

from pydantic import Field

from ...model.guest import GuestSettings
from ..fields import Bytes, Number, Seconds, SomeText, Text, Truth
from .base import Section
from .guest_fields import (
    AcceleratorWord,
    AioWord,
    CacheWord,
    FormatWord,
    LibvirtUri,
    MachineWord,
    NicWord,
    PciAddress,
    StartWord,
)


class GuestSection(Section):
    accelerator: AcceleratorWord = Field(
        GuestSettings.accelerator,
        description="kvm: run by the processor; tcg: translated, which is emulation; auto: kvm where it"
        " really runs a guest, else tcg, labelled",
        examples=["kvm"],
    )
    machine: MachineWord = Field(
        GuestSettings.machine,
        description="q35: a PC with PCI Express; microvm: as few devices as will do",
        examples=["microvm"],
    )
    memory: Bytes = Field(
        GuestSettings.memory,
        description="what the guest has; 1 GiB if omitted",
        examples=["2 GiB"],
        json_schema_extra={"default": "1 GiB"},
    )
    vcpus: Number | None = Field(
        None, description="as many as its instance has CPUs if omitted", examples=[2]
    )
    cpu: SomeText | None = Field(
        None,
        description="model: host (by kvm), max, or one that QEMU knows; host by kvm, max by tcg if omitted",
        examples=["Haswell"],
    )
    huge_pages: Truth = Field(
        GuestSettings.huge_pages, description="its memory in huge pages of the machine", examples=[True]
    )
    pin: Truth = Field(
        GuestSettings.pin, description="each vCPU to one of the instance's CPUs", examples=[False]
    )
    numa: Number = Field(
        GuestSettings.numa, description="NUMA nodes that its memory and vCPUs are divided into", examples=[2]
    )
    kernel: SomeText | None = Field(
        None,
        description="a vmlinuz of your own, or an image that has one; that of its image if omitted, else"
        " that of image debian-kernel",
        examples=["/boot/vmlinuz-6.12.0", "trixie-kernel"],
    )
    modules: SomeText | None = Field(
        None,
        description="of that kernel; lib/modules/<version> above it, or of the machine, if omitted",
        examples=["/srv/modules/6.12.0"],
    )
    disk: SomeText | None = Field(
        None,
        description="a disk of your own instead of an image; never written to",
        examples=["/srv/node.qcow2"],
    )
    root_device: SomeText = Field(
        GuestSettings.root_device, description="where the root of that disk is", examples=["/dev/vda1"]
    )
    format: FormatWord = Field(GuestSettings.format, description="of its disks", examples=["qcow2"])
    cache: CacheWord = Field(
        GuestSettings.cache, description="of its disks, as QEMU has it", examples=["none"]
    )
    aio: AioWord = Field(
        GuestSettings.aio, description="by what QEMU reads and writes them", examples=["io_uring"]
    )
    snapshot: Truth = Field(
        GuestSettings.snapshot,
        description="what is written to disks goes to a file of QEMU's that is thrown away",
        examples=[True],
    )
    writable: Bytes | None = Field(
        None,
        description="a disk for all that is written; in its memory if omitted",
        examples=["2 GiB"],
    )
    swap: Bytes | None = Field(None, description="a disk of swap; none if omitted", examples=["512 MiB"])
    nic: NicWord = Field(
        GuestSettings.nic,
        description="the card that it sees: virtio, vhost (virtio moved by the machine's kernel), or an"
        " emulated e1000 or rtl8139",
        examples=["e1000"],
    )
    vfio: PciAddress | None = Field(
        None, description="PCI address of a device that is passed through", examples=["0000:01:10.0"]
    )
    start: StartWord = Field(
        GuestSettings.start,
        description="cold: a boot; restored: from a checkpoint of a booted guest, made once",
        examples=["restored"],
    )
    uri: LibvirtUri | None = Field(
        None,
        description="backend libvirt: its daemon; if omitted qemu:///system for root and qemu:///session for"
        " others, where it answers, else one of nearmetal's own",
        examples=["qemu:///system"],
    )
    boot_timeout: Seconds = Field(
        GuestSettings.boot_timeout,
        description="how long a start may take",
        examples=["2 min"],
        json_schema_extra={"default": "60 s"},
    )
    no_kvm: Text = Field(
        "",
        description="why not by kvm; written by nearmetal, into the study of a results directory",
        examples=["it hangs (long mode)"],
    )
