"""Settings of virtual machines, in addition to those of every environment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..keys import COUNT, SECONDS, SIZE, SOME_TEXT, TEXT, TRUTH, key_or, matching, one_of

MIB = 1 << 20
PCI = r"^([0-9a-f]{4}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]$"


class Accelerator(StrEnum):
    """The way to execute a guest's instructions: by the processor (KVM), or by an emulator (TCG). AUTO uses
    KVM if a test guest starts with it, otherwise TCG."""

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

    accelerator: Accelerator = key_or(
        Accelerator.AUTO,
        one_of(Accelerator),
        "kvm: the processor runs the guest; tcg: an emulator translates its instructions; auto: kvm if a"
        " test guest starts with it, else tcg, with a label in reports",
        "kvm",
    )
    machine: MachineType = key_or(
        MachineType.Q35,
        one_of(MachineType),
        "q35: a PC with PCI Express; microvm: a machine with as few devices as possible",
        "microvm",
    )
    memory: int = key_or(1024 * MIB, SIZE, "memory of the guest", "2 GiB")
    vcpus: int | None = key_or(None, COUNT, "virtual CPUs; one for each CPU of its instance if omitted", 2)
    cpu: str | None = key_or(
        None,
        SOME_TEXT,
        "CPU model: host (kvm only), max, or a model of QEMU; if omitted, host with kvm, and max with tcg",
        "Haswell",
    )
    huge_pages: bool = key_or(False, TRUTH, "back its memory by huge pages of the machine", True)
    pin: bool = key_or(True, TRUTH, "pin each vCPU to one of the instance's CPUs", False)
    numa: int = key_or(1, COUNT, "NUMA nodes among which its memory and vCPUs are divided", 2)
    kernel: str | None = key_or(
        None,
        SOME_TEXT,
        "path of a kernel (vmlinuz), or name of an image with a kernel; if omitted, that of its own image,"
        " or else of image debian-kernel",
        "/boot/vmlinuz-6.12.0",
        "trixie-kernel",
    )
    modules: str | None = key_or(
        None,
        SOME_TEXT,
        "directory with the modules of that kernel; if omitted, lib/modules/<version> above it, or the"
        " machine's",
        "/srv/modules/6.12.0",
    )
    disk: str | None = key_or(
        None,
        SOME_TEXT,
        "file of a disk of your own instead of an image; it is never written to",
        "/srv/node.qcow2",
    )
    root_device: str = key_or(
        "/dev/vda", SOME_TEXT, "device of the root file system on that disk", "/dev/vda1"
    )
    format: DiskFormat = key_or(DiskFormat.RAW, one_of(DiskFormat), "format of its disks", "qcow2")
    cache: Cache = key_or(Cache.WRITEBACK, one_of(Cache), "cache mode of its disks, in QEMU's words", "none")
    aio: Aio = key_or(
        Aio.THREADS, one_of(Aio), "interface by which QEMU reads and writes its disks", "io_uring"
    )
    snapshot: bool = key_or(
        False, TRUTH, "write changes of its disks to a temporary file, which is removed at the end", True
    )
    writable: int | None = key_or(
        None, SIZE, "disk for everything that the guest writes; kept in its memory if omitted", "2 GiB"
    )
    swap: int | None = key_or(None, SIZE, "swap disk; none if omitted", "512 MiB")
    nic: Nic = key_or(
        Nic.VIRTIO,
        one_of(Nic),
        "network card that it sees: virtio, vhost (virtio moved by the machine's kernel), or an"
        " emulated e1000 or rtl8139",
        "e1000",
    )
    vfio: str | None = key_or(
        None,
        matching(PCI, "a PCI address such as 0000:01:10.0"),
        "PCI address of a device that is passed through",
        "0000:01:10.0",
    )
    start: StartFrom = key_or(
        StartFrom.COLD,
        one_of(StartFrom),
        "cold: a boot; restored: from a checkpoint of a booted guest, made once",
        "restored",
    )
    boot_timeout: float = key_or(60.0, SECONDS, "how long a start may take", "2 min")
    accelerated_not: str = key_or(
        "",
        TEXT,
        "why KVM is not used; written by nearmetal, into the study of a results directory",
        "it hangs (long mode)",
        name="no_kvm",
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
        return f"{EMULATOR}, no KVM{why}" if self.emulated else ""


EMULATOR = "TCG"
"""The emulator's name in labels of guests and environments."""


def labels_emulator(label: str) -> bool:
    """Return whether an environment with this label (Environment.emulation) is emulated. If not, its
    hypervisor runs in a virtual machine. The name of the machine, after the colon, does not count."""
    return EMULATOR in label.partition(":")[0].replace(",", "").split()
