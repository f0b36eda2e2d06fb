"""Workers as processes of this machine, each with CPUs of its own."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping, Sequence
from functools import partial

from ..errors import RunError, UsageError
from ..host import Host
from ..host.processes.birth import birth, send_signal
from .contract import BIRTH, PID, Job, State


class Local:
    """The engine that starts workers on this machine, each on CPUs of its own. The workers continue if the
    process that started them ends."""

    options: Mapping[str, str] = {}
    id = f"{PID}:{BIRTH}"

    def submit(self, host: Host, job: Job, options: Mapping[str, str]) -> tuple[str, ...]:
        cpus = host.cpus()
        share = len(cpus) // job.workers
        if share < job.cpus:
            raise UsageError(
                f"{job.workers} workers of {job.cpus} CPUs each do not fit on this machine, which has"
                f" {len(cpus)}",
                remedy=f"--workers {max(1, len(cpus) // job.cpus)}",
            )
        ids: list[str] = []
        for number in range(job.workers):
            own = ",".join(map(str, cpus[number * share : (number + 1) * share]))
            log = job.logs / f"{number + 1}.out"
            argv = ["taskset", "--cpu-list", own, *job.argv]
            process = host.start(argv, stdout=log, stderr=log, cwd=job.directory)
            born = birth(process.pid)
            if born is None:
                self.cancel(host, ids, options)
                raise RunError(f"worker {number + 1} ended at once", where=str(log), remedy="read its output")
            ids.append(f"{process.pid}:{born}")
        return tuple(ids)

    def states(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> dict[str, State]:
        return {i: State.RUNNING if _lives(i) else State.ENDED for i in ids}

    def cancel(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> None:
        for identity in ids:
            with contextlib.suppress(ProcessLookupError):
                send_signal(_parse(identity)[0], signal.SIGTERM, partial(_lives, identity))


def _parse(identity: str) -> tuple[int, int]:
    """Return the PID of a worker, and the start time of its process."""
    pid, born = map(int, identity.split(":"))
    return pid, born


def _lives(identity: str) -> bool:
    """Return whether a worker lives. Another process may have its PID now."""
    pid, born = _parse(identity)
    return birth(pid) == born
