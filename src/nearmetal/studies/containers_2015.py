"""The study of 'Performance evaluation of containers for HPC' (2015), asked again of one machine: its parts
as studies. Pure: what the machine has is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..model.network import NetworkSettings
from ..model.series import Part, Scale, Series
from ..model.study import (
    STORAGE,
    Attachment,
    CommandWorkload,
    Design,
    Environment,
    EventSubject,
    KernelWorkload,
    Limits,
    NodeLink,
    Placement,
    Storage,
    StorageKind,
    Study,
    Workload,
)

NAME = "containers-2015"
TITLE = "Does it make sense to use containers for HPC? The study of 2015, asked of this machine"
#: Time where nobody says otherwise, seconds.
USUAL_TIME = {Scale.SMALL: 900.0, Scale.PAPER: 8 * 3600.0}
#: The benchmarks of the paper, in its order, with their classes.
CLASSES = {
    Scale.SMALL: {"cg": "S", "ep": "S", "ft": "S", "is": "S", "lu": "S", "mg": "S"},
    Scale.PAPER: {"cg": "B", "ep": "B", "ft": "B", "is": "C", "lu": "B", "mg": "C"},
}
#: Those that a small machine runs in the larger class too, where one part asks for it.
LARGER = {Scale.SMALL: {"cg": "W", "mg": "W"}, Scale.PAPER: {}}
#: Counts of a slice where messages cross emulated links: those found fit for loopback would last a second.
SLICED = {"cg": ("iterations", 2), "ft": ("iterations", 2), "is": ("rounds", 8)}
MOST_RANKS = 16
#: Loses the end of about every second long message that is sent at once, and nothing of short ones.
LOSSY = NodeLink(rate=400e6 / 8, queue=16_000)
WRITTEN = 32 << 20
#: What the paper names in place of veth and a bridge.
CURES = (Attachment.MACVLAN, Attachment.OVS, Attachment.SRIOV)
NATIVE, CONTAINER = "native", "container"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the machine offers. cores: usable ones, for there are never more containers than these; container:
    their backend; attachments: those of CURES that can be built; lacking: why the others cannot; functions:
    devices that have virtual functions (SR-IOV); notes: what is not as the study would have it."""

    cores: int
    container: str
    attachments: tuple[Attachment, ...] = ()
    lacking: Mapping[Attachment, str] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """The largest power of two that leaves every rank a core, as the benchmarks want it."""
        return min(MOST_RANKS, 1 << (self.cores.bit_length() - 1))


def part_keys() -> tuple[str, ...]:
    return tuple(_PARTS)


def containers_2015(
    setting: Setting, *, scale: Scale, seed: int, max_time: float, only: Sequence[str] = ()
) -> Series:
    """only: keys of the parts to ask, all where it is empty."""
    parts = tuple(make(setting, scale, seed) for key, make in _PARTS.items() if not only or key in only)
    return Series(
        name=NAME,
        title=TITLE,
        scale=scale,
        paper=NAME,
        seed=seed,
        max_time=max_time,
        parts=parts,
        notes=(*_notes(setting), *setting.notes),
    )


def _notes(setting: Setting) -> Iterator[str]:
    yield (
        f"Containers by {setting.container}, {setting.ranks} ranks; nodes that this machine lacks are "
        "emulated: network namespaces with CPUs of their own behind links of limited rate, labelled so "
        "wherever they stand."
    )
    yield (
        "Kernel versions are boot states, never members of one run: run this under each kernel, then "
        "nearmetal compare the parts' results directories."
    )


def placement(*, nodes: int = 1, instances: int, tasks: int) -> Placement:
    """Named by its numbers: 2x1, or emulated-2x1x1, nodes first."""
    shape = f"{instances}x{tasks}"
    return Placement(
        name=shape if nodes == 1 else f"emulated-{nodes}x{shape}",
        nodes=nodes,
        instances=instances,
        tasks=tasks,
    )


