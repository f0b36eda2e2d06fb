"""The interface of subjects. A subject measures something in a group of trials."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..environments import Backend, Immovable, Unavailable
from ..host import Host
from ..lifecycle import Method
from ..meters.groups import MeteredArm
from ..model.plan import NextBlock
from ..model.study import Arm, Design, Environment, KernelWorkload, LifecycleSubject, SubjectFacts, Workload
from ..node.arms.running_arm import RunningArm
from ..node.node import Node
from ..node.trial import Trial

if TYPE_CHECKING:
    from .kernel import KernelJob

Lifecycle = TypeVar("Lifecycle", bound=LifecycleSubject)


@dataclass(frozen=True, kw_only=True)
class TrialGroup:
    """Trials whose instances run at the same time: all trials of a block, or one of them in plain trials.

    order: the block to which the trials belong.
    rng: random numbers for the order in which the trials take turns.
    fit: a function that determines how much work fills a slice of a kernel; None except in the rehearsal. It
        is called with the workload and with the jobs of the arms that run it, after they have verified it. It
        returns units of work by number of ranks.
    """

    node: Node
    order: NextBlock
    trials: tuple[Trial, ...]
    rng: random.Random
    fit: Callable[[KernelWorkload, Sequence[KernelJob]], Mapping[int, int]] | None = None

    @property
    def design(self) -> Design:
        return self.node.study.design

    def taking(self, workload: Workload) -> list[Trial]:
        return [t for t in self.trials if t.takes(workload)]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Estimated seconds of one arm in one block.

    once: everything except the slices and verified runs of kernels.
    verification: one full, verified run of each kernel.
    slice: one slice of each kernel.
    """

    once: float = 0.0
    verification: float = 0.0
    slice: float = 0.0


EMULATED, EMULATED_FILES = 12.0, 8.0
"""How many times longer an emulated guest takes than bare metal: for computation, and for access to files."""


def slowness(arm: Arm, *, files: bool = False) -> float:
    """Return the estimated factor by which work takes longer on an arm than on bare metal. It is 1 unless the
    guests of the arm are emulated.

    files: whether the work consists of reading and writing files.
    """
    guest = arm.environment.guest
    if guest is None or not guest.emulated:
        return 1.0
    return EMULATED_FILES if files else EMULATED


class Subject:
    """Measures something in one group of trials. An object belongs to one group, and may keep state about it.

    Rows are added to Trial.found. An error of one trial must not end the others: a guard (node.trial.Guard)
    turns it into a failure of that trial.
    facts: names and metrics for study files; empty for kernels and programs.
    order: subjects with a lower number run first.
    own_instances: whether it starts all instances that it measures itself, and needs none of those that run
        during while_running().
    """

    facts: ClassVar[tuple[SubjectFacts, ...]] = ()
    order: ClassVar[int] = 2
    own_instances: ClassVar[bool] = False

    def __init__(self, group: TrialGroup, workloads: Sequence[Any]) -> None:
        """Create the subject for a group of trials.

        workloads: the workloads of the study that this subject measures, in the study's order.
        """
        self.group, self.workloads = group, workloads

    @classmethod
    def methods(cls, backend: Backend) -> tuple[Method, ...]:
        """Return the methods of checkpoint or migration by which it can measure the instances of a backend,
        the default first. Empty if the subject has no methods."""
        return ()

    @classmethod
    def method(cls, workload: Any, backend: Backend) -> Method | None:
        """Return the method by which a workload measures the instances of a backend: the one that it names,
        otherwise the default. None if the subject has no methods."""
        named = workload.method if isinstance(workload, LifecycleSubject) else None
        return named or next(iter(cls.methods(backend)), None)

    @classmethod
    def with_method(cls, workload: Lifecycle, backend: Backend) -> Lifecycle:
        """Return a workload with the method by which it measures the instances of a backend."""
        return replace(workload, method=cls.method(workload, backend))

    @classmethod
    def unable(cls, workload: Any, backend: Backend) -> str | None:
        """Return why a workload cannot measure the instances of a backend; None if it can."""
        return None

    @classmethod
    def refused(
        cls, workload: Any, environment: Environment, backend: Backend, host: Host
    ) -> Unavailable | None:
        """Return why a workload cannot measure the instances of an environment on this machine; None if it
        can. Called only if unable() returns None."""
        return None

    @classmethod
    def cost(cls, workloads: Sequence[Any], arm: Arm, design: Design) -> Cost:
        """Estimate the time of these workloads for one arm in one block, before anything is measured."""
        raise NotImplementedError(f"{cls.__name__} does not define cost()")

    def before_start(self) -> None:
        """Called before the instances of the group are started."""

    def while_running(self, arms: Mapping[str, MeteredArm]) -> None:
        """Called while the instances run.

        arms: the arms that were started, by trial id.
        """

    def after(self, arms: Mapping[str, RunningArm]) -> None:
        """Called after the instances have been stopped.

        arms: the arms that were started, by trial id.
        """


def stays_because(backend: Backend) -> str:
    """Return why the instances of a backend can be neither checkpointed nor moved, and the remedy.

    The text begins with a colon, to be appended to a message. It is empty if the backend gives no reason.
    """
    return (
        f": {backend.immovable.reason}; use {backend.immovable.remedy}"
        if isinstance(backend, Immovable)
        else ""
    )


def lacks_method(workload: LifecycleSubject, backend: Backend, able: Sequence[Method]) -> str | None:
    """Return why the instances of a backend do not support the method of a workload; None if they do, or if
    the workload names no method.

    able: the methods that they support.
    """
    if workload.method is None or workload.method in able:
        return None
    return f"{backend.name} has only the method{'s' if len(able) > 1 else ''} {', '.join(able)}"
