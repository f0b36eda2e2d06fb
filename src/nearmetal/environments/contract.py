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
    of_moves: those that concern only instances that are moved or checkpointed.
    loses_writes: that of them which says that a guest may fail after its memory was copied while it ran;
        empty if it does not.
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
        """Return this as an error.

        what: beginning of its message.
        """
        return UnavailableError(f"{what}{self.reason}", remedy=self.remedy)


FIRST_COMMAND = "first_command"
"""Name of a phase: seconds that the first command took in a virtual machine after it was ready."""


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


@dataclass(frozen=True, kw_only=True)
class InstanceRequest:
    """The instance that a backend is to start.

    label: 'nearmetal-<run>-<slot>'; marks everything that the instance creates on the machine.
    hostname: host name inside the instance.
    seat: its namespace, address and interface on a network; None = the machine's own network.
    binds: directories that are mounted at the same path inside, writable.
    scratch: an empty directory of its own.
    tree: root of its image, never written to; '/' for image host.
    user_namespace: path of the user namespace that all instances share if run without root
        (/proc/<pid>/ns/user), else None.
    base: files that a virtual machine boots from.
    first_process: whether a first process is required even if the environment can do without one, as on bare
        metal. It is required when starts are measured.
    groups: control groups that exist for the whole run (Accounted); empty if the instance makes its own.
    layer: a directory in which the writable layer of its root outlives the instance; None for an instance
        that is not going to be checkpointed, whose layer ends with it.
    calls: a directory through which its commands are called, at the same path inside, made if it is missing;
        None for one in scratch.
    beside: whether it is restored while something of its source exists, which has the same label. What it
        creates on the machine is then named differently.
    lazy: whether it is restored while processes of its source exist, and its memory is fetched
        (criu.fetching_pages()).
    connections: whether its processes may have TCP connections, which its checkpoint has to hold.
    arrival: command line that connects the seat of a restored instance to its network, as soon as the
        instance has its connections again; empty if the seat is connected.
    """

    label: str
    hostname: str
    environment: Environment
    cpus: tuple[int, ...] = ()
    seat: Seat | None = None
    binds: tuple[Path, ...] = ()
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
        """The name of its control groups and directories."""
        return f"{self.label}-beside" if self.beside else self.label

    def refused(self, what: str, remedy: str = "") -> UnavailableError:
        """Return the error that an instance of this environment cannot be started."""
        return UnavailableError(f"environment {self.environment.name}: {what}", remedy=remedy)


class Instance(Protocol):
    """A running instance.

    pid: process ID, on the host, of its first process, or of nearmetal if it has none.
    phases: seconds by step of the start. They include 'first_instruction', from the request to the first
        instruction inside, and for virtual machines FIRST_COMMAND, which follows it. Empty without a first
        process.
    cgroups: directory by controller of version 1, or {'unified': directory}; empty if there is none.
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
        """The instance's line, without newline, for the map file of 'nm-box agent MAP'
        (kernels/box/agent.c)."""

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
        """Convert a reading of its CLOCK_MONOTONIC to that of the machine."""

    def network(self, interface: str) -> Mapping[str, JsonValue]:
        """Return the settings of one of its interfaces, and of the route through it, as reported by its
        kernel.

        Keys: mtu, queue_length, congestion_control, rto_min (seconds; None if no route sets it), tso, gso,
            gro, driver.

        Raises RunError.
        """

    def rank_holdings(self, mark: str) -> dict[int, RankHolds]:
        """Return host.ranks.rank_holdings, read inside the guest.

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
class HoldsNetworks(Protocol):
    """Extra interface of virtual machines inside which nearmetal joins instances by veth and a bridge."""

    def joined(self, ends: Mapping[str, str], network: NetworkSettings) -> AbstractContextManager[None]:
        """Make network namespaces inside until exit. The first one has the bridge.

        ends: for each namespace, by its name in /run/netns, 'INTERFACE,ADDRESS/PREFIX[,MTU]'.
        network: further settings of the interfaces, except that of the bridge.
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
    """One kind of instance. One file per backend, found through the entry-point group
    'nearmetal.environments'.

    capabilities: what study files may request from it, and what its instances share with the machine.
        Instances of a backend with virtual machines also implement RemoteInstance.
    """

    name: str
    capabilities: Capabilities

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        """Check whether the backend works by starting an instance, within a second or two."""

    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> AbstractContextManager[Instance]:
        """Start an instance. On exit, all its processes are killed, and everything that it created is
        removed.

        The clean-up of every step is registered before the step.

        Raises UnavailableError or RunError.
        """


@runtime_checkable
class Seated(Protocol):
    """Extra interface of backends that must prepare a network namespace before an instance can join it.

    The preparation is made once for a whole run, so that it is not part of a start. start() must also work
    without it.
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
        """Make the control groups until exit; empty if none can be made."""


@runtime_checkable
class Stays(Protocol):
    """Extra interface of backends whose instances can be neither checkpointed nor moved.

    stays: the reason, and what helps instead.
    """

    stays: Unavailable


@runtime_checkable
class Nested(Protocol):
    """Extra interface of backends whose guests may run under a nested hypervisor."""

    def nested(self, host: Host, tools: Tools, environment: Environment) -> str:
        """Return what the hypervisor of an environment itself runs in, such as 'Xen in TCG: where'.

        Returns '' if it runs directly on a machine, or if this is not known.
        """


@runtime_checkable
class Elsewhere(Protocol):
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
class Foreseen(Protocol):
    """Extra interface of backends that can often find from files alone that they do not work here."""

    def foreseen(self, host: Host) -> str:
        """Return why no instance can be started, as far as files show it; else ''. Starts no process."""


@runtime_checkable
class Enclosed(Protocol):
    """Extra interface of backends whose instances may run inside a guest. These instances also implement
    RemoteInstance."""

    def start_inside(
        self, guest: Instance, tools: Tools, request: InstanceRequest, *, alone: bool
    ) -> AbstractContextManager[Instance]:
        """Start an instance in a running guest of any backend.

        alone: whether nothing else runs in the guest, so that the machine's counters of the guest belong to
            this instance.
        Raises UnavailableError or RunError.
        """
