"""Exec: the time from the request to the start of a command in a running instance."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..environments import RemoteInstance
from ..errors import TrialFailedError
from ..host.processes.helper import wait_readable
from ..host.replies import FirstInstruction, read_reply
from ..meters.groups import MeteredArm
from ..model.study import Arm, Design, EventSubject, SubjectFacts
from ..node.arms.running_arm import RunningArm
from .contract import Cost, Subject
from .events.rows import START_SECONDS, event_row
from .rounds import shuffled

EXEC = SubjectFacts(
    name="exec",
    doc="from the request to the first instruction of a command in a running instance",
    event="a command",
    metrics=("exec",),
    quantiles=frozenset({"exec"}),
    plurals={"exec": "commands"},
)
COMMAND_LIMIT = 60.0
"""Seconds after which a command in a running instance counts as failed. Normally it takes milliseconds."""


class Exec(Subject):
    """Runs a command in the first instance of every arm repeatedly, one arm after the other in random order.

    The first command of each arm only checks that commands work, and is not counted.
    """

    facts = (EXEC,)

    @classmethod
    def cost(cls, workloads: Sequence[EventSubject], arm: Arm, design: Design) -> Cost:
        return Cost(once=sum(w.count_in(design) for w in workloads) * START_SECONDS)

    def while_running(self, arms: Mapping[str, MeteredArm]) -> None:
        rng = self.group.rng
        for w in self.workloads:
            some = self.group.taking(w)
            n = w.count_in(self.group.design)
            for t in shuffled(some, rng):
                with arms[t.id].running.guard():
                    _try_command(arms[t.id].running)
            seconds: dict[str, list[float]] = {t.id: [] for t in some}
            for _ in range(n):
                for t in shuffled(some, rng):
                    with arms[t.id].running.guard():
                        seconds[t.id].append(_first_instruction(arms[t.id].running))
            for t in some:
                if len(seconds[t.id]) == n:
                    t.found.rows.append(event_row(w, "exec", "s", seconds[t.id]))


def _try_command(arm: RunningArm) -> None:
    argv = arm.instances[0].command(["true"])
    done = arm.node.machine.host.run(argv, timeout=COMMAND_LIMIT, cwd=Path("/"))
    if not done.ok:
        raise TrialFailedError(
            f"a command in the instance failed: {done.failure()}", where=str(arm.trial.log)
        )


def _first_instruction(arm: RunningArm) -> float:
    """Run a command in the first instance. Return the seconds from the request to its first instruction.

    The command writes the time of CLOCK_MONOTONIC into a FIFO. Containers share this clock with the machine;
    the time of a guest is converted to it.
    Raises TrialFailedError if the command does not report or end in time.
    """
    guest = next(iter(arm.guests), None)
    where = str(arm.trial.log)
    with _fifo(arm.trial.directory / "exec", guest) as (path, descriptor):
        init = [arm.software.tools / "nm-init", "--once-fifo", str(path)]
        argv = arm.instances[0].command(init)
        host = arm.node.machine.host
        begin = time.monotonic_ns()
        process = host.launch(
            [host.which(argv[0]) or argv[0], *argv[1:]], expect=frozenset(), timeout=COMMAND_LIMIT
        ).process
        try:
            if not wait_readable(descriptor, COMMAND_LIMIT):
                raise TrialFailedError(
                    f"a command in the instance did not report for {COMMAND_LIMIT:g} s", where=where
                )
            first = read_reply(os.read(descriptor, 4096), FirstInstruction, where).first
            process.wait(COMMAND_LIMIT)
        except TimeoutError as e:
            raise TrialFailedError(f"a command in the instance does not end: {e}", where=where) from e
        finally:
            process.kill()
    return ((first if guest is None else guest.on_host(first)) - begin) / 1e9


@contextmanager
def _fifo(path: Path, guest: RemoteInstance | None) -> Iterator[tuple[Path, int]]:
    os.mkfifo(path, 0o600)
    carrier = None
    try:
        if guest is not None:
            guest.copy_in([path])
            carrier = guest.carry(path, inward=False)
        # Also opened for writing, so that no end of file is read before the report.
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield path, descriptor
        finally:
            os.close(descriptor)
    finally:
        if carrier is not None:
            carrier.kill()
        path.unlink()
