"""The sections of a study file as pydantic models: which keys there are, their types, words and examples.

The one place that knows the keys: validation, JSON Schema and `explain` are all made from it. Imports
pydantic, so it is itself imported only where a file is read. Values arrive as text (see tree.py), lists
and mappings; fields.py makes them what a key wants.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ..model.image import HOST, ImageDefinition
from ..model.study import (
    IDLE,
    RANKS,
    STORAGE,
    CommandWorkload,
    Design,
    Environment,
    EventSubject,
    MetricSpec,
    NodeLink,
    Pages,
    Placement,
    Storage,
)
from ..units import Dimension, exact
from .fields import (
    AttachmentWord,
    BenchmarkWord,
    BetterWord,
    Bytes,
    Confidence,
    CongestionControl,
    Cpu,
    Delay,
    EnvKey,
    EventWord,
    Extra,
    Interface,
    JsonPath,
    Margin,
    Mirror,
    ModeWord,
    MpiWord,
    Mtu,
    Name,
    Number,
    NumberOrNone,
    Package,
    PagesWord,
    PinningWord,
    Quota,
    ReachWord,
    RtoMin,
    Scale,
    Seconds,
    Seed,
    SharedWord,
    Shares,
    SingleCopyWord,
    SizeWord,
    SomeText,
    Source,
    StartsWord,
    StorageWord,
    Subnet,
    Suite,
    Switch,
    Text,
    TransportWord,
    Truth,
    VariantWord,
    WireRate,
)

#: What file and command line take when nothing is said (METHOD: "One comparison").
MARGIN, CONFIDENCE = 0.03, 0.95


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class LimitsSection(Section):
    cpu: Quota | None = Field(
        None, description="CPU time, as a share of one CPU: 150 % is one CPU and a half", examples=["80 %"]
    )
    cpu_shares: Shares | None = Field(
        None,
        description="weight against others on the same CPU; every group has 1024 unless given another",
        examples=[256],
    )
    memory: Bytes | None = Field(None, description="memory", examples=["2 GiB"])


class StorageSection(Section):
    kind: StorageWord = Field(
        Storage.kind,
        description="overlay: a directory in its own root file system; bind: a directory of the machine;"
        " tmpfs: memory; loop: an ext4 in a file; block: an ext4 on a device; nfs: an export",
        examples=["loop"],
    )
    path: SomeText | None = Field(
        Storage.path,
        description="bind: a directory to make one in for each instance; loop: where its file is made,"
        " /var/tmp if omitted; block: the device; nfs: server:/directory",
        examples=["/dev/vdb"],
    )
    size: Bytes | None = Field(
        Storage.size, description="of a loop file; of a tmpfs its most", examples=["256 MiB"]
    )
    overwrite: Truth = Field(
        Storage.overwrite,
        description="block: yes, destroy what the device holds; it is not touched otherwise",
        examples=[True],
    )


class OffloadsSection(Section):
    tso: Switch | None = Field(None, description="segmentation of TCP by the device", examples=["off"])
    gso: Switch | None = Field(None, description="segmentation just before the device", examples=["off"])
    gro: Switch | None = Field(None, description="merging of segments on receipt", examples=["off"])


class NetworkSection(Section):
    mode: SomeText | None = Field(
        None,
        description="of macvlan: bridge (the default), private, vepa or passthru; of ipvlan: l2 (the default)"
        " or l3",
        examples=["vepa"],
    )
    devices: list[Interface] = Field(
        default_factory=list,
        description="devices of the machine: for phys one for each instance, for sriov the physical"
        " functions",
        examples=[["eth1", "eth2"]],
    )
    subnet: Subnet | None = Field(
        None,
        description="IPv4 network of the addresses; a /24 below 10.99.0.0/16 if omitted",
        examples=["192.168.7.0/24"],
    )
    mtu: Mtu | None = Field(None, description="largest packet, in bytes", examples=[9000])
    rto_min: RtoMin | None = Field(
        None, description="least retransmission time-out of TCP, on the route; whole ms", examples=["2 ms"]
    )
    congestion_control: CongestionControl | None = Field(
        None, description="of TCP, on the route: one that the kernel has", examples=["cubic"]
    )
    rate: WireRate | None = Field(
        None, description="what each instance may send, by a token bucket (tbf)", examples=["1 Gbit/s"]
    )
    queue_length: NumberOrNone | None = Field(
        None, description="transmit queue in packets (txqueuelen)", examples=[100]
    )
    offloads: OffloadsSection = Field(
        default_factory=lambda: OffloadsSection(tso=None, gso=None, gro=None),
        description="switched as by ethtool -K; as the kernel has them if omitted",
        examples=[{"tso": "off", "gso": "off"}],
    )


class BesideSection(Section):
    backend: Name = Field(description="what wraps the companion", examples=["namespaces"])
    command: list[Text] = Field(
        min_length=1,
        description="what runs in it for as long as the trial does, one item each; no shell reads them",
        examples=[["vmstat", "1"]],
    )
    limits: LimitsSection = Field(
        default_factory=lambda: LimitsSection(cpu=None, cpu_shares=None, memory=None),
        description="its limits; none if omitted",
        examples=[{"cpu": "10 %"}],
    )
    cpus: list[Cpu] = Field(
        default_factory=list,
        description="CPUs that it may use; all of the ranks' if omitted",
        examples=[[1]],
    )


class EnvironmentSection(Section):
    backend: Name = Field(description="what wraps the work", examples=["native", "namespaces"])
    image: Name = Field(
        Environment.image,
        description="root filesystem inside: host (this machine's own), or an image by name",
        examples=["host", "debian-mpi"],
    )
    attachment: AttachmentWord = Field(
        Environment.attachment,
        description="how an instance meets the network; several instances need one that is built for them,"
        " such as veth-bridge",
        examples=["veth-bridge"],
    )
    network: NetworkSection = Field(
        default_factory=lambda: NetworkSection.model_validate({}),
        description="of a network that is built for the attachment; read back from the kernel and recorded",
        examples=[{"rto_min": "2 ms", "mtu": 9000}],
    )
    limits: LimitsSection = Field(
        default_factory=lambda: LimitsSection(cpu=None, cpu_shares=None, memory=None),
        description="limits of each instance; none if omitted",
        examples=[{"cpu": "80 %", "memory": "2 GiB"}],
    )
    storage: StorageSection | None = Field(
        None,
        description=f"a directory for files of its own, told to workloads as {STORAGE} and NEARMETAL_STORAGE",
        examples=[{"kind": "tmpfs", "size": "256 MiB"}],
    )
    beside: BesideSection | None = Field(
        None,
        description="an instance of another kind beside its own in every trial; mode plain only",
        examples=[{"backend": "namespaces", "command": ["vmstat", "1"]}],
    )
    placements: list[Name] | None = Field(
        None,
        min_length=1,
        description="placements it takes part in; every one that its attachment can serve if omitted",
        examples=[["1x2", "2x1"]],
    )
    workloads: list[Name] = Field(
        default_factory=list,
        description="workloads it runs, where not all; the first baseline runs all",
        examples=[["cg", "latency"]],
    )
    transport: TransportWord = Field(
        Environment.transport,
        description="what carries messages between its ranks; auto: tcp between instances and over loopback,"
        " else shm (shared memory)",
        examples=["tcp"],
    )
    share: list[SharedWord] = Field(
        default_factory=list,
        description="namespaces that its instances keep of the machine: both are needed for transport shm"
        " between instances",
        examples=[["ipc", "pid"]],
    )
    extra_work: Extra = Field(
        Environment.extra_work,
        description="work planted in every slice, as a share; backend handicap only",
        examples=["3 %"],
        json_schema_extra={"default": exact(Environment.extra_work, Dimension.SHARE)},
    )


class LinkSection(Section):
    rate: WireRate = Field(
        NodeLink.rate,
        description="of each direction of each node's link",
        examples=["1 Gbit/s"],
        json_schema_extra={"default": "1 Gbit/s"},
    )
    delay: Delay = Field(
        NodeLink.delay,
        description="one way, from node to node, beside what forwarding takes",
        examples=["50 us"],
        json_schema_extra={"default": "50 us"},
    )
    queue: Bytes = Field(
        NodeLink.queue,
        description="what may wait at an end of a link before more is dropped",
        examples=["8 kB"],
        json_schema_extra={"default": "1 MiB"},
    )


class ImageSection(Section):
    """A root tree that nearmetal image build makes."""

    name: Name | None = Field(None, description="in a file of its own: its name", examples=["own"])
    suite: Suite = Field(
        description=f"which release of Debian or its kin; {HOST}: the machine's own",
        examples=[HOST, "trixie"],
    )
    packages: list[Package] = Field(
        default_factory=list,
        description="packages in it; kernels need a C compiler, make, CMake and an MPI with its headers",
        examples=[["gcc", "libc6-dev", "make", "cmake", "libopenmpi-dev", "openmpi-bin"]],
    )
    variant: VariantWord = Field(
        ImageDefinition.variant,
        description="what stands in it besides those, in the words of mmdebstrap",
        examples=["minbase"],
    )
    mirror: Mirror | None = Field(
        None,
        description="package archive; the one of the machine's own apt if omitted",
        examples=["file:/srv/debian"],
    )
    sources: list[Source] = Field(
        default_factory=list,
        description="further package archives, as lines of sources.list",
        examples=[["deb [trusted=yes] file:/srv/own ./"]],
    )


class PlacementSection(Section):
    nodes: Number = Field(
        Placement.nodes,
        description="nodes; more than one are emulated: network namespaces with CPUs of their own, joined"
        " by links, and labelled so in every table and figure",
        examples=[2],
    )
    link: LinkSection = Field(
        default_factory=lambda: LinkSection.model_construct(),
        description="links of emulated nodes",
        examples=[{"rate": "1 Gbit/s", "delay": "50 us"}],
    )
    instances: Number = Field(description="instances on each node", examples=[1, 2])
    tasks: Number = Field(description="MPI ranks in each instance", examples=[2, 1])
    cpus: list[Cpu] = Field(
        default_factory=list,
        description="the CPU of each rank, by rank; chosen alike for all environments if omitted, one for"
        " each core first, socket by socket",
        examples=[[0, 1]],
    )
    pinning: PinningWord = Field(
        Placement.pinning,
        description="a rank may use its own CPU (rank), those of its instance, or all of them (none)",
        examples=["instance"],
    )
    oversubscribe: Truth = Field(
        Placement.oversubscribe,
        description="more ranks than CPUs: they take turns, and MPI yields while it waits",
        examples=[True],
    )


_SWEEP = "one workload for every {}, named after its values: cg-S, cg-W"


class KernelSection(Section):
    """One of nearmetal's own kernels; its parameters stand beside these keys."""

    model_config = ConfigDict(extra="allow")

    kernel: Name = Field(description="which kernel", examples=["stream", "cg"])
    pages: PagesWord = Field(
        Pages.HUGE, description="page size asked for by madvise: huge, or 4k", examples=["4k"]
    )
    metrics: list[Name] | None = Field(
        None, min_length=1, description="metrics to keep; all if omitted", examples=[["triad"]]
    )
    matrix: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("combination of values"), examples=[{"class": ["S", "W"]}]
    )
    zip: dict[str, list[Any]] | None = Field(
        None,
        description=_SWEEP.format("row of values, lists of equal length"),
        examples=[{"class": ["S", "W"], "iterations": [15, 5]}],
    )


