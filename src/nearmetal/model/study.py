"""What is asked: environments, placements, workloads and the design that crosses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .image import HOST, ImageDefinition
from .network import NetworkSettings


class Better(StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


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


class Mpi(StrEnum):
    """Which MPI the kernels are compiled for and started by."""

    OPENMPI = "openmpi"
    MPICH = "mpich"


class Reach(StrEnum):
    """How mpirun reaches instances: by an agent that enters them, or by an sshd in each."""

    AGENT = "agent"
    SSH = "ssh"


class SingleCopy(StrEnum):
    """How a long message crosses shared memory: through a segment (two copies), or by one copy out of the
    other process (CMA, process_vm_readv)."""

    NONE = "none"
    CMA = "cma"


class Attachment(StrEnum):
    """How an instance meets the network."""

    HOST = "host"
    LOOPBACK = "loopback"
    VETH = "veth"
    VETH_BRIDGE = "veth-bridge"
    VETH_ROUTED = "veth-routed"
    MACVLAN = "macvlan"
    IPVLAN = "ipvlan"
    VXLAN = "vxlan"
    OVS = "ovs"
    PHYS = "phys"
    SRIOV = "sriov"
    NONE = "none"

    @property
    def seated(self) -> bool:
        """Whether an instance attached so takes a seat on a network that is built for it."""
        return self not in (Attachment.HOST, Attachment.LOOPBACK, Attachment.NONE)

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
    Attachment.IPVLAN: ("l2", "l3"),
}


class Mode(StrEnum):
    """How a block is run: slices between standing instances, or one plain trial after the other."""

    SLICES = "slices"
    PLAIN = "plain"


class Pinning(StrEnum):
    """Which CPUs a rank may use: its own, those of its instance, or all."""

    RANK = "rank"
    INSTANCE = "instance"
    NONE = "none"


class Starts(StrEnum):
    """How the instances of one arm are started and stopped: side by side, or one after the other."""

    TOGETHER = "together"
    IN_TURN = "in-turn"


class Pages(StrEnum):
    """Page size asked for by a kernel: madvise(MADV_HUGEPAGE), or 4 KiB by MADV_NOHUGEPAGE."""

    HUGE = "huge"
    SMALL = "4k"


#: Idle instances of a density where the study does not say.
IDLE = 10

#: Stands for the number of ranks in the arguments of a user's own program.
RANKS = "{ranks}"
#: Stands for the path of its storage in the arguments of a user's own program.
STORAGE = "{storage}"


#: The weight of a control group that nobody has given another.
USUAL_SHARES = 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one instance; None is unlimited. cpu_quota: share of one CPU's time (0.5 = half a CPU);
    cpu_shares: its weight against others that want the same CPU, USUAL_SHARES being that of any group;
    memory: bytes."""

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


@dataclass(frozen=True, kw_only=True)
class Companion:
    """An instance of another kind beside those of an arm, with the same image, in which a command runs as
    long as the trial does.
    argv: tokens, no shell; cpus: those that it may use, empty for all of the arm's."""

    backend: str
    argv: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Environment:
    """How work is wrapped. backend: name of an entry point; image: HOST or the name of one; placements: names
    of the placements it takes part in; workloads: names of those it runs, empty for all; network: of its
    attachment; storage: None where no workload is told of any; beside: its companion in every trial, None
    without one; transport: between its ranks; share: namespaces of the machine that its instances keep;
    extra_work: share of additional work planted in every slice (backend handicap only, 0.03 = 3 %)."""

    name: str
    backend: str
    image: str = HOST
    attachment: Attachment = Attachment.HOST
    network: NetworkSettings = field(default_factory=NetworkSettings)
    limits: Limits = field(default_factory=Limits)
    storage: Storage | None = None
    beside: Companion | None = None
    placements: tuple[str, ...]
    workloads: tuple[str, ...] = ()
    transport: TransportWish = TransportWish.AUTO
    share: tuple[Shared, ...] = ()
    extra_work: float = 0.0

    def takes(self, workload: str) -> bool:
        """Whether it runs the workload of that name."""
        return not self.workloads or workload in self.workloads


