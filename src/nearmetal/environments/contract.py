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
from ..lifecycle import Method, PhaseTimes
from ..model.capabilities import Capabilities
from ..model.environments.environment import BackendSettings
from ..model.environments.network import Seat
from ..model.record import JsonValue
from ..model.study import Environment


@dataclass(frozen=True, kw_only=True)
class Available:
    """The backend started an instance here.

    version: version of the software that it uses.
    notes: what is different here (for example 'without root: affinity instead of cpuset').
    """

    version: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """The backend cannot start an instance here.

    remedy: a command or an instruction that makes it work.
    """

    reason: str
    remedy: str


FIRST_COMMAND = "first_command"
"""Name of a phase: seconds that the first command took in a virtual machine that was ready."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The directory of the compiled helpers (nm-box, nm-init, nm-rank, nm-micro). It has the same path inside
    every instance."""

    directory: Path

    def __truediv__(self, name: str) -> str:
        return f"{self.directory}/{name}"


@dataclass(frozen=True, kw_only=True)
class GuestBase:
    """What a virtual machine boots from.

    kernel: a bzImage.
    initramfs: contains nm-guest, modules of that kernel and the tools.
    root: a file with the file system of the image; None if the machine's own root is shared.
    disk: whether root is a disk image of the user's own.
    cache: a directory for files that may be kept between runs.
    """

    kernel: Path
    initramfs: Path
    root: Path | None
    cache: Path
    disk: bool = False


@dataclass(frozen=True, kw_only=True)
class InstanceRequest:
    """What a backend has to start.

    label: 'nearmetal-<run>-<slot>', on everything that the instance creates on the machine.
    hostname: host name inside the instance.
    cpus: CPUs that it may use.
    seat: its place on a network; None = the machine's own network.
    binds: directories that are seen inside at the same path, writable.
    scratch: an empty directory of its own.
    tree: root of its image, never written to; '/' for image host.
    user_namespace: path of the user namespace that all instances share (/proc/<pid>/ns/user) without root,
        else None.
    base: what a virtual machine is started from.
    first_process: whether a first process is required even if the environment can do without one, as on bare
        metal. It is required when starts are measured.
    groups: control groups that exist as long as the run (Accounted); empty if the instance makes its own.
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


class Instance(Protocol):
    """A running instance.

    pid: process ID, on the host, of its first process; if it has none, that of nearmetal.
    phases: seconds by step of the start. They include 'first_instruction', from the request to the first
        instruction inside, and for virtual machines FIRST_COMMAND, which comes after it. Empty without a
        first process.
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
        """The instance's line, without newline, in the map that 'nm-box agent MAP' reads
        (kernels/box/agent.c)."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return a command line that, run on the host, runs argv inside the instance and its cgroups."""


@runtime_checkable
class Guest(Protocol):
    """What an instance with its own kernel offers in addition.

    It does not see the files, FIFOs and processes of the machine, and has its own CPUs and clocks. Its CPUs
    are numbered from 0, in the order of the CPUs in the request.
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
        """Return how its kernel has set one of its interfaces, and the route through it.

        Keys: mtu, queue_length, congestion_control, rto_min (seconds; None if no route sets it), tso, gso,
            gro, driver.
        Raises RunError.
        """

    def rank_holdings(self, mark: str) -> dict[int, RankHolds]:
        """Return host.ranks.rank_holdings, read inside the guest.

        Raises RunError.
        """

    def trouble(self) -> str:
        """Return why it no longer runs; empty while it runs."""

    def console(self) -> str:
        """Return the console output of its kernel so far."""

    def clocks(self) -> Clocks:
        """Return how far its clocks are ahead of the machine's now.

        Raises RunError.
        """

    @property
    def threads(self) -> tuple[int, ...]:
        """Thread IDs, on the machine, of its CPUs; empty if they are not known."""


@runtime_checkable
class Accelerated(Protocol):
    """Extra interface of backends whose guests may be executed by KVM or by an emulator.

    uses_kvm: whether they may.
    """

    uses_kvm: bool


@runtime_checkable
class UserNetworked(Protocol):
    """Extra interface of backends whose guests can have the attachment `user`."""

    def user_network(self, host: Host) -> Unavailable | None:
        """Return why no guest can have one on this machine; None if a guest can."""


class Backend(Protocol):
    """One way of wrapping work. One file per backend, found through the entry-point group
    'nearmetal.environments'.

    capabilities: what study files may request from it, and what its instances share with the machine.
        Instances of a backend with virtual machines also implement Guest.
    """

    name: str
    capabilities: Capabilities

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        """Check whether it works by starting an instance, within a second or two."""

    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> AbstractContextManager[Instance]:
        """Start an instance. On exit, all its processes are ended, and all that it made is removed.

        The clean-up of every step is registered before the step.
        Raises UnavailableError or RunError.
        """


@runtime_checkable
class Seated(Protocol):
    """Extra interface of backends that must prepare a seat before an instance can take it.

    The preparation is made once for a whole run, so that it is not part of a start. start() must also work
    without it.
    """

    def seated(self, host: Host, tools: Tools, request: InstanceRequest) -> AbstractContextManager[object]:
        """Prepare a seat until exit.

        request: has the seat, and the host name of the instances that will take it; its label is arbitrary.
        """


@runtime_checkable
class Accounted(Protocol):
    """Extra interface of backends whose instances use control groups only for accounting.

    Such groups can exist for a whole run, with one instance after the other in them.
    """

    def accounts(self, request: InstanceRequest) -> AbstractContextManager[Mapping[str, Path]]:
        """Make the control groups until exit; empty if none can be made.

        request: the request of any of those instances.
        """


@runtime_checkable
class Nested(Protocol):
    """Extra interface of backends whose guests may run under a nested hypervisor."""

    def nested(self, host: Host, tools: Tools, environment: Environment) -> str:
        """Return what the hypervisor of an environment runs in, 'Xen in TCG: where'.

        Empty if it runs directly on a machine, or if this is not known.
        """


@runtime_checkable
class Elsewhere(Protocol):
    """Extra interface of backends whose instances may run on another machine."""

    def check_environment(
        self, host: Host, tools: Tools, environment: Environment
    ) -> Available | Unavailable | None:
        """Return check() for the machine that an environment names; None if it names none, so that check()
        applies."""


@runtime_checkable
class Tuned(Protocol):
    """Extra interface of a backend whose own settings may have to suit the machine."""

    def settings_here(self, host: Host) -> BackendSettings | None:
        """Return the settings with which it starts instances here; None for the defaults."""


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
        Raises UnavailableError or RunError.
        """
