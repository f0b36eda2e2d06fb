"""Workers as the tasks of job arrays of Slurm, each on a node of its own: one array, or as many as
MaxArraySize requires."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..errors import RunError, UnavailableError
from ..host import Host
from .contract import EXTRA, NUMBER, SECONDS, Job, State, ask, extra_words, number_in

GRACE = 60
"""Seconds before the time limit of a task at which Slurm tells its worker to end."""
_RUNNING = frozenset(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"))
_WAITING = frozenset(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"))
_ENDED = (
    *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
    *("OUT_OF_MEMORY", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL"),
)
_STATES = {
    **dict.fromkeys(_RUNNING, State.RUNNING),
    **dict.fromkeys(_WAITING, State.WAITING),
    **dict.fromkeys(_ENDED, State.ENDED),
}


class Slurm:
    """The engine that submits workers to Slurm. If a node fails, Slurm starts its task again (--requeue). The
    restarted task is a new worker."""

    options: Mapping[str, str] = EXTRA
    id = NUMBER

    def submit(self, host: Host, job: Job, options: Mapping[str, str]) -> tuple[str, ...]:
        if host.which("sbatch") is None:
            raise UnavailableError("no sbatch here", remedy="run this where jobs of Slurm are submitted")
        try:
            return (_submit(host, job, job.workers, f"{job.logs}/%a.out", options),)
        except RunError:  # perhaps because the array has more tasks than this Slurm allows
            if job.workers < 2 or (most := _largest_index(host)) >= job.workers:
                raise
        ids: list[str] = []
        for number, first in enumerate(range(0, job.workers, most), start=1):
            # The output of worker 1 is 1.out; that of the first worker of a second array is 2-1.out.
            log = f"{job.logs}/{f'{number}-' if number > 1 else ''}%a.out"
            try:
                ids.append(_submit(host, job, min(most, job.workers - first), log, options))
            except RunError:
                self.cancel(host, ids, options)
                raise
        return tuple(ids)

    def states(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> dict[str, State]:
        found: dict[str, State] = {}
        for identity in ids:
            argv = ["squeue", "--noheader", "--array", "--states=all", "--format=%i %T", f"--jobs={identity}"]
            done = host.run(argv, timeout=SECONDS)
            known = {
                task: _STATES.get(state, State.UNKNOWN)
                for task, state in re.findall(r"^\s*(\S+) (\S+)$", done.stdout, re.MULTILINE)
            }
            # Slurm forgets a job some minutes after its end.
            forgotten = done.ok or "Invalid job id" in done.stderr
            found |= known or {identity: State.ENDED if forgotten else State.UNKNOWN}
        return found

    def cancel(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> None:
        host.run(["scancel", "--quiet", *ids], timeout=SECONDS)


def _submit(host: Host, job: Job, workers: int, log: str, options: Mapping[str, str]) -> str:
    """Submit one array with this number of workers, and return its job ID.

    log: path of a worker's output, where %a stands for the number of the worker.

    Raises RunError.
    """
    limit = [f"--time={job.minutes}", f"--signal=B:TERM@{GRACE}"] if job.minutes else []
    argv = [
        *("sbatch", "--parsable", f"--job-name={job.name}", f"--array=1-{workers}"),
        *("--nodes=1", "--ntasks=1", f"--cpus-per-task={job.cpus}", "--exclusive", "--requeue"),
        *("--open-mode=append", f"--output={log}", f"--chdir={job.directory}", *limit),
        *extra_words(options),
    ]
    return number_in(ask(host, argv, stdin=job.script()).stdout.strip().partition(";")[0], "sbatch")


def _largest_index(host: Host) -> int:
    """Return the largest index of a task that this Slurm allows in an array, which is MaxArraySize - 1.

    Raises RunError if the controller does not answer.
    """
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", ask(host, ["scontrol", "show", "config"]).stdout, re.M)
    if found is None:
        raise RunError("scontrol show config names no MaxArraySize")
    if int(found[1]) < 2:
        raise RunError("this Slurm allows no job arrays: MaxArraySize is 1", remedy="--workers 1")
    return int(found[1]) - 1
