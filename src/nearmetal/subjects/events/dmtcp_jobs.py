"""A whole MPI job that DMTCP writes to files and restarts in another instance."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ...environments import Backend, Instance, InstanceRequest, Tools
from ...environments.dmtcp import IMAGES, Dmtcp, failure_in, processes_in
from ...environments.program import read_log, read_pid
from ...errors import RunError, TrialFailedError
from ...host import Host, Process
from ...host.processes.failure import describe_failure
from ...host.processes.held import await_ends, holding, holding_mounts
from ...host.removal import remove_tree
from ...lifecycle import Phase, PhaseTimes
from ...model.change import replace
from ...model.study import Attachment, Mpi
from .pace import PhaseTimer, behind, ignore, pace
from .progress import ProgramProgress
from .verified import LEAST_PASSES, Restored, VerifiedProgram, require_right

LIMIT = 120.0
"""Seconds after which a command, or waiting for the job, fails."""
_ENDED = 5.0
"""Seconds to wait for the end of the source's processes."""
_LOOK_AGAIN = 0.002
LAUNCH, RESTART = "launch", "restart"
"""Parts of the names of a job's output files, before and after its restart."""


@dataclass(frozen=True, kw_only=True)
class RestartEvent:
    """Starts an instance with an MPI job in it, writes the job to files, and restarts it from copies of the
    files in another instance.

    here, there: requests for the instances at the source and at the destination.
    images: an empty directory, mounted in both instances. DMTCP restarts a job only from the path to which it
        wrote the files, so the copies replace the files there.
    program: the job.
    mpi: the MPI that the job is linked with.
    scratch: directory for files of DMTCP and of MPI, mounted in both instances.
    log: directory for the output of DMTCP's programs.
    notify: called at the beginning of each phase.
    """

    host: Host
    tools: Tools
    dmtcp: Dmtcp
    mpi: Mpi
    backend: Backend
    here: InstanceRequest
    there: InstanceRequest
    images: Path
    program: VerifiedProgram
    scratch: Path
    log: Path
    notify: Callable[[Phase], None] = ignore

    def run(self) -> Restored:
        """Checkpoint and restart the job once. Everything that was started ends before it returns.

        Raises TrialFailedError if the event fails, which says where the job then runs; RunError and
        UnavailableError if an instance does not start.
        """
        self.log.mkdir(parents=True, exist_ok=True)
        self._files.mkdir()
        timer = PhaseTimer(notify=self.notify)
        with ExitStack() as there, ExitStack() as here:
            source = self._start(self.here, here)
            port = self._coordinate(source, self.here, here)
            launch = self.dmtcp.launch(port, self._files, self.scratch, self.mpi)
            job = self._begin(source, [*launch, *self.program.argv], LAUNCH, here)
            self._wait(job, lambda now: now.steps >= 1, LAUNCH, "does not start its work")
            begun = self.program.mark()
            self._wait(job, lambda now: now.passes >= 1, LAUNCH, "does not start its work")
            there.enter_context(holding_mounts(source.pid))
            held = there.enter_context(holding(source.pid))
            requested = self.program.mark()
            with timer.phase(Phase.CONNECT):
                target = self._start(self.there, there)
                other = self._coordinate(target, self.there, there)
            try:
                with timer.phase(Phase.DUMP):
                    self._write(source, port)
                before, stopped = self.program.progress(), self.program.last_step()
                with timer.phase(Phase.REMOVAL):
                    here.close()
                    if left := await_ends(held, _ENDED):
                        raise RunError(f"{left} processes of the job run after its checkpoint")
                with timer.phase(Phase.COPY):
                    self._copy()
            except (RunError, OSError) as error:
                raise self._failed(error) from error
            with timer.phase(Phase.RESTORE):
                restart = self.dmtcp.restart(other, self._files, self.scratch)
                again = self._begin(target, restart, RESTART, there)
                self._wait(again, lambda now: now.steps > before.steps, RESTART, "does not continue")
                resumed = time.monotonic()
            moved = self._wait(
                again,
                lambda now: now.passes >= before.passes + LEAST_PASSES,
                RESTART,
                "does not verify its memory any more",
            )
            require_right(moved, self.log)
            size = sum(file.stat().st_size for file in self._files.rglob("*") if file.is_file())
            return Restored(
                phases=PhaseTimes(timer.seconds),
                pauses=self.program.pauses(),
                stopped=resumed - stopped,
                size=size,
                sent=size,
                behind=behind(pace(begun, requested), requested, self.program.mark()),
                passes=moved.passes - before.passes,
            )

    @property
    def _files(self) -> Path:
        """The directory to which DMTCP writes the files of the job, and from which it reads the copies."""
        return self.images / "files"

    def _start(self, request: InstanceRequest, stack: ExitStack) -> Instance:
        """Start an instance until the stack is closed.

        DMTCP's coordinator listens at all addresses, and obeys everybody. So without a seat, whose network is
        the job's alone, the instance gets a loopback interface of its own, whatever its environment says.
        """
        own = replace(request, binds=(*request.binds, self.images, *self.dmtcp.binds))
        if request.seat is None:
            own = replace(own, environment=replace(request.environment, attachment=Attachment.NONE))
        return stack.enter_context(self.backend.start(self.host, self.tools, own))

    def _coordinate(self, instance: Instance, request: InstanceRequest, stack: ExitStack) -> int:
        """Start DMTCP's coordinator in an instance until the stack is closed. Return its TCP port."""
        name = f"coordinator.{request.scratch.name}"
        file = self.scratch / f"{request.scratch.name}.port"
        process = self._begin(instance, self.dmtcp.coordinator(file, self._files), name, stack)
        end = time.monotonic() + LIMIT
        while (port := read_pid(file)) is None:
            if (status := process.poll()) is not None or time.monotonic() > end:
                what = describe_failure("dmtcp_coordinator", status, self._printed(name))
                raise TrialFailedError(f"DMTCP does not start: {what}", where=str(self.log))
            time.sleep(_LOOK_AGAIN)
        return port

    def _begin(self, instance: Instance, argv: Sequence[str], name: str, stack: ExitStack) -> Process:
        """Start a program in an instance. It is killed when the stack is closed.

        name: name of the program's step, by which its output file is called.
        """
        output = self._output(name)
        process = self.host.start(instance.command(argv), stdout=output, stderr=output, cwd=Path("/"))
        stack.callback(process.kill)
        return process

    def _write(self, source: Instance, port: int) -> None:
        """Write the job to files, and wait until its processes have ended.

        port: of DMTCP's coordinator.
        Raises RunError if not all processes were written, or if they do not end.
        """
        done = self.host.run(source.command(self.dmtcp.checkpoint(port)), timeout=LIMIT, cwd=Path("/"))
        if not done.ok:
            raise RunError(f"no checkpoint: {done.failure()}", where=str(self.log))
        status, end = source.command(self.dmtcp.status(port)), time.monotonic() + LIMIT
        while processes_in(self.host.run(status, timeout=LIMIT, cwd=Path("/")).stdout) != 0:
            if (why := failure_in(self._printed(LAUNCH))) or time.monotonic() > end:
                raise RunError(f"no checkpoint: {why or f'the job has not ended after {LIMIT:g} s'}")
            time.sleep(_LOOK_AGAIN)
        why = failure_in(self._printed(LAUNCH))
        if why or len(list(self._files.glob(IMAGES))) <= len(self.program.records):
            raise RunError(f"no checkpoint: {why or 'DMTCP has not written all processes'}")

    def _copy(self) -> None:
        """Copy the files of the checkpoint, and replace them by the copies.

        Raises RunError or OSError if this fails.
        """
        copies = self.images / "copies"
        done = self.host.run(["cp", "--archive", str(self._files), str(copies)], timeout=LIMIT, cwd=Path("/"))
        if not done.ok:
            raise RunError(f"the checkpoint is not copied: {done.failure()}")
        remove_tree(self._files)
        copies.rename(self._files)

    def _failed(self, error: RunError | OSError) -> TrialFailedError:
        """Return the error, with where the job now runs.

        DMTCP lets a job continue that it could not write.
        """
        fate = "the job goes on at the source" if self.program.goes_on() else "the job runs nowhere"
        what = error.what if isinstance(error, RunError) else error.strerror
        return TrialFailedError(f"{what}; {fate}", where=str(self.log))

    def _wait(
        self, job: Process, reached: Callable[[ProgramProgress], bool], name: str, failure: str
    ) -> ProgramProgress:
        """Wait until the job's progress fulfils `reached`, and return this progress.

        name: LAUNCH or RESTART, by which `job` was started.
        failure: predicate of the error message, such as "does not start its work".
        Raises TrialFailedError if the job ends before, or does not get that far within LIMIT seconds.
        """
        end = time.monotonic() + LIMIT
        while not reached(now := self.program.progress()):
            if why := self._trouble(job, name, late=time.monotonic() > end):
                where = "; the job runs nowhere" if name == RESTART else ""
                raise TrialFailedError(f"the job {failure}: {why}{where}", where=str(self.log))
            time.sleep(_LOOK_AGAIN)
        return now

    def _trouble(self, job: Process, name: str, *, late: bool) -> str:
        """Return why the job will not continue; empty if it may.

        name: LAUNCH or RESTART. A launch that ends is a failure, a restart only if its status is not 0.
        late: whether the time limit has passed.
        """
        printed, status = self._printed(name), job.poll()
        ended = status is not None and (status != 0 or name == LAUNCH)
        if (why := failure_in(printed)) or not (ended or late):
            return why
        return describe_failure("mpirun", status, printed) if ended else f"not within {LIMIT:g} s"

    def _output(self, name: str) -> Path:
        return self.log / f"dmtcp.{self.here.scratch.name}.{name}.txt"  # of this event alone

    def _printed(self, name: str) -> str:
        return read_log(self._output(name))