class MetricSection(Section):
    regex: SomeText | None = Field(
        None,
        description="regular expression (Python's) with one group: the number; the first match counts",
        examples=[r"Loop time of ([\d.]+)"],
    )
    json_path: JsonPath | None = Field(
        None, description="dotted path of the number in JSON output", examples=["jobs.0.read.bw"]
    )
    unit: SomeText = Field(
        description="unit of the number; s, B, B/s, op/s and FLOP/s are scaled when shown",
        examples=["s"],
    )
    scale: Scale = Field(
        MetricSpec.scale,
        description="what the printed number is multiplied by to be in that unit: 1e6 for Mop/s in op/s",
        examples=[1_000_000],
        json_schema_extra={"default": 1},
    )
    better: BetterWord = Field(description="which way it improves", examples=["lower"])


class VerifySection(Section):
    regex: SomeText = Field(
        description="regular expression (Python's) that the output must match; ^ and $ mean lines",
        examples=["^converged after"],
    )
    expected: Text | None = Field(
        None,
        description="what its one group must hold; that it matches is enough if omitted",
        examples=["SUCCESSFUL"],
    )


Environ = Annotated[
    dict[EnvKey, Text],
    Field(description="environment variables", examples=[{"OMP_NUM_THREADS": "1"}]),
]
TimeLimit = Annotated[
    Seconds,
    Field(
        description="a run longer than this is ended and counts as failed",
        examples=["10 min"],
        json_schema_extra={"default": exact(CommandWorkload.time_limit, Dimension.TIME)},
    ),
]