@dataclass(frozen=True, kw_only=True)
class NodeLink:
    """What joins emulated nodes, at either end of each one's link. rate: B/s; delay: seconds one way; queue:
    bytes that wait for their turn before further ones are dropped."""

    rate: float = 1e9 / 8
    delay: float = 50e-6
    queue: int = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Placement:
    """nodes x instances per node x tasks per instance; cpus: the CPU of each rank, by rank; oversubscribe:
    ranks may share CPUs, and MPI yields the CPU while it waits. More nodes than one are emulated: network
    namespaces with CPUs of their own, joined by links."""

    name: str
    nodes: int = 1
    instances: int
    tasks: int
    cpus: tuple[int, ...] = ()
    link: NodeLink = field(default_factory=NodeLink)
    pinning: Pinning = Pinning.RANK
    oversubscribe: bool = False

    @property
    def emulated(self) -> bool:
        """Whether its nodes are stand-ins for machines that are not there."""
        return self.nodes > 1

    @property
    def all_instances(self) -> int:
        """On all nodes together."""
        return self.nodes * self.instances

    @property
    def ranks(self) -> int:
        return self.all_instances * self.tasks


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """One metric of a user's own program: where its value stands in the output, its unit, its direction.
    Exactly one of regex (one group) and json_path (dotted) is set; scale: what the number is multiplied by to
    be in that unit."""

    name: str
    unit: str
    better: Better
    regex: str | None = None
    json_path: str | None = None
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class VerifySpec:
    """What the output of a user's own program must hold for its run to count. regex: searched with ^ and $
    meaning lines; expected: what its one group must have matched, None: that it matches is enough."""

    regex: str
    expected: str | None = None


@dataclass(frozen=True, kw_only=True)
class KernelWorkload:
    """One of our own kernels. params: the kernel's own keys (class, elements, bytes, ...); metrics: the ones
    to keep, empty for all."""

    name: str
    kernel: str
    params: Mapping[str, str | int | float]
    pages: Pages = Pages.HUGE
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CommandWorkload:
    """A user's own program. argv tokens, no shell; mpi: started by mpirun with one rank per task; per_task: a
    process for each task, without MPI, all begun at one moment; verify:
    None, every run that ends well counts; time_limit: seconds."""

    name: str
    argv: tuple[str, ...]
    mpi: bool = False
    per_task: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[MetricSpec, ...] = ()
    verify: VerifySpec | None = None
    time_limit: float = 3600.0

    def argv_on(self, ranks: int) -> tuple[str, ...]:
        """The tokens of a launch on so many ranks: RANKS in them is that number, and nothing else changes."""
        return tuple(token.replace(RANKS, str(ranks)) for token in self.argv)


class Event(StrEnum):
    """What happens to instances, as a subject."""

    START = "start"
    STOP = "stop"
    EXEC = "exec"
    DENSITY = "density"


EVENT_METRICS: Mapping[Event, tuple[str, ...]] = {
    Event.START: ("start",),
    Event.STOP: ("stop", "removed"),
    Event.EXEC: ("exec",),
    Event.DENSITY: ("start_all", "memory", "density", "node_memory"),
}
"""stop, removed: until the last first process has ended, until nothing of any instance is left; start_all:
until all idle instances stand; memory, density: of each by its control group, and how many take one GiB;
node_memory: of each by what the machine has left."""


@dataclass(frozen=True, kw_only=True)
class EventSubject:
    """An event of the instances themselves as a subject. START: from the request to the first instruction in
    the last instance; STOP: from the request to the end of the first process of the last one; EXEC: from the
    request to the first instruction of a command in a standing instance; DENSITY: `count` idle instances at
    once: how long until they stand and what memory they take. count: of START, STOP and EXEC how often in
    each block, None = as many times as a kernel has slices; of DENSITY how many instances, None = IDLE."""

    name: str = "start"
    event: Event = Event.START
    count: int | None = None

    def count_in(self, design: Design) -> int:
        """The count where the study does not say."""
        if self.count is not None:
            return self.count
        if self.event is Event.DENSITY:
            return IDLE
        return design.slices if design.mode is Mode.SLICES else design.runs


