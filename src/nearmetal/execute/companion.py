"""The companion of an arm: an instance of another kind beside its own, in which a command runs for as long as
the trial does (a monitor, a checkpointer)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..environments import Instance, InstanceRequest
from ..errors import TrialFailedError
from ..host import Process
from ..host.failure import describe_failure
from ..model.study import Attachment, Companion, Environment
from .session import Session
from .standing import Standing
from .starting import request_name


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A running companion.

    program: the first word of its command.
    stderr: the log of its standard error.
    """

    instance: Instance
    process: Process
    program: str
    stderr: Path


@contextmanager
def companion(session: Session, s: Standing, wanted: Companion) -> Iterator[Beside]:
    """Ended, and its instance gone, on leaving. Raises RunError, UnavailableError."""
    s.log.mkdir(parents=True, exist_ok=True)
    host, tools = session.machine.host, session.software_of(s.arm).tools
    backend = session.backends[wanted.backend]
    request = _request(session, s, wanted)
    with backend.start(host, tools, request) as instance:
        stdout, stderr = (s.log / f"beside.{name}.txt" for name in ("stdout", "stderr"))
        process = host.start(instance.command(wanted.argv), stdout=stdout, stderr=stderr, cwd=Path("/"))
        try:
            yield Beside(instance=instance, process=process, program=wanted.argv[0], stderr=stderr)
        finally:
            process.kill()


def still_well(beside: Beside) -> None:
    """Raises TrialFailedError where its command has ended with an error: the trial then was not what the
    study asks for."""
    code = beside.process.poll()
    if code not in (None, 0):
        failure = describe_failure(beside.program, code, beside.stderr.read_text(errors="replace"))
        raise TrialFailedError(f"companion: {failure}", where=str(beside.stderr))


def _request(session: Session, s: Standing, wanted: Companion) -> InstanceRequest:
    software = session.software_of(s.arm)
    own_network = "net" in session.backends[wanted.backend].capabilities.own
    label, hostname, scratch = request_name(session, s, "beside")
    numbers = range(s.arm.placement.all_instances)
    every = sorted({cpu for i in numbers for cpu in session.instance_cpus(s.arm, i)})
    return InstanceRequest(
        label=label,
        hostname=hostname,
        environment=Environment(
            name=f"{s.arm.environment.name}, beside",
            backend=wanted.backend,
            image=s.arm.environment.image,
            attachment=Attachment.NONE if own_network else Attachment.HOST,
            limits=wanted.limits,
            placements=(),
        ),
        cpus=wanted.cpus or tuple(every),
        seat=None,
        binds=(s.directory, software.tools.directory),
        scratch=scratch,
        tree=software.tree,
        base=session.bases.get(s.arm.environment.name),
        user_namespace=session.user_namespace,
    )
