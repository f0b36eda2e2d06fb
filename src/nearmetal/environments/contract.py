"""The contract that every backend keeps: check, then start an instance as a context manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..host import Host, Process
from ..host.guest_line import Clocks
from ..host.processes.ranks import RankHolds
from ..model.capabilities import Capabilities
from ..model.environments.environment import BackendSettings
from ..model.environments.network import Seat
from ..model.record import JsonValue
from ..model.study import Environment


@dataclass(frozen=True, kw_only=True)
class Available:
    """The backend started an instance here.

    version: of what it uses.
    notes: what is different here (for example 'without root: affinity instead of cpuset').
    """

    version: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """The backend cannot start an instance here; remedy: the line that mends it."""

    reason: str
    remedy: str


FIRST_COMMAND = "first_command"
"""A phase: seconds that the first command took in a virtual machine that was ready."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Where the compiled helpers are (nm-box, nm-init, nm-rank, nm-micro): one directory, same path inside
    every instance."""

    directory: Path

    def __truediv__(self, name: str) -> str:
        return f"{self.directory}/{name}"


@dataclass(frozen=True, kw_only=True)
class GuestBase:
    """What a virtual machine starts from.

    kernel: a bzImage.
    initramfs: with nm-guest, modules of that kernel and the tools.
    root: a file with the file system of the image, None for the machine's own root, shared.
    disk: it is a disk of the user's own, whose root is there.
    cache: a directory for what may be kept between runs.
    """

    kernel: Path
    initramfs: Path
    root: Path | None
    cache: Path
    disk: bool = False


@dataclass(frozen=True, kw_only=True)
class InstanceRequest:
    """What a backend is asked to start.

    label: 'nearmetal-<run>-<slot>', on everything that the instance leaves on the machine.
    hostname: inside the instance.
    cpus: CPUs that it may use.
    seat: its place on a network; None = the machine's own network.
    binds: directories that are seen inside at the same path, writable.
    scratch: an empty directory of its own.
    tree: root of its image, never written to; '/' for image host.
    user_namespace: path of the user namespace that all share (/proc/<pid>/ns/user) without root, else None.
    base: what a virtual machine is started from.
    first_process: whether a first process is needed where the environment can do without, as on bare metal;
        it is where starting is measured.
    groups: control groups that stand as long as the run (Accounted); empty where the instance makes its own.
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

    pid: process id, on the host, of its first process; of this process where it has none.
    phases: seconds by step of the start. Among them are 'first_instruction', from the request to the first
        instruction inside, and for virtual machines FIRST_COMMAND, which comes after it; empty without a
        first process.
    cgroups: directory by controller of version 1, or {'unified': directory}; empty where there is none.
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
        """Its line, without newline, in the map that 'nm-box agent MAP' reads (kernels/box/agent.c)."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """Tokens that, run on the host, run argv inside the instance (and inside its cgroups)."""


@runtime_checkable
class Guest(Protocol):
    """What an instance offers besides when it has a kernel of its own: it sees no file, no FIFO and no
    process of the machine, and has CPUs and clocks of its own. Its CPUs are numbered from 0, in the order of
    those that the request gave it."""

    def copy_in(self, paths: Sequence[Path]) -> None:
        """Make these, and all below directories, stand at the same paths inside: files, links, FIFOs. Raises
        RunError."""

    def copy_out(self, paths: Sequence[Path]) -> None:
        """Write the files among these paths, and below them, to the same paths on the machine; what is not
        there is left out. Raises RunError."""

    def carry(self, fifo: Path, *, inward: bool) -> Process:
        """Carry what is written to a FIFO at the same path on both sides, until the process is ended or,
        inward, nobody writes any more."""

    def on_host(self, nanoseconds: int) -> int:
        """A reading of its CLOCK_MONOTONIC, by that of the machine."""

    def network(self, interface: str) -> Mapping[str, JsonValue]:
        """How its kernel has set one of its interfaces, and the route that leaves by it: mtu, queue_length,
        congestion_control, rto_min (seconds, None where no route sets one), tso, gso, gro, driver. Raises
        RunError."""

    def rank_holdings(self, mark: str) -> dict[int, RankHolds]:
        """host.ranks.rank_holdings, asked inside. Raises RunError."""

    def trouble(self) -> str:
        """Why it does not run any more; empty while it does."""

    def console(self) -> str:
        """What its kernel has said so far."""

    def clocks(self) -> Clocks:
        """What its clocks are ahead of the machine's now. Raises RunError."""

    @property
    def threads(self) -> tuple[int, ...]:
        """Those of the machine that are its CPUs, empty where they are not known."""


@runtime_checkable
class Accelerated(Protocol):
    """What a backend has besides whose guests the processor runs by KVM, or else an emulator. uses_kvm: so it
    is."""

    uses_kvm: bool


class Backend(Protocol):
    """One way of wrapping work. One file per backend, found by the entry-point group
    'nearmetal.environments'.

    capabilities: what study files may ask of it, and what its instances share with the machine. Instances of
        a backend with virtual machines offer what Guest says.
    """

    name: str
    capabilities: Capabilities

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        """Start one for real, within a second or two."""

    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> AbstractContextManager[Instance]:
        """Start; the clean-up of every step is registered before it. Leaving ends all its processes and
        removes all it made. Raises UnavailableError or RunError."""


@runtime_checkable
class Seated(Protocol):
    """What a backend has besides the contract whose instances take a seat only where something was put there
    before: once for a whole run, so that it is no part of a start. start() alone must do as well."""

    def seated(self, host: Host, tools: Tools, request: InstanceRequest) -> AbstractContextManager[object]:
        """request: of a seat, with the host name of the instances that will take it; its label is free."""


@runtime_checkable
class Accounted(Protocol):
    """What a backend has besides whose instances' control groups are our account of them and no part of
    them: they can stand for a whole run, one instance after the other in them."""

    def accounts(self, request: InstanceRequest) -> AbstractContextManager[Mapping[str, Path]]:
        """request: of any of those instances; empty where no group can be made."""


@runtime_checkable
class Nested(Protocol):
    """What a backend has besides whose guests run under a hypervisor that may itself be no machine's."""

    def nested(self, host: Host, tools: Tools, environment: Environment) -> str:
        """In what that of an environment stands, 'Xen in TCG: where'; empty where it stands on a machine, and
        where there is none that could be asked."""


@runtime_checkable
class Elsewhere(Protocol):
    """What a backend has besides whose instances may stand on another machine than this."""

    def check_environment(
        self, host: Host, tools: Tools, environment: Environment
    ) -> Available | Unavailable | None:
        """check() of the machine that an environment names; None where it names none, and check() answers."""


@runtime_checkable
class Tuned(Protocol):
    """Extra interface of a backend whose own settings may have to suit the machine."""

    def settings_here(self, host: Host) -> BackendSettings | None:
        """The settings with which it starts instances here; None for the usual ones."""


@runtime_checkable
class Enclosed(Protocol):
    """What a backend has besides whose instances may stand inside a guest, which then offer what Guest
    says."""

    def start_inside(
        self, guest: Instance, tools: Tools, request: InstanceRequest, *, alone: bool
    ) -> AbstractContextManager[Instance]:
        """start() in a guest that stands, of whichever backend. alone: nothing else runs in the guest, so
        that what the machine counts of it is this instance's. Raises UnavailableError or RunError."""
