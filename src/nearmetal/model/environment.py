"""Environments: how work is wrapped, and what resources its instances have."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from .guest import GuestSettings
from .image import HOST
from .network import NetworkSettings


class Transport(StrEnum):
    """The transport of MPI messages between the ranks of one trial."""

    SHM = "shm"
    TCP = "tcp"


class TransportWish(StrEnum):
    """The transport that an environment asks for. auto: TCP between instances and over loopback, else shared
    memory."""

    AUTO = "auto"
    SHM = "shm"
    TCP = "tcp"


class Shared(StrEnum):
    """A namespace that an instance shares with the machine instead of having its own. Ranks in several
    instances need these in common to share memory."""

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
        """Whether an instance with this attachment takes a seat on a network that is built for it."""
        return self not in (Attachment.HOST, Attachment.LOOPBACK, Attachment.USER, Attachment.NONE)

    @property
    def interfaced(self) -> bool:
        """Whether an instance with this attachment has an interface of its own besides loopback."""
        return self.seated or self is Attachment.USER

    @property
    def of_guests(self) -> bool:
        """Whether only virtual machines can have this attachment."""
        return self in (Attachment.MACVTAP, Attachment.USER)

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes of this attachment, the default first."""
        return _MODES.get(self, ())

    @property
    def on_device(self) -> bool:
        """Whether it uses devices of the machine."""
        return self in (Attachment.PHYS, Attachment.SRIOV)

    @property
    def most_instances(self) -> int | None:
        """How many instances can reach each other through it; None if there is no limit."""
        return 2 if self is Attachment.VETH else None if self.seated else 1


_MODES = {
    Attachment.MACVLAN: ("bridge", "private", "vepa", "passthru"),
    Attachment.MACVTAP: ("bridge", "private", "vepa", "passthru"),
    Attachment.IPVLAN: ("l2", "l3"),
}
#: The CPU weight of a control group by default.
USUAL_SHARES = 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one instance; None means unlimited.

    cpu_quota: fraction of one CPU's time (0.5 = half a CPU).
    cpu_shares: weight against other groups that want the same CPU; the default of any group is USUAL_SHARES.
    memory: bytes.
    """

    cpu_quota: float | None = None
    memory: int | None = None
    cpu_shares: int | None = None


class StorageKind(StrEnum):
    """Kinds of storage for the directory in which a workload keeps its files."""

    OVERLAY = "overlay"
    BIND = "bind"
    TMPFS = "tmpfs"
    LOOP = "loop"
    BLOCK = "block"
    NFS = "nfs"


DISKS = "/var/tmp"
"""Directory for files that act as disks, and for the directories of a bare machine. The runtime directory is
in memory on most machines."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Storage of one instance.

    OVERLAY: a directory of its own root file system.
    BIND: a directory of its own below `path`.
    TMPFS: memory, at most `size` bytes.
    LOOP: an ext4 file system in a file of `size` bytes below `path` (None: /var/tmp).
    BLOCK: an ext4 file system made on the device `path`, one directory for each instance.
    NFS: the export 'server:/directory' in `path`, one directory for each instance.
    overwrite: whether the contents of the device may be destroyed. Without it, no device is touched.
    """

    kind: StorageKind = StorageKind.OVERLAY
    path: str | None = None
    size: int | None = None
    overwrite: bool = False

    @property
    def disk(self) -> str:
        """The directory of the machine on whose disk its files are stored.

        '' if they are in memory, in the root file system of an instance, on a device or on an export.
        """
        if self.kind not in (StorageKind.BIND, StorageKind.LOOP):
            return ""
        return self.path or DISKS


@dataclass(frozen=True, kw_only=True)
class Companion:
    """An instance of another kind beside those of an arm, with the same image. It runs a command as long as
    the trial.

    argv: command line, without a shell.
    cpus: CPUs that it may use; empty for all of the arm's.
    """

    backend: str
    argv: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BackendSettings:
    """Settings that only one backend has: a frozen dataclass in the backend's own file, with fields declared
    as keys (model.keys).

    section: key of these settings in a study file, below the environment.
    title: name of the software behind the backend, for messages and documentation.
    doc, example: documentation and example of that key.
    """

    section: ClassVar[str]
    title: ClassVar[str]
    doc: ClassVar[str]
    example: ClassVar[dict[str, object]]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """How work is wrapped.

    backend: name of an entry point.
    image: HOST, or the name of an image.
    network: settings of its attachment.
    guest: settings of its virtual machines; None for other backends.
    inside: the environment in whose virtual machines its instances run, with that environment's image and
        guest settings; None on the machine itself.
    own: settings that only its backend has; None without.
    storage: None if workloads get no directory for files.
    beside: its companion in every trial; None without one.
    placements: names of the placements that it takes part in.
    workloads: names of the workloads that it runs; empty for all.
    transport: transport between its ranks.
    share: namespaces that its instances share with the machine.
    extra_work: fraction of additional work planted in every slice (backend handicap only, 0.03 = 3 %).
    emulated: what emulates its machine, or the machine that its hypervisor runs on, such as 'Xen in TCG:
        where', once that is known; empty if they are real.
    """

    name: str
    backend: str
    image: str = HOST
    attachment: Attachment = Attachment.HOST
    network: NetworkSettings = field(default_factory=NetworkSettings)
    limits: Limits = field(default_factory=Limits)
    guest: GuestSettings | None = None
    inside: str | None = None
    own: BackendSettings | None = None
    storage: Storage | None = None
    beside: Companion | None = None
    placements: tuple[str, ...]
    workloads: tuple[str, ...] = ()
    transport: TransportWish = TransportWish.AUTO
    share: tuple[Shared, ...] = ()
    extra_work: float = 0.0
    emulated: str = ""

    @property
    def emulation(self) -> str:
        """What emulates it or its guests, shown beside every figure of theirs; empty if nothing does."""
        return self.emulated or ("" if self.guest is None else self.guest.label)

    def takes(self, workload: str) -> bool:
        """Return whether it runs the workload with this name."""
        return not self.workloads or workload in self.workloads