class CommandSection(Section):
    """A program of your own."""

    command: list[Text] = Field(
        min_length=1,
        description=f"the program and its arguments, one item each; no shell reads them; {RANKS} in them is"
        f" the placement's number of ranks, {STORAGE} the path of its instance's storage",
        examples=[["lmp", "-in", "in.lj"]],
    )
    mpi: Truth = Field(
        CommandWorkload.mpi, description="started by mpirun, one rank per task", examples=[True]
    )
    per_task: Truth = Field(
        CommandWorkload.per_task,
        description="a process for each task without MPI, all begun at one moment: wall is until the last has"
        " ended, instance_wall the median over instances",
        examples=[True],
    )
    env: Environ = Field(default_factory=dict)
    metrics: dict[Name, MetricSection] = Field(
        default_factory=dict,
        description="numbers read from its output, besides the time and memory it takes",
        examples=[{"loop": {"regex": r"Loop time of ([\d.]+)", "unit": "s", "better": "lower"}}],
    )
    verify: VerifySection | None = Field(
        None,
        description="what its output must hold; a run without it counts as failed",
        examples=[{"regex": "^converged after"}],
    )
    time_limit: TimeLimit = CommandWorkload.time_limit


class NpbSection(Section):
    """Which of the binaries."""

    bin: SomeText = Field(
        description="directory of the binaries, seen from where nearmetal is started: cg.A.x, or one for each"
        " number of ranks, as in NPB 3.3 and before: cg.A.2",
        examples=["./NPB3.4-MPI/bin"],
    )
    benchmark: BenchmarkWord = Field(description="which benchmark", examples=["cg"])
    size: SizeWord = Field(alias="class", description="class of the problem", examples=["A"])
    matrix: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("combination of values"), examples=[{"benchmark": ["cg", "lu"]}]
    )
    zip: dict[str, list[Any]] | None = Field(
        None,
        description=_SWEEP.format("row of values, lists of equal length"),
        examples=[{"benchmark": ["cg", "lu"], "class": ["B", "A"]}],
    )


