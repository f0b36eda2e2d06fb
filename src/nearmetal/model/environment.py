"""Environments: how work is wrapped, and what its instances are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from .guest import GuestSettings
from .image import HOST
from .network import NetworkSettings


class Transport(StrEnum):
    """What carries MPI messages between the ranks of one trial."""

    SHM = "shm"
    TCP = "tcp"


class TransportWish(StrEnum):
    """What an environment asks to carry them; auto: TCP between instances and over loopback, else shared
    memory."""

    AUTO = "auto"
    SHM = "shm"
    TCP = "tcp"


class Shared(StrEnum):
    """A namespace that an instance does not get of its own, but shares with the machine: those that ranks in
    several instances need in common to share memory."""

    IPC = "ipc"
    PID = "pid"


class Attachment(StrEnum):
    """How an instance meets the network."""

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
        """Whether an instance attached so takes a seat on a network that is built for it."""
        return self not in (Attachment.HOST, Attachment.LOOPBACK, Attachment.USER, Attachment.NONE)

    @property
    def interfaced(self) -> bool:
        """Whether an instance attached so has an interface beside its loopback that is its own."""
        return self.seated or self is Attachment.USER

    @property
    def of_guests(self) -> bool:
        """Whether only virtual machines can be attached so."""
        return self in (Attachment.MACVTAP, Attachment.USER)

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that it has, the usual one first."""
        return _MODES.get(self, ())

    @property
    def on_device(self) -> bool:
        """Whether it takes devices of the machine."""
        return self in (Attachment.PHYS, Attachment.SRIOV)

    @property
    def most_instances(self) -> int | None:
        """How many instances can reach each other by it; None: no bound of its own."""
        return 2 if self is Attachment.VETH else None if self.seated else 1


_MODES = {
    Attachment.MACVLAN: ("bridge", "private", "vepa", "passthru"),
    Attachment.MACVTAP: ("bridge", "private", "vepa", "passthru"),
    Attachment.IPVLAN: ("l2", "l3"),
}
#: The weight of a control group that nobody has given another.
USUAL_SHARES = 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one instance; None is unlimited.

    cpu_quota: share of one CPU's time (0.5 = half a CPU).
    cpu_shares: its weight against others that want the same CPU, USUAL_SHARES being that of any group.
    memory: bytes.
    """

    cpu_quota: float | None = None
    memory: int | None = None
    cpu_shares: int | None = None


class StorageKind(StrEnum):
    """What the directory stands on that an instance gives its workload for files."""

    OVERLAY = "overlay"
    BIND = "bind"
    TMPFS = "tmpfs"
    LOOP = "loop"
    BLOCK = "block"
    NFS = "nfs"


DISKS = "/var/tmp"
"""Where files that stand for disks are made, and the directories of a bare machine: the runtime directory is
memory on most machines."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Storage of one instance. OVERLAY: a directory of its own root file system; BIND: a directory of its own
    below `path`; TMPFS: memory, at most `size` bytes; LOOP: an ext4 in a file of `size` bytes below `path`
    (None: /var/tmp); BLOCK: an ext4 made on the device `path`, one directory for each instance; NFS: the
    export 'server:/directory' in `path`, one directory for each instance. overwrite: what the device holds
    may be destroyed, without which none is touched."""

    kind: StorageKind = StorageKind.OVERLAY
    path: str | None = None
    size: int | None = None
    overwrite: bool = False

    @property
    def disk(self) -> str:
        """Directory of the machine whose disk its files end on; '' where that is memory, the root file system
        of an instance, a device or an export."""
        if self.kind not in (StorageKind.BIND, StorageKind.LOOP):
            return ""
        return self.path or DISKS


@dataclass(frozen=True, kw_only=True)
class Companion:
    """An instance of another kind beside those of an arm, with the same image, in which a command runs as
    long as the trial does.

    argv: tokens, no shell.
    cpus: those that it may use, empty for all of the arm's.
    """

    backend: str
    argv: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BackendSettings:
    """Settings that one backend has beside what all have: a frozen dataclass in the backend's own file, whose
    fields are declared as keys (model.keys).

    section: their key in a study file, below the environment.
    title: what stands behind the backend, for messages and documentation.
    doc, example: of that key.
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
    inside: the environment in whose virtual machines its instances stand, with that one's image and guest
        settings; None on the machine itself.
    own: settings that only its backend has; None without.
    storage: None where no workload is given a directory on one.
    beside: its companion in every trial; None without one.
    placements: names of the placements that it takes part in.
    workloads: names of those that it runs; empty for all.
    transport: between its ranks.
    share: namespaces of the machine that its instances keep.
    extra_work: share of additional work planted in every slice (backend handicap only, 0.03 = 3 %).
    emulated: what emulates its machine or the one that its hypervisor runs on, such as 'Xen in TCG: where',
        once that is known; empty where they are real.
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
        """By what it or its guests are emulated, which stands beside every figure of theirs; empty where they
        are not."""
        return self.emulated or ("" if self.guest is None else self.guest.label)

    def takes(self, workload: str) -> bool:
        """Whether it runs the workload of that name."""
        return not self.workloads or workload in self.workloads
