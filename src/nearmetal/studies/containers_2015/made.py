"""Building blocks of the parts: the properties of the machine, problem sizes, and environments as in the
paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...model.environments.network import NetworkSettings
from ...model.series import Part, Scale
from ...model.study import (
    Attachment,
    Design,
    Environment,
    KernelWorkload,
    Limits,
    Placement,
    Storage,
    Study,
    Workload,
)

NAME = "containers-2015"
#: The benchmarks of the paper, in its order, with their classes.
CLASSES = {
    Scale.SMALL: {"cg": "S", "ep": "S", "ft": "S", "is": "S", "lu": "S", "mg": "S"},
    Scale.PAPER: {"cg": "B", "ep": "B", "ft": "B", "is": "C", "lu": "B", "mg": "C"},
}
#: Benchmarks that a small machine also runs in the larger class, if a part requests it.
LARGER = {Scale.SMALL: {"cg": "W", "mg": "W"}, Scale.PAPER: {}}
#: Work of a slice for messages over emulated links. The work fitted to loopback would take a second.
SLICED = {"cg": ("iterations", 2), "ft": ("iterations", 2), "is": ("rounds", 8)}
MOST_RANKS = 16
#: Number of slices of each kernel in a block. A few are enough, and blocks remain short.
SLICES = 4
NATIVE, CONTAINER = "native", "container"


@dataclass(frozen=True, kw_only=True)
class AvailableMachine:
    """The properties of the machine that the study uses.

    cores: usable cores, which is also the maximum number of containers in a run.
    container: backend of the containers.
    attachments: attachments of CURES that can be built.
    lacking: why the other attachments cannot be built.
    functions: devices that have virtual functions (SR-IOV).
    notes: deviations from the study.
    """

    cores: int
    container: str
    attachments: tuple[Attachment, ...] = ()
    lacking: Mapping[Attachment, str] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """The largest power of two that leaves every rank a core, as the benchmarks require."""
        return min(MOST_RANKS, 1 << (self.cores.bit_length() - 1))


def placement(*, nodes: int = 1, instances: int, tasks: int) -> Placement:
    """Return a placement that is named by its numbers: 2x1, or emulated-2x1x1 with the number of nodes
    first."""
    shape = f"{instances}x{tasks}"
    return Placement(
        name=shape if nodes == 1 else f"emulated-{nodes}x{shape}",
        nodes=nodes,
        instances=instances,
        tasks=tasks,
    )


@dataclass(frozen=True, kw_only=True)
class PartRequest:
    """The input from which every part is made."""

    setting: AvailableMachine
    scale: Scale
    seed: int


@dataclass(frozen=True, kw_only=True)
class Heading:
    """Heading of a part.

    share: fraction of the time of the whole study.
    """

    key: str
    title: str
    share: float

    def lacking(self, why: str) -> Part:
        """Return a part that cannot be measured here, with the reason."""
        return Part(key=self.key, title=self.title, share=self.share, study=None, places={}, absent=why)

    def part(
        self,
        request: PartRequest,
        question: str,
        environments: Sequence[Environment],
        placements: Sequence[Placement],
        workloads: Sequence[Workload],
        *,
        places: Mapping[str, tuple[str, Placement]],
        notes: Sequence[str],
        baselines: Sequence[str] = (NATIVE,),
        profile: bool = False,
        slices: int = SLICES,
    ) -> Part:
        """Return the part with its study.

        places: environment and placement, by the paper's name for them.
        """
        study = Study(
            name=f"{NAME}-{self.key}",
            question=question,
            environments=tuple(environments),
            placements=tuple(placements),
            workloads=tuple(workloads),
            design=Design(
                baselines=tuple(baselines),
                margin=0.03,
                confidence=0.95,
                seed=request.seed,
                slices=slices,
                warm_up=0,  # the verified run of each instance warms its slices up
                profile=profile,
            ),
        )
        return Part(
            key=self.key,
            title=self.title,
            share=self.share,
            study=study,
            places={words: f"{name}/{place.name}" for words, (name, place) in places.items()},
            notes=tuple(notes),
        )


def kernels(scale: Scale, *, larger: bool = False) -> tuple[Workload, ...]:
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


def native(
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


def container(
    setting: AvailableMachine,
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


ONE_CPU = "one core: two ranks would take turns on it, spinning while they wait"
