"""The companion of an arm: a command (a monitor, a checkpointer) that runs for as long as the trial, in an
instance of another kind or in the first instance of the arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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

    instance: its own instance; None if it runs in the first instance of the arm.
    program: the first word of its command.
    stderr: file with the standard error of the command.
    """

    instance: Instance | None
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
def companion(trial: Trial, wanted: Companion, instances: Sequence[Instance]) -> Iterator[RunningCompanion]:
    """Start the companion of a trial. Its command and its own instance are ended on exit.

    instances: the running instances of the arm.

    Raises RunError, UnavailableError.
    """
    trial.log.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        own: Instance | None = None
        if wanted.backend is not None:
            request = _request(trial, wanted, wanted.backend)
            own = stack.enter_context(trial.start(request))
        command = (own or instances[0]).command(wanted.argv)
        stdout, stderr = (trial.log / f"beside.{name}.txt" for name in ("stdout", "stderr"))
        process = trial.node.machine.host.start(command, stdout=stdout, stderr=stderr, cwd=Path("/"))
        stack.callback(process.kill)
        yield RunningCompanion(instance=own, process=process, program=wanted.argv[0], stderr=stderr)


def _request(trial: Trial, wanted: Companion, backend: str) -> InstanceRequest:
    arm, node = trial.arm, trial.node
    software = node.software_of(arm)
    own_network = "net" in node.backends[backend].capabilities.own
    label, hostname, scratch = request_name(trial, "beside")
    return InstanceRequest(
        label=label,
        hostname=hostname,
        environment=Environment(
            name=f"{arm.environment.name}, beside",
            backend=backend,
            image=arm.environment.image,
            attachment=Attachment.NONE if own_network else Attachment.HOST,
            limits=wanted.limits,
            placements=(),
        ),
        cpus=wanted.cpus or trial.all_cpus,
        binds=(trial.directory, software.tools.directory),
        scratch=scratch,
        tree=software.tree,
        base=node.bases.get(arm.environment.name),
        user_namespace=node.user_namespace,
    )
