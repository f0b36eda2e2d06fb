"""What a virtual machine is made of, beside what every environment has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MIB = 1 << 20
LIBVIRT_URI = r"^qemu(\+unix)?:///(system|session)(\?socket=/[^?#&;\s]+)?$"
"""Of this machine alone: any other transport would run a command, or leave it. libvirt parts parameters at
";" too."""


class Accelerator(StrEnum):
    """What executes a guest's instructions: the processor (KVM), or a translator (TCG), which is emulation;
    auto: KVM where it really runs a guest."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"


class MachineType(StrEnum):
    """QEMU's machines: a PC with PCI Express, or one of as few devices as will do."""

    Q35 = "q35"
    MICROVM = "microvm"


class Nic(StrEnum):
    """The network card that a guest sees; vhost: virtio, its frames moved by the host's kernel."""

    VIRTIO = "virtio"
    VHOST = "vhost"
    E1000 = "e1000"
    RTL8139 = "rtl8139"


class DiskFormat(StrEnum):
    RAW = "raw"
    QCOW2 = "qcow2"


class Cache(StrEnum):
    """QEMU's cache modes of a disk."""

    NONE = "none"
    WRITEBACK = "writeback"
    WRITETHROUGH = "writethrough"
    DIRECTSYNC = "directsync"
    UNSAFE = "unsafe"


class Aio(StrEnum):
    """By what QEMU reads and writes a disk's file."""

    THREADS = "threads"
    NATIVE = "native"
    IO_URING = "io_uring"


class StartFrom(StrEnum):
    """Cold: a boot; restored: from a checkpoint of a booted guest, made before."""

    COLD = "cold"
    RESTORED = "restored"


@dataclass(frozen=True, kw_only=True)
class GuestSettings:
    """Settings of virtual machines.

    memory: bytes.
    vcpus: None for as many as the instance has CPUs.
    cpu: host, max or a model that QEMU knows; None for the usual one.
    pin: whether each vCPU is pinned to one of the instance's CPUs.
    numa: number of nodes that memory and vCPUs are divided into.
    kernel: a path, or the name of an image that has a kernel; None for that of its own image, or else of the
        image debian-kernel.
    modules: directory lib/modules/<version> that belongs to the kernel.
    disk: an image of the user's own, instead of the environment's.
    root_device: device with the root file system.
    format, cache, aio: of all disks.
    snapshot: whether QEMU throws away what is written to disks.
    writable, swap: bytes of disks of its own; without them it keeps what it writes in memory, and has no
        swap.
    vfio: PCI address of a device that is passed through.
    uri: of the libvirt daemon that starts it; None for one that answers here, or one that is started for it.
    boot_timeout: seconds.
    accelerated_not: why KVM does not run it, once that is known.
    """

    accelerator: Accelerator = Accelerator.AUTO
    machine: MachineType = MachineType.Q35
    memory: int = 1024 * MIB
    vcpus: int | None = None
    cpu: str | None = None
    huge_pages: bool = False
    pin: bool = True
    numa: int = 1
    kernel: str | None = None
    modules: str | None = None
    disk: str | None = None
    root_device: str = "/dev/vda"
    format: DiskFormat = DiskFormat.RAW
    cache: Cache = Cache.WRITEBACK
    aio: Aio = Aio.THREADS
    snapshot: bool = False
    writable: int | None = None
    swap: int | None = None
    nic: Nic = Nic.VIRTIO
    vfio: str | None = None
    start: StartFrom = StartFrom.COLD
    uri: str | None = None
    boot_timeout: float = 60.0
    accelerated_not: str = ""

    @property
    def kernel_image(self) -> str | None:
        """The image whose kernel it boots, where another one is named."""
        return None if self.kernel is None or "/" in self.kernel else self.kernel

    @property
    def emulated(self) -> bool:
        """Whether its instructions are translated: every figure of it is of an emulator."""
        return self.accelerator is Accelerator.TCG

    @property
    def label(self) -> str:
        """What stands beside every figure of an emulated guest; empty for others."""
        why = f": {self.accelerated_not}" if self.accelerated_not else ""
        return f"TCG, no KVM{why}" if self.emulated else ""
