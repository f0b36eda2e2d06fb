"""The interface of backends: check, then start an instance as a context manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..errors import UnavailableError
from ..host import Host, Process
from ..host.guest_line import Clocks
from ..host.processes.ranks import RankHolds
from ..model.capabilities import Capabilities
from ..model.environments.environment import BackendSettings
from ..model.environments.network import NetworkSettings, Seat
from ..model.record import JsonValue
from ..model.study import Environment


@dataclass(frozen=True, kw_only=True)
class Available:
    """The backend can start instances on this machine.

    notes: differences on this machine (for example 'without root: affinity instead of cpuset').
    of_moves: further notes, which concern only instances that are moved or checkpointed.
    loses_writes: the note of of_moves that a guest may crash after a move that copied its memory while it
        ran; empty if there is no such risk.
    """

    version: str
    notes: tuple[str, ...] = ()
    of_moves: tuple[str, ...] = ()
    loses_writes: str = ""


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """The backend cannot start instances on this machine.

    remedy: a command or an instruction that makes it work.
    """

    reason: str
    remedy: str

    def error(self, what: str = "") -> UnavailableError:
        """Return an error with this reason and this remedy.

        what: text in front of the reason in the error's message.
        """
        return UnavailableError(f"{what}{self.reason}", remedy=self.remedy)


FIRST_COMMAND = "first_command"
"""Key of Instance.phases: seconds that the first command in a virtual machine took, once it was ready."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The directory of the compiled helpers (nm-box, nm-init, nm-rank, nm-micro). It has the same path inside
    every instance."""

    directory: Path

    def __truediv__(self, name: str) -> str:
        return f"{self.directory}/{name}"


@dataclass(frozen=True, kw_only=True)
class GuestBase:
    """The files that a virtual machine boots from.

    kernel: a bzImage.
    initramfs: contains nm-guest, modules of that kernel and the tools.
    root: a file with the file system of the image; None if the machine's own root is shared.
    disk: whether root is a disk image provided by the user.
    cache: a directory for files that may be reused by later runs.
    """

    kernel: Path
    initramfs: Path
    root: Path | None
    cache: Path
    disk: bool = False


@dataclass(frozen=True)
class Bind:
    """A directory of the machine that is mounted in an instance.

    source: the directory. target: its path inside, which hides what an image, or the machine, has there.
    """

    source: Path
    target: Path
    writable: bool = True


@dataclass(frozen=True, kw_only=True)
class InstanceRequest:
    """The instance that a backend is to start or to restore.

    label: 'nearmetal-<run>-<slot>'; marks everything that the instance creates on the machine.
    hostname: host name inside the instance.
    cpus: CPUs of the machine that its processes may use; empty for no restriction.
    seat: its namespace, address and interface on a network that nearmetal has built; None if it joins none.
    binds: directories that are mounted at the same path inside, writable except the directory of the tools.
    views: further directories, writable, that are mounted at another path inside; see all_binds(). On bare
        metal, commands see them there. Virtual machines get copies, as of binds.
    scratch: an empty directory for the files of this instance alone.
    tree: root directory of its image, never written to; '/' for image host.
    user_namespace: path of the user namespace that all instances share if nearmetal runs without root
        (/proc/<pid>/ns/user), else None.
    base: files that a virtual machine boots from; None for other backends.
    first_process: whether a first process is required even if the environment can do without one, as on bare
        metal. It is required when starts are measured.
    groups: control groups that exist for the whole run (Accounted); empty if the instance makes its own.
    layer: directory that keeps the writable layer of its root after its end, for a checkpoint; None if the
        layer is removed with the instance.
    calls: directory, at the same path inside, through which commands inside get their environment, working
        directory and signals (kernels/box/call.c); created if it is missing. None for a directory in scratch.
    beside: whether the instance is restored before the instance that was checkpointed is removed. Both have
        the same label, so the control groups and directories of the restored one get another name (place).
    lazy: whether the instance is restored while the checkpointed processes still exist, and its memory is
        fetched from them (criu_pages.fetching_pages()).
    connections: whether its processes may have TCP connections, which a checkpoint must contain.
    arrival: command line that connects the seat of a restored instance to its network, run as soon as its
        TCP connections are restored; empty if the seat is connected already.
    """

    label: str
    hostname: str
    environment: Environment
    cpus: tuple[int, ...] = ()
    seat: Seat | None = None
    binds: tuple[Path, ...] = ()
    views: tuple[Bind, ...] = ()
    scratch: Path
    tree: Path = Path("/")
    user_namespace: str | None = None
    base: GuestBase | None = None
    first_process: bool = True
    groups: Mapping[str, Path] = field(default_factory=dict)
    layer: Path | None = None
    calls: Path | None = None
    beside: bool = False
    lazy: bool = False
    connections: bool = False
    arrival: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The name of the instance's control groups and directories."""
        return f"{self.label}-beside" if self.beside else self.label

    def refused(self, what: str, remedy: str = "") -> UnavailableError:
        """Return an error whose message is the environment's name and a reason why no instance is started.

        what: the reason.
        """
        return UnavailableError(f"environment {self.environment.name}: {what}", remedy=remedy)