class NpbWorkloadSection(Section):
    """The NAS Parallel Benchmarks as the user built them."""

    npb: NpbSection = Field(
        description="one of the NAS Parallel Benchmarks (MPI) as you built it: rate and seconds as printed;"
        " a run that does not verify itself counts as failed",
        examples=[{"bin": "./NPB3.4-MPI/bin", "benchmark": "cg", "class": "A"}],
    )
    env: Environ = Field(default_factory=dict)
    time_limit: TimeLimit = CommandWorkload.time_limit


class EventSection(Section):
    """An event of the instances themselves."""

    subject: EventWord = Field(
        description="start: from the request to the first instruction in the last instance; stop: from the"
        " request to the end of the first process of the last one; exec: from the request to the first"
        " instruction of a command in a standing instance; density: how long idle instances take to start"
        " all at once, and the memory of each",
        examples=["start"],
    )
    count: Number | None = Field(
        EventSubject.count,
        description="how often in each block, as many times as slices (in mode plain: runs) if omitted;"
        f" density: how many idle instances, {IDLE} if omitted",
        examples=[20],
    )
    matrix: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("combination of values"), examples=[{"count": [1, 10, 100]}]
    )
    zip: dict[str, list[Any]] | None = Field(
        None, description=_SWEEP.format("row of values, lists of equal length"), examples=[{"count": [1, 10]}]
    )