def _kernels(scale: Scale, *, larger: bool = False) -> tuple[Workload, ...]:
    sliced = SLICED if scale is Scale.SMALL else {}
    out = [
        KernelWorkload(name=k, kernel=k, params={"class": c, **dict([sliced[k]] if k in sliced else [])})
        for k, c in CLASSES[scale].items()
    ]
    if larger:
        out += [
            KernelWorkload(name=f"{k}-{c.lower()}", kernel=k, params={"class": c})
            for k, c in LARGER[scale].items()
        ]
    return tuple(out)


def _study(
    key: str,
    question: str,
    environments: Sequence[Environment],
    placements: Sequence[Placement],
    workloads: Sequence[Workload],
    *,
    baselines: Sequence[str],
    scale: Scale,
    seed: int,
    profile: bool = False,
    slices: int = 4,
) -> Study:
    return Study(
        name=f"{NAME}-{key}",
        question=question,
        environments=tuple(environments),
        placements=tuple(placements),
        workloads=tuple(workloads),
        design=Design(
            baselines=tuple(baselines),
            margin=0.03,
            confidence=0.95,
            seed=seed,
            slices=slices,
            warm_up=0,  # the verified run of each instance warms its slices up
            profile=profile,
        ),
    )


def _native(
    placements: Sequence[Placement],
    *,
    name: str = NATIVE,
    attachment: Attachment = Attachment.HOST,
    storage: Storage | None = None,
) -> Environment:
    return Environment(
        name=name,
        backend="native",
        attachment=attachment,
        storage=storage,
        placements=tuple(p.name for p in placements),
    )


def _container(
    setting: Setting,
    placements: Sequence[Placement],
    *,
    name: str = CONTAINER,
    attachment: Attachment = Attachment.VETH_BRIDGE,
    network: NetworkSettings | None = None,
    limits: Limits | None = None,
    storage: Storage | None = None,
    workloads: Sequence[str] = (),
) -> Environment:
    return Environment(
        name=name,
        backend=setting.container,
        attachment=attachment,
        network=network or NetworkSettings(),
        limits=limits or Limits(),
        storage=storage,
        placements=tuple(p.name for p in placements),
        workloads=tuple(workloads),
    )


_ONE_CPU = "one core: two ranks would take turns on it, spinning while they wait"


def _lacking(key: str, title: str, share: float, why: str) -> Part:
    return Part(key=key, title=title, share=share, study=None, places={}, absent=why)


