"""Environments: the backend that workloads run in, and the settings of its instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from ...lifecycle import Method
from ...units import Dimension
from ..keys import (
    CPU,
    NAME,
    SIZE,
    SOME_TEXT,
    TEXT,
    TRUTH,
    ListOf,
    key,
    key_made,
    key_or,
    one_of,
    quantity,
    whole,
)
from .guest import GuestSettings
from .image import HOST
from .network import NetworkSettings

#: Replaced by the path of its storage in the arguments of a user's own program.
STORAGE = "{storage}"
#: The environment variable with the same path.
STORAGE_VARIABLE = "NEARMETAL_STORAGE"


class Transport(StrEnum):
    """The transport of MPI messages between the ranks of one trial."""

    SHM = "shm"
    TCP = "tcp"


class TransportWish(StrEnum):
    """The transport that an environment requests. AUTO means TCP between instances and over loopback,
    otherwise shared memory."""

    AUTO = "auto"
    SHM = "shm"
    TCP = "tcp"


class Shared(StrEnum):
    """A namespace that an instance can share with the machine. Ranks in different instances can use shared
    memory only if the instances have both namespaces in common."""

    IPC = "ipc"
    PID = "pid"


class Attachment(StrEnum):
    """How an instance is connected to the network."""

    HOST = "host"
    LOOPBACK = "loopback"
    VETH = "veth"
    VETH_BRIDGE = "veth-bridge"
    VETH_ROUTED = "veth-routed"
    MACVLAN = "macvlan"
    MACVTAP = "macvtap"
    IPVLAN = "ipvlan"
    VXLAN = "vxlan"
    OVS = "ovs"
    PHYS = "phys"
    SRIOV = "sriov"
    USER = "user"
    NONE = "none"

    @property
    def seated(self) -> bool:
        """Whether nearmetal builds a network for an instance with this attachment, and gives it an address
        there."""
        return self not in (Attachment.HOST, Attachment.LOOPBACK, Attachment.USER, Attachment.NONE)

    @property
    def interfaced(self) -> bool:
        """Whether an instance with this attachment has its own network interface in addition to loopback."""
        return self.seated or self is Attachment.USER

    @property
    def of_guests(self) -> bool:
        """Whether only virtual machines can have this attachment."""
        return self in (Attachment.MACVTAP, Attachment.USER)

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes of this attachment, the default first; empty for an attachment without modes."""
        return _MODES.get(self, ())

    @property
    def on_device(self) -> bool:
        """Whether this attachment uses network devices of the machine."""
        return self in (Attachment.PHYS, Attachment.SRIOV)

    def across_nodes(self, mode: str | None) -> bool:
        """Return whether emulated nodes can connect containers by this attachment.

        mode: mode of macvlan; None for the default, bridge, in which links on one device reach each other.
        """
        if self is Attachment.MACVLAN:
            return mode in (None, "bridge")
        return self in (Attachment.VETH_BRIDGE, Attachment.OVS)

    @property
    def most_instances(self) -> int | None:
        """Largest number of instances that can reach each other with this attachment; None if unlimited."""
        return 2 if self is Attachment.VETH else None if self.seated else 1