class Instance(Protocol):
    """A running instance.

    pid: process ID, on the host, of its first process, or of nearmetal if it has none.
    phases: seconds by step of the start. They include 'first_instruction', from the request to the first
        instruction inside, and for virtual machines FIRST_COMMAND, which follows it. Empty without a first
        process.
    cgroups: directories of its control groups: one per controller in version 1, {'unified': directory} in
        version 2. Empty for an instance without control groups.
    """

    @property
    def label(self) -> str: ...

    @property
    def hostname(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def phases(self) -> Mapping[str, float]: ...

    @property
    def cgroups(self) -> Mapping[str, Path]: ...

    @property
    def agent_line(self) -> str:
        """The line of the instance, without newline, in the file MAP of `nm-box agent MAP`, by which mpirun
        starts its daemons in instances (kernels/box/agent.c)."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return a command line that, run on the host, runs argv inside the instance and its cgroups."""


@runtime_checkable
class RemoteInstance(Protocol):
    """Additional interface of instances with their own kernel: virtual machines (guests), and machines that
    are reached by ssh.

    A remote instance does not see the files, FIFOs and processes of this machine, and has its own CPUs and
    clocks. The CPUs of a guest are numbered from 0, in the order of the CPUs in the request.
    """

    def copy_in(self, paths: Sequence[Path]) -> None:
        """Copy files, links, FIFOs and whole directories to the same paths inside.

        Raises RunError.
        """

    def copy_out(self, paths: Sequence[Path]) -> None:
        """Copy the files at and below these paths to the same paths on the machine. Missing ones are skipped.

        Raises RunError.
        """

    def carry(self, fifo: Path, *, inward: bool) -> Process:
        """Relay data written to a FIFO to the FIFO at the same path on the other side.

        The relay runs until the process is ended or, inward, until the last writer has closed the FIFO.
        """

    def on_host(self, nanoseconds: int) -> int:
        """Convert a time of its CLOCK_MONOTONIC to a time of the machine's CLOCK_MONOTONIC, both in ns."""

    def network(self, interface: str) -> Mapping[str, JsonValue]:
        """Return the settings of one of its interfaces, and of the route through it, as reported by its
        kernel.

        Keys: mtu, queue_length, congestion_control, rto_min (seconds; None if no route sets it), tso, gso,
            gro, driver.

        Raises RunError.
        """

    def rank_holdings(self, mark: str) -> dict[int, RankHolds]:
        """Return the TCP connections and memory mappings of each rank inside the guest, by rank number.

        mark: 'NAME=value' that is in the environment of every rank of the job.
        Raises RunError.
        """

    def trouble(self) -> str:
        """Return why the guest no longer runs; empty while it runs."""

    def console(self) -> str:
        """Return the console output of its kernel so far."""

    def clocks(self) -> Clocks:
        """Return the current offsets of its clocks from the machine's.

        Raises RunError.
        """

    @property
    def threads(self) -> tuple[int, ...]:
        """Thread IDs, on the machine, of its CPUs; empty if they are not known."""


@runtime_checkable
class EnclosedInstance(Instance, Protocol):
    """Additional interface of instances that run inside a guest (Enclosed)."""

    @property
    def guest(self) -> Instance:
        """The guest."""

    @property
    def inner_agent_line(self) -> str:
        """The agent_line of the instance for an agent that runs in the guest."""


@runtime_checkable
class HoldsNetworks(Protocol):
    """Extra interface of virtual machines inside which nearmetal connects instances by veth and a bridge."""

    def joined(self, ends: Mapping[str, str], network: NetworkSettings) -> AbstractContextManager[None]:
        """Make network namespaces inside the guest that are connected by a bridge, until exit. The bridge is
        in the first of them.

        ends: name of each namespace in /run/netns -> its interface: 'INTERFACE,ADDRESS/PREFIX[,MTU]'.
        network: further settings of these interfaces, but not of the bridge.
        Raises RunError, for example if the kernel has no bridge or a namespace of this name exists. After an
        error the new namespaces are removed; those that existed before stay.
        """


@runtime_checkable
class Accelerated(Protocol):
    """Extra interface of backends whose guests may be executed by KVM or by an emulator.

    uses_kvm: whether its guests may be executed by KVM.
    """

    uses_kvm: bool


@runtime_checkable
class UserNetworked(Protocol):
    """Extra interface of backends whose guests can have the attachment `user`."""

    def user_network(self, host: Host) -> Unavailable | None:
        """Return why guests on this machine cannot have the attachment `user`; None if they can."""


class Backend(Protocol):
    """One way to run instances, such as Podman or QEMU. It is found through the entry-point group
    'nearmetal.environments'.

    capabilities: what study files may request from it, and what its instances share with the machine.
        Instances of a backend with virtual machines also implement RemoteInstance.
    """

    name: str
    capabilities: Capabilities

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        """Check whether the backend works by starting an instance, within a second or two."""

    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> AbstractContextManager[Instance]:
        """Start an instance. On exit, all its processes are killed, and everything that the start created on
        the machine is removed.

        An implementation registers the clean-up of every step before the step, so that a failed start leaves
        nothing behind.

        Raises UnavailableError or RunError.
        """


@runtime_checkable
class Seated(Protocol):
    """Extra interface of backends that must prepare a network namespace before an instance can join it.

    A run prepares each namespace once, so that this time is not part of the measured starts. start() must
    also work without this preparation.
    """

    def seated(self, host: Host, tools: Tools, request: InstanceRequest) -> AbstractContextManager[object]:
        """Prepare the network namespace of a seat until exit.

        request: contains the seat, and the host name of the instances that will use it; its label is
            arbitrary.
        """


@runtime_checkable
class Accounted(Protocol):
    """Extra interface of backends whose instances use control groups only to count resources.

    Such groups can exist for a whole run, with one instance after the other in them.
    """

    def accounts(self, request: InstanceRequest) -> AbstractContextManager[Mapping[str, Path]]:
        """Make the control groups of an instance until exit. Yields their directories by controller, as
        InstanceRequest.groups; empty if no group can be made."""


@runtime_checkable
class Immovable(Protocol):
    """Extra interface of backends whose instances can be neither checkpointed nor moved.

    immovable: the reason, and what helps instead.
    """

    immovable: Unavailable


@runtime_checkable
class Nested(Protocol):
    """Extra interface of backends whose guests may run under a nested hypervisor."""

    def nested(self, host: Host, tools: Tools, environment: Environment) -> str:
        """Return the virtual machine in which the hypervisor of an environment runs itself, such as
        'Xen in TCG: QEMU Standard PC'.

        Returns '' if the hypervisor runs directly on hardware, or if this is not known.
        """


@runtime_checkable
class RemoteBackend(Protocol):
    """Extra interface of backends whose instances may run on another machine."""

    def check_environment(
        self, host: Host, tools: Tools, environment: Environment
    ) -> Available | Unavailable | None:
        """Check the backend on the machine that an environment names.

        Returns None if the environment names no machine; check() applies then.
        """


@runtime_checkable
class Tuned(Protocol):
    """Extra interface of backends whose settings may have to be adapted to the machine."""

    def settings_here(self, host: Host) -> BackendSettings | None:
        """Return the settings for instances on this machine; None for the defaults."""


@runtime_checkable
class QuickCheck(Protocol):
    """Extra interface of backends that can often find from files alone that they do not work here."""

    def quick_check(self, host: Host) -> str:
        """Return why no instance can be started, if files of the machine show it; else ''.

        Starts no process. An instance may fail to start although '' is returned.
        """


@runtime_checkable
class Enclosed(Protocol):
    """Extra interface of backends whose instances may run inside a guest.

    These instances implement EnclosedInstance and RemoteInstance.
    """

    def start_inside(
        self, guest: Instance, tools: Tools, request: InstanceRequest, *, alone: bool
    ) -> AbstractContextManager[EnclosedInstance]:
        """Start an instance in a running guest of any backend.

        alone: whether nothing else runs in the guest. The counters that the machine has of the guest are then
            counters of this instance.
        Raises UnavailableError or RunError.
        """
