"""Settings of virtual machines, beside those of every environment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MIB = 1 << 20
LIBVIRT_URI = r"^qemu(\+unix)?:///(system|session)(\?socket=/[^?#&;\s]+)?$"
"""URIs of daemons on this machine only: any other transport would run a command, or leave the machine.
libvirt also separates parameters at ";"."""


class Accelerator(StrEnum):
    """What executes a guest's instructions: the processor (KVM), or a translator (TCG), which is emulation.

    auto: KVM if it can actually run a guest.
    """

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"


class MachineType(StrEnum):
    """QEMU's machine types: a PC with PCI Express, or a minimal machine."""

    Q35 = "q35"
    MICROVM = "microvm"


class Nic(StrEnum):
    """The network card that a guest sees. vhost: virtio with frames moved by the host's kernel."""

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
    """How QEMU reads and writes a disk's file."""

    THREADS = "threads"
    NATIVE = "native"
    IO_URING = "io_uring"


class StartFrom(StrEnum):
    """How a guest starts. Cold: it boots. Restored: it continues from a checkpoint of a booted guest, made
    before."""

    COLD = "cold"
    RESTORED = "restored"


@dataclass(frozen=True, kw_only=True)
class GuestSettings:
    """Settings of virtual machines.

    memory: bytes.
    vcpus: None for as many as the instance has CPUs.
    cpu: host, max or a model that QEMU knows; None for the default.
    pin: whether each vCPU is pinned to one of the instance's CPUs.
    numa: number of NUMA nodes that memory and vCPUs are divided into.
    kernel: a path, or the name of an image that contains a kernel; None for the kernel of the guest's own
        image, or else of the image debian-kernel.
    modules: directory lib/modules/<version> that belongs to the kernel.
    disk: a disk image of the user's own, instead of the environment's image.
    root_device: device with the root file system.
    format, cache, aio: settings of all disks.
    snapshot: whether QEMU discards what is written to disks.
    writable, swap: bytes of additional disks of its own. Without them, the guest keeps what it writes in
        memory, and has no swap.
    vfio: PCI address of a device that is passed through.
    uri: URI of the libvirt daemon that starts it; None for one that answers here, or one that is started for
        it.
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
        """The image whose kernel it boots; None if no other image is named."""
        return None if self.kernel is None or "/" in self.kernel else self.kernel

    @property
    def emulated(self) -> bool:
        """Whether its instructions are translated. Every figure of it then describes an emulator."""
        return self.accelerator is Accelerator.TCG

    @property
    def label(self) -> str:
        """Text shown beside every figure of an emulated guest; empty for others."""
        why = f": {self.accelerated_not}" if self.accelerated_not else ""
        return f"TCG, no KVM{why}" if self.emulated else ""
