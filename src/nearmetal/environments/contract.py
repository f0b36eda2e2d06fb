"""The interface of backends: check, then start an instance as a context manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..host import Host, Process
from ..host.guest_line import Clocks
from ..host.processes.ranks import RankHolds
from ..lifecycle import CopyRound, Costs, Method, PageSample, PhaseTimes
from ..model.capabilities import Capabilities
from ..model.environments.environment import BackendSettings
from ..model.environments.network import Seat
from ..model.record import JsonValue
from ..model.study import Environment


@dataclass(frozen=True, kw_only=True)
class Available:
    """The backend can start instances on this machine.

    version: version of the software that it uses.
    notes: differences on this machine (for example 'without root: affinity instead of cpuset').
    """

    version: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """The backend cannot start instances on this machine.

    remedy: a command or an instruction that makes it work.
    """

    reason: str
    remedy: str


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
class Criu:
    """A CRIU that works here.

    argv: its command line.
    unable: why methods cannot be used on this machine, and what helps.
    """

    argv: tuple[str, ...]
    version: str
    unable: Mapping[Method, Unavailable] = field(default_factory=dict)


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
    cpus: CPUs that it may use.
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
    beside: whether it is restored while its source exists, which has the same label. What it creates on the
        machine is then named differently, and its memory is fetched (criu.fetching_pages()).
    """

    label: str
    hostname: str
    environment: Environment
    cpus: tuple[int, ...]
    seat: Seat | None
    binds: tuple[Path, ...]
    scratch: Path
    tree: Path = Path("/")
    user_namespace: str | None = None
    base: GuestBase | None = None
    first_process: bool = True
    groups: Mapping[str, Path] = field(default_factory=dict)
    layer: Path | None = None
    calls: Path | None = None
    beside: bool = False

    @property
    def place(self) -> str:
        """The name of its control groups and directories."""
        return f"{self.label}-beside" if self.beside else self.label


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
class Guest(Protocol):
    """Additional interface of instances with their own kernel.

    A guest does not see the files, FIFOs and processes of the machine, and has its own CPUs and clocks. Its
    CPUs are numbered from 0, in the order of the CPUs in the request.
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
class Accelerated(Protocol):
    """Extra interface of backends whose guests may be executed by KVM or by an emulator.

    uses_kvm: whether its guests may be.
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
        Instances of a backend with virtual machines also implement Guest.
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
        """Make the control groups until exit; empty if none can be made.

        request: the request of any of those instances.
        """


@dataclass(frozen=True, kw_only=True)
class Dump:
    """How an instance is written to files.

    images: an existing directory for the files.
    server: port, on the loopback interface, of the page server that receives the memory; with `ready`, of the
        page server that the dump itself becomes. None if the memory is written to files too.
    ready: descriptor on which the dump reports that its files are complete. The memory then stays at the
        source until the destination has fetched it. None if all memory is written.
    previous: directory with the files of the previous round, beside `images`; None in the first round.
    round: whether this is a round of pre-copy: only memory is written, and the instance goes on.
    tracked: whether the kernel records which pages are written to from now on.
    """

    images: Path
    server: int | None = None
    ready: int | None = None
    previous: Path | None = None
    round: bool = False
    tracked: bool = False


