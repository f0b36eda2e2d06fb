"""Checkpoint: an instance is written to files while a program runs in it, and restored from copies."""

from __future__ import annotations

from collections.abc import Sequence

from ..environments import (
    Backend,
    Checkpoints,
    Migrates,
    Unavailable,
)
from ..environments.dmtcp import refuses_dmtcp
from ..host import Host
from ..lifecycle import Method
from ..model.study import Arm, Design, Environment, LifecycleSubject, SubjectFacts
from ..model.workloads.moves import Extent
from ..node.arms.starting import without_seat
from ..node.criu import find_criu
from ..node.trial import Guard, Trial
from .contract import Cost, Subject, lacks_method, stays_because
from .events.mpi_jobs import methods_of_extent, unable_to_hold_job
from .events.restores import (
    checkpoint_and_restore,
    facts_of,
    meets_itself,
    program_facts,
    refused_by_criu,
    rows,
)
from .events.verified import Restored
from .rounds import shuffled

CHECKPOINT = SubjectFacts(
    name="checkpoint",
    doc="an instance is written to files and restored",
    event="a checkpoint",
    metrics=("checkpoint", "pause", "stopped", "slowdown", "checkpoint_size", "sent"),
    quantiles=frozenset({"checkpoint", "pause", "stopped"}),
    plurals={"checkpoint": "checkpoints", "pause": "checkpoints", "stopped": "standstills"},
    usual=2,
    workload=LifecycleSubject,
)
"""Metrics of a checkpoint and restore.

Times are in seconds.
checkpoint: time from the request until the program continues in the restored instance and the source has been
    removed. Its parts are the phases of lifecycle.Phase. Rounds of pre-copy count as `connect`, since the
    program runs meanwhile. With criu-lazy, `copy` includes the memory that is fetched after the thaw.
pause: longest time between two steps of the program, which takes one step per millisecond.
stopped: time from the stop of all processes until the next step of the program.
slowdown: time by which the program is behind its usual pace afterwards, including the standstill.
checkpoint_size: size in bytes of the files from which the instance was restored.
sent: bytes that were copied or sent from the source to the destination.
"""
EVENT_SECONDS = 2.0
"""Estimated seconds of a checkpoint and restore, including the start of the instance and the verification."""


class CheckpointRestore(Subject):
    """Checkpoints an instance in which a program runs that verifies its own memory.

    The instance has no address on a network. It is written to files and restored from copies of them. The
    trial fails unless the program continues with unchanged memory, and in one copy only.
    """

    facts = (CHECKPOINT,)
    order = 1
    own_instances = True

    @classmethod
    def methods(cls, backend: Backend) -> tuple[Method, ...]:
        return backend.checkpoints_by if isinstance(backend, Checkpoints) else ()

    @classmethod
    def unable(cls, workload: LifecycleSubject, backend: Backend) -> str | None:
        if workload.extent is Extent.RANK:
            return "of: rank is moved while the other ranks go on, so it belongs to subject migrate"
        able = cls.methods(backend)
        if able and workload.method is Method.AUTO:
            return "method auto chooses for downtime_limit, which belongs to subject migrate; name a method"
        if not able:
            moves = "; use subject: migrate" if isinstance(backend, Migrates) else stays_because(backend)
            return f"backend {backend.name} offers no checkpoint of its instances{moves}"
        if workload.extent is Extent.JOB and (why := unable_to_hold_job(workload, backend)) is not None:
            return why
        return lacks_method(workload, backend, methods_of_extent(workload, backend, able))

    @classmethod
    def refused(
        cls, workload: LifecycleSubject, environment: Environment, backend: Backend, host: Host
    ) -> Unavailable | None:
        assert isinstance(backend, Checkpoints)
        workload = cls.with_method(workload, backend)
        if workload.method is Method.DMTCP:
            return refuses_dmtcp(host, environment)
        here = refused_by_criu(workload, host) or meets_itself(workload, environment, backend)
        return here or backend.refuses_checkpoint(host, without_seat(environment))

    @classmethod
    def cost(cls, workloads: Sequence[LifecycleSubject], arm: Arm, design: Design) -> Cost:
        return Cost(once=sum(w.count_in(design) for w in workloads) * EVENT_SECONDS)

    def before_start(self) -> None:
        answer = find_criu(self.group.node.machine.host)
        for w in self.workloads:
            count = w.count_in(self.group.design)
            found: dict[str, list[Restored]] = {t.id: [] for t in self.group.trials}
            for _ in range(count):
                for t in shuffled(self.group.taking(w), self.group.rng):
                    with Guard(t):
                        found[t.id].append(checkpoint_and_restore(t, answer, self._of(w, t)))
            for t in self.group.taking(w):
                if len(found[t.id]) == count:
                    t.found.rows += rows(w, found[t.id])
                    t.found.facts[w.name] = program_facts(t, self._of(w, t)) | {
                        "events": [facts_of(one) for one in found[t.id]]
                    }

    def _of(self, w: LifecycleSubject, trial: Trial) -> LifecycleSubject:
        """Return the workload with the method by which it measures the instances of a trial."""
        environment = trial.arm.environment
        return self.with_method(w.by(environment.method), trial.node.backends[environment.backend])
