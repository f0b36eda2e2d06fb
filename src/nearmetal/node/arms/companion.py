"""The companion of an arm: an instance of another kind that runs a command (a monitor, a checkpointer) for as
long as the trial runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...environments import Instance, InstanceRequest
from ...errors import TrialFailedError
from ...host import Process
from ...host.processes.failure import describe_failure
from ...model.study import Attachment, Companion, Environment
from ..trial import Trial
from .starting import request_name


@dataclass(frozen=True, kw_only=True)
class RunningCompanion:
    """A running companion.

    program: the first word of its command.
    stderr: file with the standard error of the command.
    """

    instance: Instance
    process: Process
    program: str
    stderr: Path

    def require_sound(self) -> None:
        """Check that the command has not ended with an error. Otherwise the trial did not run under the
        conditions of the study.

        Raises TrialFailedError if it has.
        """
        code = self.process.poll()
        if code not in (None, 0):
            failure = describe_failure(self.program, code, self.stderr.read_text(errors="replace"))
            raise TrialFailedError(f"companion: {failure}", where=str(self.stderr))


@contextmanager
def companion(trial: Trial, wanted: Companion) -> Iterator[RunningCompanion]:
    """Start the companion of a trial. Its command and its instance are ended on exit.

    Raises RunError, UnavailableError.
    """
    trial.log.mkdir(parents=True, exist_ok=True)
    node = trial.node
    host, tools = node.machine.host, node.software_of(trial.arm).tools
    with node.backends[wanted.backend].start(host, tools, _request(trial, wanted)) as instance:
        stdout, stderr = (trial.log / f"beside.{name}.txt" for name in ("stdout", "stderr"))
        process = host.start(instance.command(wanted.argv), stdout=stdout, stderr=stderr, cwd=Path("/"))
        try:
            yield RunningCompanion(instance=instance, process=process, program=wanted.argv[0], stderr=stderr)
        finally:
            process.kill()


def _request(trial: Trial, wanted: Companion) -> InstanceRequest:
    arm, node = trial.arm, trial.node
    software = node.software_of(arm)
    own_network = "net" in node.backends[wanted.backend].capabilities.own
    label, hostname, scratch = request_name(trial, "beside")
    numbers = range(arm.placement.all_instances)
    every = sorted({cpu for i in numbers for cpu in node.instance_cpus(arm, i)})
    return InstanceRequest(
        label=label,
        hostname=hostname,
        environment=Environment(
            name=f"{arm.environment.name}, beside",
            backend=wanted.backend,
            image=arm.environment.image,
            attachment=Attachment.NONE if own_network else Attachment.HOST,
            limits=wanted.limits,
            placements=(),
        ),
        cpus=wanted.cpus or tuple(every),
        seat=None,
        binds=(trial.directory, software.tools.directory),
        scratch=scratch,
        tree=software.tree,
        base=node.bases.get(arm.environment.name),
        user_namespace=node.user_namespace,
    )