class DesignSection(Section):
    baseline: Name | None = Field(
        None, description="the environment that the others are compared with", examples=["native"]
    )
    baselines: list[Name] | None = Field(
        None,
        min_length=1,
        description="several of them instead; the further ones meet arms of their own transport",
        examples=[["native", "native-tcp"]],
    )
    margin: Margin = Field(
        MARGIN,
        description="time-equivalent overhead that matters; fixed before data",
        examples=["3 %"],
        json_schema_extra={"default": exact(MARGIN, Dimension.SHARE)},
    )
    confidence: Confidence = Field(
        CONFIDENCE,
        description="of every interval",
        examples=["95 %"],
        json_schema_extra={"default": exact(CONFIDENCE, Dimension.SHARE)},
    )
    mode: ModeWord = Field(
        Design.mode,
        description="slices: short slices between standing instances; plain: one trial after the other",
        examples=["slices"],
    )
    expected_blocks: Number | None = Field(
        Design.expected_blocks,
        description="expected number, which fixes when data are looked at; what max_time holds if omitted",
        examples=[40],
    )
    min_blocks: Number = Field(
        Design.min_blocks,
        description="no verdict before so many blocks; 6 at least",
        examples=[12],
        json_schema_extra={"minimum": 6},
    )
    max_blocks: Number = Field(Design.max_blocks, description="stop after so many blocks", examples=[200])
    max_time: Seconds | None = Field(
        Design.max_time,
        description="stop after so much time; without end if omitted",
        examples=["90 s", "1h30m"],
    )
    target_width: Margin | None = Field(
        Design.target_width,
        description="go on until every half-width is below this; until every cell has a verdict if omitted",
        examples=["0.5 %"],
    )
    seed: Seed | None = Field(
        None, description="fixes the order of everything; drawn and recorded if omitted", examples=[32570]
    )
    warm_up: NumberOrNone = Field(
        Design.warm_up, description="runs thrown away at the start of each instance", examples=[1]
    )
    runs: Number = Field(Design.runs, description="runs per instance, in mode plain", examples=[1])
    slices: Number = Field(
        Design.slices, description="slices per kernel and instance, in mode slices", examples=[8]
    )
    starts: StartsWord = Field(
        Design.starts,
        description="how the instances of one arm are started and stopped: together, side by side at one"
        " moment; in-turn, one after the other",
        examples=["in-turn"],
    )
    profile: Truth = Field(
        Design.profile,
        description="have every MPI rank say where its time went and what it sent to whom",
        examples=[True],
    )
    mpi: MpiWord | None = Field(
        Design.mpi,
        description="which MPI starts the ranks, the kernels compiled for it; the one that mpirun is if"
        " omitted",
        examples=["openmpi", "mpich"],
    )
    reach: ReachWord = Field(
        Design.reach,
        description="how mpirun reaches instances: agent: enters them; ssh: an sshd in each, with keys of the"
        " run alone",
        examples=["ssh"],
    )
    single_copy: SingleCopyWord = Field(
        Design.single_copy,
        description="long messages in shared memory: none: through a segment; cma: one copy by"
        " process_vm_readv, which every instance must allow",
        examples=["cma"],
    )
    primary: list[SomeText] = Field(
        default_factory=list,
        description="workload.metric names of a confirmatory study; exploratory if omitted",
        examples=[["cg.rate"]],
    )


class TopSection(Section):
    """The whole file. The entries of its sections are read one by one, so that one mistake hides no other."""

    name: Name = Field(
        description="name of the study; results stand in results/<name>-<time>", examples=["first"]
    )
    question: Text = Field(
        "", description="what is asked, in words; stands above the report", examples=["What does it cost?"]
    )
    environments: dict[Name, Any] = Field(
        min_length=1, description="what is compared", examples=[{"native": {"backend": "native"}}]
    )
    images: dict[Name, Any] = Field(
        default_factory=dict,
        description="images of your own, beside those that come with nearmetal",
        examples=[{"own": {"suite": HOST}}],
    )
    placements: dict[Name, Any] = Field(
        min_length=1,
        description="instances and tasks in them",
        examples=[{"1x2": {"instances": 1, "tasks": 2}}],
    )
    workloads: dict[Name, Any] = Field(
        min_length=1,
        description="what is run: a kernel, a command of your own, or an event of the instances",
        examples=[{"ep": {"kernel": "ep", "class": "S"}}],
    )
    design: dict[str, Any] = Field(
        description="how often, in which order, when to stop", examples=[{"baseline": "native"}]
    )