_MODES = {
    Attachment.MACVLAN: ("bridge", "private", "vepa", "passthru"),
    Attachment.MACVTAP: ("bridge", "private", "vepa", "passthru"),
    Attachment.IPVLAN: ("l2", "l3"),
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one instance; None if there is no limit. The memory is in bytes."""

    cpu_quota: float | None = key_or(
        None,
        quantity(Dimension.SHARE, 0, 65_536, open_ends=True),
        "CPU time, as a share of one CPU: 150 % is one CPU and a half",
        "80 %",
        name="cpu",
    )
    cpu_shares: int | None = key_or(
        None,
        whole(2, 262_144),
        "weight relative to other groups on the same CPU; the default of every group is 1024",
        256,
    )
    memory: int | None = key_or(None, SIZE, "memory; the instance cannot swap", "2 GiB")


class StorageKind(StrEnum):
    """The kind of storage behind the directory in which the workloads of an instance write files."""

    OVERLAY = "overlay"
    BIND = "bind"
    TMPFS = "tmpfs"
    LOOP = "loop"
    BLOCK = "block"
    NFS = "nfs"


DISKS = "/var/tmp"
"""Directory for disk files and for the storage of the bare machine. The runtime directory is not used for
them, since it is in memory on most machines."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Storage of one instance, by kind:

    OVERLAY: a directory in the instance's own root file system.
    BIND: a directory for the instance below `path`.
    TMPFS: memory, at most `size` bytes.
    LOOP: an ext4 file system in a file of `size` bytes below `path`; /var/tmp if `path` is None.
    BLOCK: an ext4 file system that is created on the device `path`, with one directory for each instance.
    NFS: the export 'server:/directory' in `path`, with one directory for each instance.

    overwrite: whether the content of the device may be destroyed. Otherwise the device is never written to.
    """

    kind: StorageKind = key_or(
        StorageKind.OVERLAY,
        one_of(StorageKind),
        "overlay: a directory in its own root file system; bind: a directory of the machine;"
        " tmpfs: memory; loop: an ext4 in a file; block: an ext4 on a device; nfs: an export",
        "loop",
        always=True,
    )
    path: str | None = key_or(
        None,
        SOME_TEXT,
        "bind: a directory below which each instance gets its own; loop: directory of its file,"
        " /var/tmp if omitted; block: the device; nfs: server:/directory",
        "/dev/vdb",
    )
    size: int | None = key_or(None, SIZE, "size of a loop file; largest size of a tmpfs", "256 MiB")
    overwrite: bool = key_or(
        False,
        TRUTH,
        "block: whether the content of the device may be destroyed; otherwise it is not written to",
        True,
    )

    @property
    def disk(self) -> str:
        """Directory of the machine whose disk holds the files.

        Empty if the files are in memory, in the root file system of an instance, on a device or on an export.
        """
        if self.kind not in (StorageKind.BIND, StorageKind.LOOP):
            return ""
        return self.path or DISKS


@dataclass(frozen=True, kw_only=True)
class Companion:
    """A command that runs for as long as the trial runs, in an instance of its own with the image of the arm,
    or in the first instance of the arm."""

    backend: str | None = key_or(
        None,
        NAME,
        "backend of an instance of its own; if omitted, it runs in the first instance of the environment",
        "namespaces",
    )
    argv: tuple[str, ...] = field(
        metadata=key(
            ListOf(TEXT, least=1),
            "the command, one item for each word, without a shell; it runs for as long as the trial",
            ["vmstat", "1"],
            name="command",
        )
    )
    limits: Limits = key_made(Limits, Limits, "its limits; none if omitted", {"cpu": "10 %"})
    cpus: tuple[int, ...] = key_or(
        (), ListOf(CPU), "CPUs that it may use; those of the ranks if omitted", [1]
    )


@dataclass(frozen=True, kw_only=True)
class BackendSettings:
    """Base class of the settings that only one backend has. The backend's package defines a frozen dataclass,
    and declares its fields as keys (model.keys).

    section: key of these settings in a study file, below the environment.
    title: name of the software behind the backend, for messages and documentation.
    doc: description of the section, for documentation and editors.
    example: example of the value of the section.
    earlier: by the path of a key in older study files, below the environment: the key of these settings that
        replaces it.
    """

    section: ClassVar[str]
    title: ClassVar[str]
    doc: ClassVar[str]
    example: ClassVar[dict[str, object]]
    earlier: ClassVar[Mapping[tuple[str, str], str]] = {}

    @property
    def devices(self) -> tuple[str, ...]:
        """Paths of the devices that this machine must have for an instance to start."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The backend that workloads run in, with its settings. An environment inside another one uses the image
    and the guest settings of the outer one."""

    name: str
    backend: str = field(metadata=key(NAME, "how the work is run: the backend", "native", "namespaces"))
    image: str = key_or(
        HOST,
        NAME,
        "root filesystem inside: host (this machine's own), or an image by name",
        "host",
        "debian-mpi",
        always=True,
    )
    attachment: Attachment = key_or(
        Attachment.HOST,
        one_of(Attachment),
        "how an instance is connected to the network; several instances need one that is built for them,"
        " such as veth-bridge",
        "veth-bridge",
        always=True,
    )
    network: NetworkSettings = key_made(
        NetworkSettings,
        NetworkSettings,
        "settings of a network that is built for the attachment; read back from the kernel and recorded",
        {"rto_min": "2 ms", "mtu": 9000},
    )
    limits: Limits = key_made(
        Limits, Limits, "limits of each instance; none if omitted", {"cpu": "80 %", "memory": "2 GiB"}
    )
    guest: GuestSettings | None = key_or(
        None,
        GuestSettings,
        "hardware, disk and kernel of virtual machines (backend {virtual})",
        {"memory": "2 GiB", "nic": "e1000"},
    )
    inside: str | None = key_or(
        None,
        NAME,
        "an environment of virtual machines: the instances, containers of backend {stands_inside}, run in"
        " one guest of that environment, on the guest's kernel and in its image",
        "vm",
    )
    own: BackendSettings | None = key_or(None, BackendSettings, "settings that only its backend has")
    storage: Storage | None = key_or(
        None,
        Storage,
        f"a directory for files of its own, which workloads get as {STORAGE} and {STORAGE_VARIABLE}",
        {"kind": "tmpfs", "size": "256 MiB"},
    )
    beside: Companion | None = key_or(
        None,
        Companion,
        "a command in every trial, in another instance or beside the work; mode plain only",
        {"backend": "namespaces", "command": ["vmstat", "1"]},
        written_before="storage",
    )
    placements: tuple[str, ...] = key_or(
        (),
        ListOf(NAME, least=1),
        "placements on which it runs; if omitted, all that its attachment supports",
        ["1x2", "2x1"],
        always=True,
    )
    workloads: tuple[str, ...] = key_or(
        (),
        ListOf(NAME),
        "workloads that it runs; all if omitted. The first baseline runs all",
        ["cg", "latency"],
    )
    transport: TransportWish = key_or(
        TransportWish.AUTO,
        one_of(TransportWish),
        "what carries messages between its ranks; auto: tcp between instances and over loopback,"
        " else shm (shared memory)",
        "tcp",
    )
    share: tuple[Shared, ...] = key_or(
        (),
        ListOf(one_of(Shared)),
        "namespaces that its instances share with the machine: both are needed for transport shm"
        " between instances",
        ["ipc", "pid"],
    )
    method: Method | None = key_or(
        None,
        one_of(Method),
        "subjects checkpoint and migrate: how its instances are written to files or moved by workloads"
        " without a method of their own",
        "postcopy",
    )
    movable: bool = key_or(
        False,
        TRUTH,
        "prepare its instances for being written to files or moved, without doing so, to measure what this"
        " costs: their writable root is kept outside of them, and the hypervisor of guests is set up for a"
        " migration",
        True,
    )
    extra_work: float = key_or(
        0.0,
        quantity(Dimension.SHARE, 0, 10),
        "work planted in every time share, as a fraction; backend {plants_work} only",
        "3 %",
    )
    emulated: str = key_or(
        "",
        TEXT,
        "emulator of its machine, or the machine in which its hypervisor runs; written by nearmetal, into"
        " the study of a results directory",
        "Xen in TCG: QEMU Standard PC",
    )

    @property
    def emulation(self) -> str:
        """The emulator of the environment or of its guests; '' if nothing is emulated. Reports show it next
        to all their figures."""
        return self.emulated or ("" if self.guest is None else self.guest.label)

    @property
    def family(self) -> str:
        """Its name without its method: the same for all environments that differ only in their method."""
        return self.name if self.method is None else self.name.removesuffix(f"-{self.method}")

    def takes(self, workload: str) -> bool:
        """Return whether the environment runs the workload with this name."""
        return not self.workloads or workload in self.workloads