@runtime_checkable
class Checkpoints(Protocol):
    """Extra interface of backends whose instances can be written to files and restored from them.

    Only commands that run without a caller (command_alone) are part of a checkpoint.

    checkpoints_by: the methods, all of CRIU.
    """

    checkpoints_by: tuple[Method, ...]

    def refuses_checkpoint(self, host: Host, environment: Environment) -> Unavailable | None:
        """Return why no instance of an environment can be checkpointed; None if it can."""

    def command_alone(self, instance: Instance, argv: Sequence[str]) -> list[str]:
        """Return a command line that starts argv inside the instance and ends as soon as it runs.

        The command must write to files that the instance sees.
        """

    def dump_command(
        self, tools: Tools, criu: Criu, request: InstanceRequest, instance: Instance, dump: Dump
    ) -> list[str]:
        """Return the command line that writes a running instance to files, and thereby ends it.

        If the command fails, the instance goes on, if need be after thaw().

        request: the request by which it was started, with a layer.
        Raises RunError if the instance has ended.
        """

    def thaw(self, host: Host, tools: Tools, request: InstanceRequest, instance: Instance) -> None:
        """Let an instance go on whose dump was interrupted. Harmless if it runs."""

    def restored(
        self,
        host: Host,
        tools: Tools,
        criu: Criu,
        request: InstanceRequest,
        images: Path,
    ) -> AbstractContextManager[Instance]:
        """Restore an instance until exit. Nothing may run of the one that was checkpointed.

        request: as for dump_command(); its layer holds what the instance had written to its root.
        Raises RunError.
        """


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
    """Extra interface of a backend whose settings may have to be adapted to the machine."""

    def settings_here(self, host: Host) -> BackendSettings | None:
        """Return the settings for instances on this machine; None for the defaults."""


@runtime_checkable
class Enclosed(Protocol):
    """Extra interface of backends whose instances may run inside a guest. These instances also implement
    Guest."""

    def start_inside(
        self, guest: Instance, tools: Tools, request: InstanceRequest, *, alone: bool
    ) -> AbstractContextManager[Instance]:
        """Start an instance in a running guest of any backend.

        alone: whether nothing else runs in the guest, so that the machine's counters of the guest belong to
            this instance.
        Raises UnavailableError or RunError.
        """


@dataclass(frozen=True, kw_only=True)
class MoveRequest:
    """How an instance is moved, and where to.

    destination: its place there. The instance keeps its host name, address and label; those of the
        destination are labels and places of what carries it there.
    bandwidth: most bytes per second; None for no limit.
    downtime_limit: seconds of standstill that pre-copy may spend on the rest of the memory.
    time_limit: seconds after which the move is given up, and the source continues.
    """

    method: Method
    destination: InstanceRequest
    bandwidth: float | None = None
    downtime_limit: float = 0.3
    time_limit: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A finished move. Times are in seconds.

    instance: the instance as it runs now, with the label of the one that was moved.
    total: from the request until the instance ran at the destination and the source was not needed any more.
    downtime: standstill as the mechanism reports it; None if it reports none.
    stopped: from the stop at the source to the resumption at the destination.
    began, ended: of the move, by CLOCK_MONOTONIC of the machine.
    sent: bytes sent.
    rounds: times that the memory was gone through.
    copied: rounds that were seen while the instance still ran; none of methods without rounds.
    """

    instance: Instance
    phases: PhaseTimes
    total: float
    downtime: float | None
    stopped: float
    began: float
    ended: float
    sent: int
    rounds: int
    copied: tuple[CopyRound, ...] = ()


@runtime_checkable
class Migrates(Protocol):
    """Extra interface of backends whose running instances can be moved to another place.

    moves_by: the methods, without AUTO.
    """

    moves_by: tuple[Method, ...]

    def unmovable(self, environment: Environment, method: Method) -> Unavailable | None:
        """Return why instances of an environment cannot be moved by a method; None if they can."""

    def migrate(
        self, host: Host, tools: Tools, instance: Instance, request: MoveRequest
    ) -> AbstractContextManager[Moved]:
        """Move an instance that start() or migrate() of this backend returned. On exit, the moved instance
        ends.

        If the move fails, the instance continues at its source, or the error says that it is lost. There are
        never two of it. The context of the instance that was moved must stay open.
        Raises UnavailableError or RunError; lifecycle.NotConvergedError if pre-copy took too long.
        """


@runtime_checkable
class Predictable(Protocol):
    """Extra interface of backends whose moves can be predicted, so that `method: auto` can choose.

    costs: of a move between two places of one machine, with the bandwidth.
    """

    costs: Costs

    def sample_memory(self, instance: Instance) -> PageSample:
        """Sample the memory of an instance that start() or migrate() of this backend returned, for at most
        two seconds.

        Raises UnavailableError or RunError.
        """
