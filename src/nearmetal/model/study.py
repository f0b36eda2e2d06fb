"""A study: environments, placements, workloads and the design that combines them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from .design import Design, Mode, Mpi, Reach, SingleCopy, Starts
from .environments.environment import (
    STORAGE,
    STORAGE_VARIABLE,
    Attachment,
    Companion,
    Environment,
    Limits,
    Shared,
    Storage,
    StorageKind,
    Transport,
    TransportWish,
)
from .environments.image import ImageDefinition
from .environments.placement import NodeLink, Pinning, Placement, RealNodes
from .workloads import Workload, quantiles_of
from .workloads.event import EventSubject, SubjectFacts
from .workloads.kernel import KernelWorkload, Pages
from .workloads.metric import Better, MetricSpec
from .workloads.moves import LifecycleSubject, Load, MoveSubject
from .workloads.programs import IDS, RANKS, ApplicationWorkload, CommandWorkload
from .workloads.script import Bounds, DecimalMark, Reference, Stream, VerifySpec

__all__ = [
    "IDS",
    "RANKS",
    "STORAGE",
    "STORAGE_VARIABLE",
    "ApplicationWorkload",
    "Arm",
    "Attachment",
    "Better",
    "Bounds",
    "CommandWorkload",
    "Companion",
    "Comparison",
    "DecimalMark",
    "Design",
    "Environment",
    "EventSubject",
    "KernelWorkload",
    "LifecycleSubject",
    "Limits",
    "Load",
    "MetricSpec",
    "Mode",
    "MoveSubject",
    "Mpi",
    "NodeLink",
    "Pages",
    "Pinning",
    "Placement",
    "Reach",
    "RealNodes",
    "Reference",
    "Shared",
    "SingleCopy",
    "Starts",
    "Storage",
    "StorageKind",
    "Stream",
    "Study",
    "SubjectFacts",
    "Transport",
    "TransportWish",
    "VerifySpec",
    "Workload",
    "quantiles_of",
]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An environment on a placement. A comparison has two arms.

    name: '<environment>/<placement>'.
    """

    environment: Environment
    placement: Placement

    @property
    def name(self) -> str:
        return f"{self.environment.name}/{self.placement.name}"

    @property
    def transport(self) -> Transport:
        """The transport of messages. The environment may request one; otherwise TCP between instances and
        over loopback, else shared memory."""
        if self.environment.transport is not TransportWish.AUTO:
            return Transport(self.environment.transport.value)
        crosses = self.placement.all_instances > 1
        return (
            Transport.TCP if crosses or self.environment.attachment is Attachment.LOOPBACK else Transport.SHM
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A comparison of an arm with a baseline; both are names of arms."""

    arm: str
    baseline: str


def _alike(arm: Arm, base: Arm) -> bool:
    """Return whether an arm may be compared with an arm of a further baseline: both have the same transport,
    and if the baseline has a method, they differ only in their methods."""
    own, other = base.environment, arm.environment
    return arm.transport is base.transport and (own.method is None or own.family == other.family)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A whole study.

    environments, placements, workloads: in the order of the file.
    images: images that the study defines, in addition to the built-in ones.
    """

    name: str
    question: str
    environments: tuple[Environment, ...]
    placements: tuple[Placement, ...]
    workloads: tuple[Workload, ...]
    design: Design
    images: tuple[ImageDefinition, ...] = ()

    @property
    def kernels(self) -> tuple[KernelWorkload, ...]:
        return tuple(w for w in self.workloads if isinstance(w, KernelWorkload))

    @property
    def commands(self) -> tuple[CommandWorkload, ...]:
        """The workloads that are the user's own programs."""
        return tuple(w for w in self.workloads if isinstance(w, CommandWorkload))

    @property
    def applications(self) -> tuple[ApplicationWorkload, ...]:
        return tuple(w for w in self.workloads if isinstance(w, ApplicationWorkload))

    @property
    def events(self) -> tuple[EventSubject, ...]:
        """The workloads that are events of instances."""
        return tuple(w for w in self.workloads if isinstance(w, EventSubject))

    @property
    def lifecycles(self) -> tuple[LifecycleSubject, ...]:
        """The workloads that move instances, or checkpoint them."""
        return tuple(w for w in self.workloads if isinstance(w, LifecycleSubject))

    @property
    def risks(self) -> tuple[str, ...]:
        """The risk of each method that the study names, as sentences; see Method.risk. No default method has
        one."""
        named = [w.by(e.method).method for w in self.lifecycles for e in self.environments if e.takes(w.name)]
        return tuple(dict.fromkeys(m.risk for m in named if m is not None and m.risk))

    def arms(self) -> tuple[Arm, ...]:
        """Return every environment on each placement that it names, in file order."""
        places = {p.name: p for p in self.placements}
        return tuple(
            Arm(environment=e, placement=places[name]) for e in self.environments for name in e.placements
        )

    def with_arms(self, names: Collection[str]) -> Study:
        """Return the study with only the environments and placements of these arms.

        A baseline that is left out is replaced by the first remaining environment that differs from it only
        in its method. If there is none, it is removed from the baselines.

        names: names of arms ('bare/1x1').
        """
        environments = tuple(
            replace(e, placements=kept)
            for e in self.environments
            if (kept := tuple(p for p in e.placements if f"{e.name}/{p}" in names))
        )
        families = {e.name: e.family for e in self.environments if e.method is not None}
        left = {e.family: e.name for e in reversed(environments) if e.method is not None}
        replacement = {name: left[family] for name, family in families.items() if family in left}
        replacement |= {e.name: e.name for e in environments}
        baselines = tuple(dict.fromkeys(replacement[b] for b in self.design.baselines if b in replacement))
        design = replace(self.design, baselines=baselines)
        return replace(self, environments=environments, design=design)

    def baseline_arm(self, baseline: str, arm: Arm) -> Arm | None:
        """Return the arm of environment `baseline` that `arm` is compared with.

        It is the arm on the same placement, or otherwise one with the same number of ranks. Returns None if
        there is none, or if it is the arm itself.
        """
        own = [a for a in self.arms() if a.environment.name == baseline]
        same = [a for a in own if a.placement.name == arm.placement.name]
        alike = same or [a for a in own if a.placement.ranks == arm.placement.ranks]
        return alike[0] if alike and alike[0].name != arm.name else None

    def comparisons(self) -> tuple[Comparison, ...]:
        """Return every comparison of the study.

        Every arm is compared with the first baseline. Then, for each further baseline, the arms with the same
        transport that are not baselines themselves are compared with it. A further baseline without shared
        memory shows the overhead that remains if shared memory is not used. A further baseline with a method
        is compared only with environments that differ from it in their method.
        """
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
                    and _alike(arm, base)
                ):
                    out.append(Comparison(arm=arm.name, baseline=base.name))
        return tuple(out)

    def aa_arms(self) -> tuple[Arm, ...]:
        """Return the arms that run twice in a block: every arm of the first baseline that another arm is
        compared with.

        Without any comparison (a study of the baseline only), all arms of the baseline are returned.
        """
        own = tuple(a for a in self.arms() if a.environment.name == self.design.baselines[0])
        compared = {c.baseline for c in self.comparisons()}
        return tuple(a for a in own if a.name in compared) or own

    def least_turns(self) -> int:
        """Return how many instances take turns in every round before the first verdict: the baseline twice,
        and one environment if there is any."""
        return min(3, len(self.arms()) + len(self.aa_arms()))
