"""Workers as the tasks of a job array of Slurm, each on a node of its own."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ..errors import UnavailableError
from ..host import Host
from .contract import EXTRA, SECONDS, Job, State, ask

GRACE = 60
"""Seconds before the time limit of a task at which Slurm tells its worker to end."""
_RUNNING = frozenset(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"))
_WAITING = frozenset(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"))


class Slurm:
    """Slurm restarts the worker of a failed node (--requeue). It is then another worker."""

    options: Mapping[str, str] = EXTRA

    def submit(self, host: Host, job: Job, options: Mapping[str, str]) -> tuple[str, ...]:
        if host.which("sbatch") is None:
            raise UnavailableError("no sbatch here", remedy="run this where jobs of Slurm are submitted")
        limit = [f"--time={job.minutes}", f"--signal=B:TERM@{GRACE}"] if job.minutes else []
        argv = [
            *("sbatch", "--parsable", f"--job-name={job.name}", f"--array=1-{job.workers}"),
            *("--nodes=1", "--ntasks=1", f"--cpus-per-task={job.cpus}", "--exclusive", "--requeue"),
            *("--open-mode=append", f"--output={job.logs}/%a.out", f"--chdir={job.directory}", *limit),
            *shlex.split(options.get("extra", "")),
        ]
        done = ask(host, argv, stdin=job.script())
        return (done.stdout.strip().partition(";")[0],)

    def states(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> dict[str, State]:
        del options
        found: dict[str, State] = {}
        for identity in ids:
            argv = ["squeue", "--noheader", "--array", "--states=all", "--format=%i %T", f"--jobs={identity}"]
            done = host.run(argv, timeout=SECONDS)
            if not done.ok and "Invalid job id" not in done.stderr:  # the controller does not answer
                found[identity] = State.WAITING
            for task, state in (line.split() for line in done.stdout.splitlines()):
                waits, runs = state in _WAITING, state in _RUNNING
                found[task] = State.WAITING if waits else State.RUNNING if runs else State.ENDED
            if not found:
                found[identity] = State.ENDED
        return found

    def cancel(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> None:
        del options
        host.run(["scancel", "--quiet", *ids], timeout=SECONDS)