Workload = KernelWorkload | CommandWorkload | EventSubject


@dataclass(frozen=True, kw_only=True)
class Design:
    """margin: time-equivalent share (0.03 = 3 %); confidence: 0.95; expected_blocks: N of METHOD.md, None =
    what max_time holds; max_time: seconds; target_width: stop at this half-width of ln ratio, None = at
    verdicts; primary: '<workload>.<metric>' names of a confirmatory study, empty = exploratory;
    slices: slices per kernel and instance (mode slices); runs: runs per instance (mode plain); profile: every
    MPI rank of every arm runs with the profile of its calls; starts: how the instances of an arm start; mpi:
    None = the one that mpirun is; reach, single_copy: alike for all arms."""

    baselines: tuple[str, ...]
    margin: float
    confidence: float
    seed: int
    mode: Mode = Mode.SLICES
    min_blocks: int = 12
    expected_blocks: int | None = None
    max_blocks: int = 1000
    max_time: float | None = None
    target_width: float | None = None
    slices: int = 8
    runs: int = 1
    warm_up: int = 1
    profile: bool = False
    starts: Starts = Starts.TOGETHER
    mpi: Mpi | None = None
    reach: Reach = Reach.AGENT
    single_copy: SingleCopy = SingleCopy.NONE
    primary: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One side of a comparison: an environment on a placement. name: '<environment>/<placement>'."""

    environment: Environment
    placement: Placement

    @property
    def name(self) -> str:
        return f"{self.environment.name}/{self.placement.name}"

    @property
    def transport(self) -> Transport:
        """What carries messages: what the environment asks for; else TCP between instances and over loopback,
        shared memory otherwise."""
        if self.environment.transport is not TransportWish.AUTO:
            return Transport(self.environment.transport.value)
        crosses = self.placement.all_instances > 1
        return (
            Transport.TCP if crosses or self.environment.attachment is Attachment.LOOPBACK else Transport.SHM
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """arm against baseline; both are names of arms."""

    arm: str
    baseline: str


@dataclass(frozen=True, kw_only=True)
class Study:
    """A whole question. environments, placements, workloads in the order of the file; images: its own
    definitions, beside those that come with nearmetal."""

    name: str
    question: str
    environments: tuple[Environment, ...]
    placements: tuple[Placement, ...]
    workloads: tuple[Workload, ...]
    design: Design
    images: tuple[ImageDefinition, ...] = ()

    def arms(self) -> tuple[Arm, ...]:
        """Every environment on each placement it names, in file order."""
        places = {p.name: p for p in self.placements}
        return tuple(
            Arm(environment=e, placement=places[name]) for e in self.environments for name in e.placements
        )

    def baseline_arm(self, baseline: str, arm: Arm) -> Arm | None:
        """The arm of environment `baseline` that `arm` is compared with: the same placement, else one with as
        many ranks; None where there is none, or where it is the arm itself."""
        own = [a for a in self.arms() if a.environment.name == baseline]
        same = [a for a in own if a.placement.name == arm.placement.name]
        alike = same or [a for a in own if a.placement.ranks == arm.placement.ranks]
        return alike[0] if alike and alike[0].name != arm.name else None

    def comparisons(self) -> tuple[Comparison, ...]:
        """First every arm against the first baseline; then against each further baseline only the arms that
        share its transport and are not baselines themselves (what is left once shared memory is left)."""
        first, *further = self.design.baselines
        out: list[Comparison] = []
        for arm in self.arms():
            base = self.baseline_arm(first, arm)
            if base is not None and arm.environment.name != first:
                out.append(Comparison(arm=arm.name, baseline=base.name))
        for name in further:
            for arm in self.arms():
                base = self.baseline_arm(name, arm)
                if (
                    base is not None
                    and arm.environment.name not in self.design.baselines
                    and arm.transport is base.transport
                ):
                    out.append(Comparison(arm=arm.name, baseline=base.name))
        return tuple(out)