def _q1(setting: Setting, scale: Scale, seed: int) -> Part:
    """Packing: the same ranks on fewer and fewer nodes, one in each instance."""
    title, share, ranks = "Q1: packing", 0.24, setting.ranks
    if ranks < 2:
        return _lacking("q1", title, share, _ONE_CPU)
    each = [1 << i for i in range(ranks.bit_length()) if 1 << i <= min(8, ranks)]
    packed = [placement(nodes=ranks // k, instances=k, tasks=1) for k in each]
    study = _study(
        "q1",
        f"What do 1 to {each[-1]} containers on each node cost {ranks} ranks, against bare nodes?",
        [_native(packed[:1]), _container(setting, packed)],
        packed,
        _kernels(scale),
        baselines=[NATIVE],
        scale=scale,
        seed=seed,
    )
    return Part(
        key="q1",
        title=title,
        share=share,
        study=study,
        places={
            "spread": f"{NATIVE}/{packed[0].name}",
            "packed": f"{CONTAINER}/{packed[-1].name}",
            **{f"{k} per node": f"{CONTAINER}/{p.name}" for k, p in zip(each, packed, strict=True)},
        },
        notes=(
            f"As many ranks ({ranks}) in every arm, one in each container; never more containers than the "
            "node has cores.",
        ),
    )


def _q2(setting: Setting, scale: Scale, seed: int) -> Part:
    """Containers of one node, against shared memory and against separate nodes."""
    title, share, ranks = "Q2: between the containers of one node", 0.2, setting.ranks
    if ranks < 2:
        return _lacking("q2", title, share, _ONE_CPU)
    tasks = 2 if ranks >= 4 else 1
    shared = placement(instances=1, tasks=ranks)
    own = placement(instances=ranks // tasks, tasks=tasks)
    nodes = placement(nodes=ranks // tasks, instances=1, tasks=tasks)
    study = _study(
        "q2",
        "What do messages between containers of one node cost, against shared memory and against nodes?",
        [_native([shared]), _container(setting, [own]), _native([nodes], name="multinode")],
        [shared, own, nodes],
        _kernels(scale, larger=True),
        baselines=[NATIVE],
        scale=scale,
        seed=seed,
        profile=True,
    )
    return Part(
        key="q2",
        title=title,
        share=share,
        study=study,
        places={
            "shared memory": f"{NATIVE}/{shared.name}",
            "container": f"{CONTAINER}/{own.name}",
            "multinode": f"multinode/{nodes.name}",
        },
        notes=("Every rank is profiled in every arm alike.",),
    )


def _q3(setting: Setting, scale: Scale, seed: int) -> Part:
    """One container on each node, with all its CPUs."""
    ranks = setting.ranks
    places = [placement(instances=1, tasks=ranks)]
    if ranks >= 2:
        places.append(placement(nodes=2, instances=1, tasks=ranks // 2))
    study = _study(
        "q3",
        "What does one container on each node, with all its CPUs, cost against the bare node?",
        [_native(places), _container(setting, places)],
        places,
        _kernels(scale),
        baselines=[NATIVE],
        scale=scale,
        seed=seed,
    )
    return Part(
        key="q3",
        title="Q3: one container on each node",
        share=0.2,
        study=study,
        places={"native": f"{NATIVE}/{places[-1].name}", "container": f"{CONTAINER}/{places[-1].name}"},
        notes=(
            "On one node messages pass through shared memory; over several every message goes by TCP, those "
            "within a node too. Both sides alike.",
        ),
    )


def _rto(setting: Setting, scale: Scale, seed: int) -> Part:
    """Packets are lost: the least time-out of TCP as it is, and as the paper set it."""
    title, share, ranks = "The retransmission time-out", 0.14, setting.ranks
    if ranks < 2:
        return _lacking("rto", title, share, _ONE_CPU)
    lossy = replace(placement(nodes=2, instances=1, tasks=ranks // 2), link=LOSSY)
    small = {"cg": ("iterations", 2), "is": ("rounds", 2)}
    study = _study(
        "rto",
        "Where a small queue loses packets, what does TCP's least time-out of 0.2 s cost, and what 2 ms?",
        [
            _native([lossy]),
            _container(setting, [lossy]),
            _container(setting, [lossy], name="container-2ms", network=NetworkSettings(rto_min=0.002)),
        ],
        [lossy],
        [
            *(
                KernelWorkload(name=k, kernel=k, params={"class": CLASSES[scale][k], key: count})
                for k, (key, count) in small.items()
            ),
            KernelWorkload(
                name="large",
                kernel="pingpong",
                params={"bytes": 256 << 10, "measure": "bandwidth", "trips": 2},
            ),
        ],
        baselines=[NATIVE, CONTAINER],
        scale=scale,
        seed=seed,
        slices=2,
    )
    return Part(
        key="rto",
        title=title,
        share=share,
        study=study,
        places={
            "native": f"{NATIVE}/{lossy.name}",
            "container, 0.2 s": f"{CONTAINER}/{lossy.name}",
            "container, 2 ms": f"container-2ms/{lossy.name}",
        },
        notes=(
            f"Packets are lost for one cause alone, the same in every arm: at each end of a link of "
            f"{LOSSY.rate * 8 / 1e6:.0f} Mbit/s no more than {LOSSY.queue / 1000:.0f} kB wait. Messages "
            "shorter than that, such as those of CG on two ranks, lose none.",
        ),
    )


def _cures(setting: Setting, scale: Scale, seed: int) -> Part:
    """The attachments that the paper names in place of veth and a bridge, each as an arm."""
    title, share, ranks = "The cures: other attachments", 0.12, setting.ranks
    if ranks < 2:
        return _lacking("cures", title, share, _ONE_CPU)
    shared = placement(instances=1, tasks=ranks)
    own = placement(instances=ranks, tasks=1)
    settings = {Attachment.SRIOV: NetworkSettings(devices=setting.functions)}
    study = _study(
        "cures",
        "What do messages between containers cost by macvlan, Open vSwitch or SR-IOV, against veth + bridge?",
        [
            _native([shared], attachment=Attachment.LOOPBACK),
            _container(setting, [own]),
            *(
                _container(setting, [own], name=f"container-{a.value}", attachment=a, network=settings.get(a))
                for a in setting.attachments
            ),
        ],
        [shared, own],
        [
            KernelWorkload(name="cg", kernel="cg", params={"class": CLASSES[scale]["cg"]}),
            KernelWorkload(name="is", kernel="is", params={"class": CLASSES[scale]["is"]}),
            KernelWorkload(name="latency", kernel="pingpong", params={"bytes": 8, "measure": "latency"}),
            KernelWorkload(
                name="bandwidth", kernel="pingpong", params={"bytes": 4 << 20, "measure": "bandwidth"}
            ),
        ],
        baselines=[NATIVE, CONTAINER] if setting.attachments else [NATIVE],
        scale=scale,
        seed=seed,
    )
    missing = [f"{a.value}: {why}" for a, why in setting.lacking.items()]
    return Part(
        key="cures",
        title=title,
        share=share,
        study=study,
        places={
            "native": f"{NATIVE}/{shared.name}",
            "container": f"{CONTAINER}/{own.name}",
            **{a.value: f"container-{a.value}/{own.name}" for a in setting.attachments},
        },
        notes=(
            f"One node, one rank in each of {ranks} containers; bare metal over TCP as well (loopback).",
            *(f"Not on this machine: {text}." for text in missing),
        ),
    )


def _appendix(setting: Setting, scale: Scale, seed: int) -> Part:
    """What the paper left for later: limits of memory, and files."""
    one = placement(instances=1, tasks=1)
    limit = 1 << 30
    computing = ("stream", "mg", "start")
    overlay = Storage(kind=StorageKind.OVERLAY)
    files = {
        "tmpfs": Storage(kind=StorageKind.TMPFS, size=4 * WRITTEN),
        "loop": Storage(kind=StorageKind.LOOP, size=4 * WRITTEN),
    }
    study = _study(
        "appendix",
        "What do a memory limit that is not reached, files and the start of a container cost?",
        [
            _native([one], storage=overlay),
            _container(setting, [one], storage=overlay),
            _container(
                setting,
                [one],
                name="container-memory",
                limits=Limits(memory=limit),
                workloads=computing,
            ),
            *(
                _container(setting, [one], name=f"container-{name}", storage=storage, workloads=("write",))
                for name, storage in files.items()
            ),
        ],
        [one],
        [
            KernelWorkload(name="stream", kernel="stream", params={"elements": 2_000_000}),
            KernelWorkload(name="mg", kernel="mg", params={"class": CLASSES[scale]["mg"]}),
            EventSubject(),
            CommandWorkload(
                name="write",
                argv=(
                    *("dd", "if=/dev/zero", f"of={STORAGE}/data", "bs=4k"),
                    *(f"count={WRITTEN >> 12}", "conv=fsync"),
                ),
                time_limit=120.0,
            ),
        ],
        baselines=[NATIVE, CONTAINER],
        scale=scale,
        seed=seed,
    )
    return Part(
        key="appendix",
        title="Appendix: what the paper left for later",
        share=0.1,
        study=study,
        places={"native": f"{NATIVE}/{one.name}", "container": f"{CONTAINER}/{one.name}"},
        notes=(
            f"The memory limit is {limit >> 20} MiB, far above what the work takes. Files: "
            f"{WRITTEN >> 20} MiB written by dd and forced to the device (fsync), on the overlay of the "
            "image, in memory (tmpfs) and on an ext4 in a file (loop).",
        ),
    )


_PARTS = {
    "q1": _q1,
    "q2": _q2,
    "q3": _q3,
    "rto": _rto,
    "cures": _cures,
    "appendix": _appendix,
}
