"""Workers as the processes of a job cluster of HTCondor, in its vanilla universe."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from ..errors import RunError, UnavailableError, UsageError
from ..host import Host
from ..host.untrusted import UntrustedDirectory
from ..model.change import replace
from .contract import NUMBER, SECONDS, Job, State, ask, number_in

GRACE = 60
"""Seconds that HTCondor gives a worker to return its unfinished block before the worker is killed."""
_STATES = {
    **dict.fromkeys("1", State.WAITING),
    **dict.fromkeys("267", State.RUNNING),
    **dict.fromkeys("345", State.ENDED),
}
"""States by JobStatus. A held job (5) counts as ended, because only a person can release it. The log contains
the reason."""


_PASSED_ON = re.compile(
    "PATH|HOME|USER|LOGNAME|LANG|LC_[A-Z]+|TZ|XDG_CACHE_HOME|LD_LIBRARY_PATH|CPATH|C_INCLUDE_PATH"
    "|LIBRARY_PATH|OPAL_PREFIX"
)
"""Environment variables that a worker needs to find programs, caches, compilers and MPI. Everybody who may
read the queue sees the variables, so none of them may contain a secret."""
_OF_CONDOR = re.compile("_?CONDOR_[A-Za-z0-9_.]+")
"""Environment variables by which the commands of HTCondor find its configuration."""


class HTCondor:
    """The engine that submits workers to HTCondor. All machines have to share the results directory, since no
    files are transferred."""

    options: Mapping[str, str] = {
        "extra": "a line of the submit description, such as 'requirements = Machine == \"n1\"'",
        "dagman": "'yes' lets DAGMan submit the workers, each as a node of a graph without edges",
    }
    id = NUMBER

    def submit(self, host: Host, job: Job, options: Mapping[str, str]) -> tuple[str, ...]:
        if host.which("condor_submit") is None:
            raise UnavailableError("no condor_submit here", remedy="run this on a submit node of HTCondor")
        extra = options.get("extra", "")
        if (dagman := options.get("dagman", "no")) not in ("yes", "no"):
            raise UsageError(f"--engine-option dagman={dagman}: neither yes nor no", remedy="dagman=yes")
        if dagman == "yes":
            return (_by_dagman(host, job, extra),)
        done = ask(host, ["condor_submit", "-terse", "-"], stdin=description(job, extra))
        return (number_in(done.stdout.partition(".")[0], "condor_submit"),)

    def states(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> dict[str, State]:
        found: dict[str, State] = {}
        for cluster in ids:
            # If the cluster is a job of DAGMan, the workers that it has submitted are selected too.
            own = f"ClusterId == {cluster} || DAGManJobId == {cluster}"
            done = host.run(["condor_q", "-constraint", own, "-af:j", "JobStatus"], timeout=SECONDS)
            known = {
                name: _STATES.get(code, State.UNKNOWN)
                for name, code in re.findall(r"^(\S+) (\S+)$", done.stdout, re.MULTILINE)
            }
            # A job that has ended leaves the queue. The daemon of the queue does not answer at times.
            absent = State.ENDED if done.ok and not done.stdout.strip() else State.UNKNOWN
            states = _of_workers(known, cluster) if options.get("dagman") == "yes" else known
            found |= states or {cluster: absent}
        return found

    def cancel(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> None:
        for cluster in ids:
            host.run(["condor_rm", cluster], timeout=SECONDS)


def _of_workers(known: Mapping[str, State], dagman: str) -> dict[str, State]:
    """Return the states of the workers that DAGMan has submitted, without the state of its own job.

    DAGMan's own job runs as long as it has workers, even if all of them are held. Until it has submitted a
    worker, its own job stands for workers that wait.

    known: state by job ID.
    dagman: cluster ID of DAGMan's own job.
    """
    workers = {name: state for name, state in known.items() if name.partition(".")[0] != dagman}
    return workers or {
        name: State.WAITING if state is State.RUNNING else state for name, state in known.items()
    }


def _by_dagman(host: Host, job: Job, extra: str) -> str:
    """Let DAGMan submit the workers, and return the number of its own job. Removing that job removes them.

    The files of the graph are written beside the output of the workers.

    Raises RunError.
    """
    one, graph, directory = "worker.sub", "workers.dag", UntrustedDirectory(job.logs)
    # Names relative to the directory in which DAGMan runs: a path in a graph may contain no space.
    nodes = "".join(f'JOB w{n} {one}\nVARS w{n} worker="{n}"\n' for n in range(1, job.workers + 1))
    texts = {one: description(replace(job, workers=1), extra, name="$(worker)"), graph: nodes}
    for name, text in texts.items():
        directory.unlink(name)
        directory.write_bytes(name, text.encode(), mode=0o600)
    # Without other variables, because some versions publish the environment of this command.
    own = [f"{name}={value}" for name, value in _environment(_PASSED_ON, _OF_CONDOR).items()]
    # -force: the files of an earlier graph of this run, which resuming continues, may be replaced.
    argv = ["env", "-i", *own, "condor_submit_dag", "-force", "-batch-name", job.name, graph]
    done = ask(host, argv, cwd=job.logs)
    found = re.search(r"submitted to cluster (\d+)", done.stdout)
    if found is None:
        raise RunError(f"condor_submit_dag printed no number of a cluster: {done.stdout.strip()!r}")
    return found[1]


def description(job: Job, extra: str, *, name: str = "$(Process)") -> str:
    """Return the submit description of a job.

    name: name of a worker's output file, without its suffix.
    """
    lines = {
        "universe": "vanilla",
        "batch_name": job.name,
        # HTCondor would empty the output of a worker that it starts again.
        "executable": "/bin/sh",
        "transfer_executable": "false",
        "should_transfer_files": "no",
        "arguments": quoted(["-c", 'exec "$@" >>"$0" 2>&1', f"{job.logs}/{name}.out", *job.argv]),
        "environment": quoted([f"{k}={v}" for k, v in _environment(_PASSED_ON).items()]),
        "initialdir": str(job.directory),
        "log": f"{job.logs}/htcondor.log",
        "request_cpus": str(job.cpus),
        "kill_sig": "SIGTERM",
        "job_max_vacate_time": str(GRACE),
    }
    if job.seconds is not None:
        lines["allowed_job_duration"] = str(job.minutes * 60)
    text = "".join(f"{key} = {value}\n" for key, value in lines.items())
    return f"{text}{extra}\nqueue {job.workers}\n"


def _environment(*wanted: re.Pattern[str]) -> dict[str, str]:
    """Return the environment variables of this process with these names. Those with values that a submit
    description cannot hold are left out."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if any(names.fullmatch(name) for names in wanted) and not re.search(r"[$\r\n]", value)
    }


def quoted(words: Sequence[str]) -> str:
    """Return words as a value of `arguments` or `environment` in HTCondor's newer syntax.

    The whole value is in double quotes, and a word with special characters is in single quotes. A quote
    inside is written twice.
    """
    plain = (
        word if word and shlex.quote(word) == word else "'" + word.replace("'", "''") + "'" for word in words
    )
    return '"' + " ".join(plain).replace('"', '""') + '"'
