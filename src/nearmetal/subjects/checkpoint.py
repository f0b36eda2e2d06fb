"""Checkpoint: an instance is written to files while a program runs in it, and restored from copies."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..environments import Backend, Checkpoints, Criu, Instance, InstanceRequest, Unavailable
from ..errors import RunError, TrialFailedError, UnavailableError
from ..host import Host
from ..host.processes import labelled as processes
from ..host.runtime import scratch_directory
from ..model.change import replace
from ..model.record import STEP, Row
from ..model.study import Arm, Design, EventSubject, SubjectFacts
from ..node.arms.starting import lone_request
from ..node.criu import find_criu
from ..node.trial import Guard, Trial
from .contract import Cost, Subject
from .event_rows import event_row
from .rounds import shuffled

CHECKPOINT = SubjectFacts(
    name="checkpoint",
    metrics=("checkpoint", "pause", "checkpoint_size"),
    quantiles=frozenset({"checkpoint", "pause"}),
    usual=2,
)
"""Metrics of a checkpoint and restore.

checkpoint: time from the request until the program takes its next step in the restored instance. Its steps:
    freeze: until all processes stood still.
    dump: until they are written, and gone.
    removal: until nothing of the instance is left.
    copy: of the files, and of what the instance had written to its root.
    restore: until the instance is there again.
    thaw: until the program takes its next step.
