"""Settings of virtual machines, in addition to those of every environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..keys import COUNT, SECONDS, SIZE, SOME_TEXT, TEXT, TRUTH, key, matching, one_of

MIB = 1 << 20
PCI = r"^([0-9a-f]{4}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]$"


class Accelerator(StrEnum):
    """What executes a guest's instructions: the processor (KVM), or an emulator (TCG). AUTO uses KVM if a
    test guest starts with it, otherwise TCG."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"


class MachineType(StrEnum):
    """Machine types of QEMU: a PC with PCI Express (Q35), or a machine with as few devices as possible
    (MICROVM)."""

    Q35 = "q35"
    MICROVM = "microvm"


class Nic(StrEnum):
    """The network card that a guest sees. VHOST is a virtio card whose packets are moved by the host's
    kernel."""

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
    """The interface by which QEMU reads and writes a disk's file."""

    THREADS = "threads"
    NATIVE = "native"
    IO_URING = "io_uring"


class StartFrom(StrEnum):
    """How a guest starts: by a boot (COLD), or from a checkpoint of a booted guest (RESTORED)."""

    COLD = "cold"
    RESTORED = "restored"


@dataclass(frozen=True, kw_only=True)
class GuestSettings:
    """Settings of virtual machines. Sizes are in bytes, times in seconds."""

    accelerator: Accelerator = field(
        default=Accelerator.AUTO,
        metadata=key(
            one_of(Accelerator),
            "kvm: run by the processor; tcg: translated, which is emulation; auto: kvm where it"
            " really runs a guest, else tcg, labelled",
            "kvm",
        ),
    )
    machine: MachineType = field(
        default=MachineType.Q35,
        metadata=key(
            one_of(MachineType), "q35: a PC with PCI Express; microvm: as few devices as will do", "microvm"
        ),
    )
    memory: int = field(
        default=1024 * MIB, metadata=key(SIZE, "what the guest has; 1 GiB if omitted", "2 GiB", usual="1 GiB")
    )
    vcpus: int | None = field(
        default=None, metadata=key(COUNT, "as many as its instance has CPUs if omitted", 2)
    )
    cpu: str | None = field(
        default=None,
        metadata=key(
            SOME_TEXT,
            "model: host (by kvm), max, or one that QEMU knows; host by kvm, max by tcg if omitted",
            "Haswell",
        ),
    )
    huge_pages: bool = field(
        default=False, metadata=key(TRUTH, "its memory in huge pages of the machine", True)
    )
    pin: bool = field(default=True, metadata=key(TRUTH, "each vCPU to one of the instance's CPUs", False))
    numa: int = field(
        default=1, metadata=key(COUNT, "NUMA nodes that its memory and vCPUs are divided into", 2)
    )
    kernel: str | None = field(
        default=None,
        metadata=key(
            SOME_TEXT,
            "a vmlinuz of your own, or an image that has one; that of its image if omitted, else that"
            " of image debian-kernel",
            "/boot/vmlinuz-6.12.0",
            "trixie-kernel",
        ),
    )
    modules: str | None = field(
        default=None,
        metadata=key(
            SOME_TEXT,
            "of that kernel; lib/modules/<version> above it, or of the machine, if omitted",
            "/srv/modules/6.12.0",
        ),
    )
    disk: str | None = field(
        default=None,
        metadata=key(
            SOME_TEXT, "a disk of your own instead of an image; never written to", "/srv/node.qcow2"
        ),
    )
    root_device: str = field(
        default="/dev/vda", metadata=key(SOME_TEXT, "where the root of that disk is", "/dev/vda1")
    )
    format: DiskFormat = field(
        default=DiskFormat.RAW, metadata=key(one_of(DiskFormat), "of its disks", "qcow2")
    )
    cache: Cache = field(
        default=Cache.WRITEBACK, metadata=key(one_of(Cache), "of its disks, as QEMU has it", "none")
    )
    aio: Aio = field(
        default=Aio.THREADS, metadata=key(one_of(Aio), "by what QEMU reads and writes them", "io_uring")
    )
    snapshot: bool = field(
        default=False,
        metadata=key(TRUTH, "what is written to disks goes to a file of QEMU's that is thrown away", True),
    )
    writable: int | None = field(
        default=None, metadata=key(SIZE, "a disk for all that is written; in its memory if omitted", "2 GiB")
    )
    swap: int | None = field(default=None, metadata=key(SIZE, "a disk of swap; none if omitted", "512 MiB"))
    nic: Nic = field(
        default=Nic.VIRTIO,
        metadata=key(
            one_of(Nic),
            "the card that it sees: virtio, vhost (virtio moved by the machine's kernel), or an"
            " emulated e1000 or rtl8139",
            "e1000",
        ),
    )
    vfio: str | None = field(
        default=None,
        metadata=key(
            matching(PCI, "a PCI address such as 0000:01:10.0"),
            "PCI address of a device that is passed through",
            "0000:01:10.0",
        ),
    )
    start: StartFrom = field(
        default=StartFrom.COLD,
        metadata=key(
            one_of(StartFrom),
            "cold: a boot; restored: from a checkpoint of a booted guest, made once",
            "restored",
        ),
    )
    boot_timeout: float = field(
        default=60.0, metadata=key(SECONDS, "how long a start may take", "2 min", usual="60 s")
    )
    accelerated_not: str = field(
        default="",
        metadata=key(
            TEXT,
            "why not by kvm; written by nearmetal, into the study of a results directory",
            "it hangs (long mode)",
            name="no_kvm",
        ),
    )

    @property
    def kernel_image(self) -> str | None:
        """The image whose kernel the guest boots, if `kernel` names an image; else None."""
        return None if self.kernel is None or "/" in self.kernel else self.kernel

    @property
    def emulated(self) -> bool:
        """Whether the guest's instructions are emulated. All its figures are then those of an emulator."""
        return self.accelerator is Accelerator.TCG

    @property
    def label(self) -> str:
        """The label that is shown beside all figures of an emulated guest; empty for others."""
        why = f": {self.accelerated_not}" if self.accelerated_not else ""
        return f"TCG, no KVM{why}" if self.emulated else ""
