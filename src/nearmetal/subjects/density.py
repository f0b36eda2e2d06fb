"""Density: starts many idle instances at once; measures their memory and the time until all of them run."""

from __future__ import annotations

from collections.abc import Sequence

from ..environments import Instance
from ..host import MissingValue, cgroups
from ..host.counters.procfiles import instance_counters, node_counters, proportional_set
from ..host.counters.trial import local_scale, snapshot
from ..model.record import Row
from ..model.study import Arm, Better, Design, EventSubject, SubjectFacts
from ..node.arms.starting import Surroundings, guest_around, idle_instances
from ..node.node import Node
from ..node.trial import Guard, Trial
from .contract import Cost, Subject
from .events.rows import START_SECONDS, event_row, measured_row
from .rounds import shuffled

GIB = 1 << 30
DENSITY = SubjectFacts(
    name="density",
    doc="how long idle instances take to start all at once, and the memory of each",
    metrics=("start_all", "memory", "density", "node_memory"),
    quantiles=frozenset({"start_all"}),
    plurals={"start_all": "starts"},
    usual=10,
    counted="how many idle instances",
)
"""Metrics of density.

start_all: seconds until all idle instances run.
memory: mean bytes of memory charged to the control group of an instance.
density: number of instances that fit into one GiB by `memory`.
node_memory: bytes by which the machine's available memory decreased, divided by the number of instances.
"""


class Density(Subject):
    """Starts idle instances, one arm after the other in random order, before the instances of the group
    start."""

    facts = (DENSITY,)
    order = 1

    @classmethod
    def cost(cls, workloads: Sequence[EventSubject], arm: Arm, design: Design) -> Cost:
        return Cost(once=sum(w.count_in(design) for w in workloads) * START_SECONDS)

    def before_start(self) -> None:
        for w in self.workloads:
            for t in shuffled(self.group.taking(w), self.group.rng):
                # The memory of a virtual machine that encloses the instances is not counted as theirs.
                with Guard(t), guest_around(t, Surroundings()) as around:
                    t.found.rows += _density(t, around, w, w.count_in(self.group.design))


def _density(trial: Trial, around: Surroundings, subject: EventSubject, n: int) -> list[Row]:
    """Start the idle instances of one trial, and return its rows.

    around: the guest that encloses the instances, if any.
    n: number of instances.
    """
    node = trial.node
    before = _available(node)
    with idle_instances(trial, around, n) as group:
        after = _available(node)
        # The memory of a process in a guest cannot be told apart from the rest of the guest's memory.
        inside = trial.arm.environment.inside is not None
        own = [None if inside else _memory(node, i) for i in group.instances]
    known = [v for v in own if v is not None]
    each = sum(known) / n if len(known) == n else None
    per_gib = None if not each else GIB / each
    gone = None if before is None or after is None else (before - after) / n
    no_memory = "neither a control group nor its first process reports the memory of each instance"
    no_fall = (
        "the machine's available memory did not fall by it: other programs moved more, or it is too little"
    )
    return [
        event_row(subject, "start_all", "s", [max(group.seconds)]),
        measured_row(subject, "memory", "B", Better.LOWER, each, no_memory),
        measured_row(subject, "density", "instances/GiB", Better.HIGHER, per_gib, no_memory),
        measured_row(subject, "node_memory", "B", Better.LOWER, gone, no_fall),
    ]


def _available(node: Node) -> float | None:
    """Return the bytes of memory available on the machine; None if the kernel does not report them."""
    return node_counters(snapshot(node.machine.host).files, local_scale()).get("memory_available")


def _memory(node: Node, instance: Instance) -> float | None:
    """Return the bytes of memory charged to an instance's control group; None if they are not known.

    If its first process is in no control group of its own (native), return the proportional set size of this
    process.
    """
    host = node.machine.host
    if instance.pid not in cgroups.members(instance.cgroups.values()):
        rollup = host.read(f"/proc/{instance.pid}/smaps_rollup")
        return None if isinstance(rollup, MissingValue) else proportional_set(rollup)
    return instance_counters(snapshot(host, instance.cgroups).files, local_scale()).get("memory")
