"""The study of 'Performance evaluation of containers for HPC' (2015), asked again of one machine: its parts
as studies. Pure: what the machine has is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..model.series import Part, Scale, Series
from ..model.study import (
    Attachment,
    Design,
    Environment,
    EventSubject,
    KernelWorkload,
    Limits,
    Placement,
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
MOST_RANKS = 16
NATIVE, CONTAINER = "native", "container"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the machine offers. cpus: usable ones; container: backend of the containers; notes: what is not as
    the study would have it."""

    cpus: int
    container: str
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """The largest power of two that leaves every rank a CPU, as the benchmarks want it."""
        return min(MOST_RANKS, 1 << (self.cpus.bit_length() - 1))


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
    named = [(k, k, c) for k, c in CLASSES[scale].items()]
    if larger:
        named += [(f"{k}-{c.lower()}", k, c) for k, c in LARGER[scale].items()]
    return tuple(KernelWorkload(name=n, kernel=k, params={"class": c}) for n, k, c in named)


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
            slices=8 if scale is Scale.SMALL else 3,
            warm_up=0,  # the verified run of each instance warms its slices up
            profile=profile,
        ),
    )


def _native(placements: Sequence[Placement], *, name: str = NATIVE) -> Environment:
    return Environment(name=name, backend="native", placements=tuple(p.name for p in placements))


def _container(
    setting: Setting,
    placements: Sequence[Placement],
    *,
    name: str = CONTAINER,
    limits: Limits | None = None,
) -> Environment:
    return Environment(
        name=name,
        backend=setting.container,
        attachment=Attachment.VETH_BRIDGE,
        limits=limits or Limits(),
        placements=tuple(p.name for p in placements),
    )


_ONE_CPU = "one CPU: two ranks would take turns on it, spinning while they wait"


def _lacking(key: str, title: str, share: float, why: str) -> Part:
    return Part(key=key, title=title, share=share, study=None, places={}, absent=why)


def _q1(setting: Setting, scale: Scale, seed: int) -> Part:
    """Packing: the same ranks on fewer and fewer nodes, one in each instance."""
    title, share, ranks = "Q1: packing", 0.26, setting.ranks
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
            "node has CPUs.",
        ),
    )


def _q2(setting: Setting, scale: Scale, seed: int) -> Part:
    """Containers of one node, against shared memory and against separate nodes."""
    title, share, ranks = "Q2: between the containers of one node", 0.22, setting.ranks
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
        share=0.22,
        study=study,
        places={"native": f"{NATIVE}/{places[-1].name}", "container": f"{CONTAINER}/{places[-1].name}"},
        notes=("Within one node messages pass through shared memory on both sides; between nodes by TCP.",),
    )


def _appendix(setting: Setting, scale: Scale, seed: int) -> Part:
    """What the paper left for later: limits of memory."""
    one = placement(instances=1, tasks=1)
    limit = 1 << 30
    study = _study(
        "appendix",
        "What does a memory limit that is not reached cost, and what the start of a container?",
        [
            _native([one]),
            _container(setting, [one]),
            _container(setting, [one], name="container-memory", limits=Limits(memory=limit)),
        ],
        [one],
        [
            KernelWorkload(name="stream", kernel="stream", params={"elements": 2_000_000}),
            KernelWorkload(name="mg", kernel="mg", params={"class": CLASSES[scale]["mg"]}),
            EventSubject(),
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
        notes=(f"The limit is {limit >> 20} MiB, far above what the work takes.",),
    )


_PARTS = {"q1": _q1, "q2": _q2, "q3": _q3, "appendix": _appendix}