pause: longest time between two steps of the program, which takes one each millisecond.
checkpoint_size: size of the files.
"""
MEMORY = 64 << 20
"""Bytes of memory that the program holds, and writes to all the time."""
EVENT_SECONDS = 2.0
"""Estimated seconds of a checkpoint and restore, with the start of the instance and the verification."""
LIMIT = 60.0
"""Seconds after which the program has not gone on."""
_LOOK_AGAIN = 0.0005
_PASSES = 2
_RECORD = struct.Struct("=5Q")


@dataclass(frozen=True, kw_only=True)
class ProgramProgress:
    """What nm-keeper says about itself.

    steps: number of steps.
    passes: how often it has verified all its memory.
    wrong: pages whose content was wrong.
    gap: longest time between two steps, in seconds.
    strange: how often somebody else had written its record.
    """

    steps: int = 0
    passes: int = 0
    wrong: int = 0
    gap: float = 0.0
    strange: int = 0


@dataclass(frozen=True, kw_only=True)
class Restored:
    """One checkpoint and restore; see CHECKPOINT."""

    steps: Mapping[str, float]
    pause: float
    size: int

    @property
    def seconds(self) -> float:
        return sum(self.steps.values())


@dataclass(kw_only=True)
class _Clock:
    """Adds up the seconds of consecutive steps."""

    steps: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.monotonic)

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.steps[name] = now - self._last
        self._last = now


class CheckpointRestore(Subject):
    """Starts an instance without an address on a network, and a program in it that verifies its own memory;
    then writes the instance to files, copies them and restores it. The trial fails unless the program goes on
    as it was, and only once."""

    facts = (CHECKPOINT,)
    order = 1

    @classmethod
    def unable(cls, workload: EventSubject, backend: Backend) -> str | None:
        del workload
        if isinstance(backend, Checkpoints):
            return None
        return f"backend {backend.name} offers no checkpoint of its instances"

    @classmethod
    def cost(cls, workloads: Sequence[EventSubject], arm: Arm, design: Design) -> Cost:
        del arm
        return Cost(once=sum(w.count_in(design) for w in workloads) * EVENT_SECONDS)

    def before_start(self) -> None:
        answer = find_criu(self.group.node.machine.host)
        for w in self.workloads:
            count = w.count_in(self.group.design)
            found: dict[str, list[Restored]] = {t.id: [] for t in self.group.trials}
            for _ in range(count):
                for t in shuffled(self.group.taking(w), self.group.rng):
                    with Guard(t):
                        found[t.id].append(checkpoint_and_restore(t, _require(answer)))
            for t in self.group.taking(w):
                if len(found[t.id]) == count:
                    t.found.rows += rows(w, found[t.id])


def rows(w: EventSubject, found: Sequence[Restored]) -> list[Row]:
    """Return the rows of one trial, with a value for each event."""
    parts = {STEP + name: tuple(one.steps[name] for one in found) for name in found[0].steps}
    return [
        replace(event_row(w, "checkpoint", "s", [one.seconds for one in found]), parts=parts),
        event_row(w, "pause", "s", [one.pause for one in found]),
        event_row(w, "checkpoint_size", "B", [one.size for one in found]),
    ]


def checkpoint_and_restore(trial: Trial, criu: Criu) -> Restored:
    """Measure one checkpoint and restore of an instance of a trial.

    Raises UnavailableError if the environment or this machine cannot, RunError and TrialFailedError.
    """
    host, backend = trial.node.machine.host, trial.node.backends[trial.arm.environment.backend]
    if not isinstance(backend, Checkpoints):
        raise UnavailableError(f"backend {backend.name} offers no checkpoint of its instances")
    request = lone_request(trial, "checkpoint")
    refused = backend.refuses_checkpoint(host, request.environment)
    if refused is not None:
        raise UnavailableError(
            f"environment {request.environment.name}: {refused.reason}", remedy=refused.remedy
        )
    with scratch_directory(f"{request.label}-images") as place:
        _require_room(place)
        return _Move(trial=trial, host=host, criu=criu, request=request, place=place).run(backend, backend)


def _require(found: Criu | Unavailable) -> Criu:
    if isinstance(found, Unavailable):
        raise UnavailableError(found.reason, remedy=found.remedy)
    return found


def _require_room(place: Path) -> None:
    """Raises UnavailableError if the images and their copy do not fit."""
    free, needed = shutil.disk_usage(place).free, 3 * MEMORY
    if free < needed:
        raise UnavailableError(
            f"{place} has {free >> 20} MiB free, a checkpoint and its copy need {needed >> 20} MiB",
            remedy="free memory or disk space there",
        )


@dataclass(frozen=True, kw_only=True)
class _Move:
    """One instance on its way.

    place: an empty directory for the files.
    """

    trial: Trial
    host: Host
    criu: Criu
    request: InstanceRequest
    place: Path

    @property
    def record(self) -> Path:
        return self.trial.directory / f"{self.request.scratch.name}.record"

    def run(self, starter: Backend, backend: Checkpoints) -> Restored:
        """starter, backend: the same backend, by its two interfaces."""
        tools = self.trial.node.software_of(self.trial.arm).tools
        images, source = self.place / "images", self._with_layer("source")
        images.mkdir()
        with starter.start(self.host, tools, source) as instance:
            self._start_program(backend, instance, tools / "nm-keeper")
            clock = _Clock()
            freeze = backend.checkpoint(self.host, tools, self.criu, source, instance, images)["freeze"]
            clock.lap("dump")
            before = self._progress()
        clock.lap("removal")
        self._require_ended()
        target = self._copy()
        clock.lap("copy")
        with self._restored(backend, target) as moved:
            clock.lap("restore")
            self._wait(lambda now: now.steps > before.steps, "does not go on in the restored instance")
            clock.lap("thaw")
            after = self._wait(
                lambda now: now.passes >= before.passes + _PASSES, "does not verify its memory any more"
            )
            del moved
        if after.wrong or after.strange:
            raise TrialFailedError(
                f"after the restore {after.wrong} pages of the program's memory are wrong, and "
                f"{after.strange} times another copy had written its record",
                where=str(self.trial.log),
            )
        steps = {"freeze": freeze, **clock.steps, "dump": clock.steps["dump"] - freeze}
        return Restored(steps=steps, pause=after.gap, size=_size(images))

    def _with_layer(self, name: str) -> InstanceRequest:
        layer = self.place / name
        layer.mkdir()
        return replace(self.request, layer=layer)

    def _start_program(self, backend: Checkpoints, instance: Instance, keeper: str) -> None:
        argv = backend.command_alone(instance, [keeper, str(MEMORY), str(self.record)])
        done = self.host.run(argv, timeout=LIMIT, cwd=Path("/"))
        if not done.ok:
            raise TrialFailedError(
                f"the program to be checkpointed does not start: {done.failure()}", where=str(self.trial.log)
            )
        self._wait(lambda now: now.passes >= 1, "does not start its work")

    def _progress(self) -> ProgramProgress:
        try:
            steps, passes, wrong, gap, strange = _RECORD.unpack(self.record.read_bytes())
        except (OSError, struct.error):
            return ProgramProgress()
        return ProgramProgress(steps=steps, passes=passes, wrong=wrong, gap=gap / 1e9, strange=strange)

    def _wait(self, reached: Callable[[ProgramProgress], bool], failure: str) -> ProgramProgress:
        end = time.monotonic() + LIMIT
        while not reached(now := self._progress()):
            if time.monotonic() > end:
                raise TrialFailedError(f"the program {failure} within {LIMIT:g} s", where=str(self.trial.log))
            time.sleep(_LOOK_AGAIN)
        return now

    def _require_ended(self) -> None:
        """Raises TrialFailedError if a process of the instance still runs: then two copies would."""
        label = self.request.label
        left = processes.labelled(lambda other: other == label)
        if left:
            raise TrialFailedError(
                f"{len(left)} processes of the instance run after its checkpoint; it is not restored",
                remedy="nearmetal clean",
            )

    def _copy(self) -> InstanceRequest:
        """Copy the files and the layer. Returns the request for the instance that is restored from them."""
        target = self._with_layer("target")
        assert target.layer is not None
        pairs = [(self.place / "images", self.place / "copy")]
        upper = self.place / "source" / "upper"
        if upper.is_dir():
            pairs.append((upper, target.layer / "upper"))
        for origin, copy in pairs:
            done = self.host.run(["cp", "--archive", str(origin), str(copy)], timeout=LIMIT)
            if not done.ok:
                raise RunError(f"the checkpoint is not copied: {done.failure()}", where=str(copy))
        return target

    @contextmanager
    def _restored(self, backend: Checkpoints, target: InstanceRequest) -> Iterator[Instance]:
        tools = self.trial.node.software_of(self.trial.arm).tools
        log = self.trial.log
        try:
            with backend.restored(self.host, tools, self.criu, target, self.place / "copy") as instance:
                yield instance
        except RunError as e:
            self._keep_logs(log)
            raise TrialFailedError(
                f"{e.what}; the program runs nowhere, since the checkpoint has ended it", where=str(log)
            ) from e

    def _keep_logs(self, log: Path) -> None:
        log.mkdir(parents=True, exist_ok=True)
        for directory in ("images", "copy"):
            for file in (self.place / directory).glob("*.log"):
                shutil.copy(file, log / f"checkpoint.{file.name}")


def _size(directory: Path) -> int:
    with os.scandir(directory) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".img"))
