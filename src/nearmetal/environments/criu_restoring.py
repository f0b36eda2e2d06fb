"""Restores instances by CRIU, or by container programs that run CRIU."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from ..errors import RunError
from ..host import Host, Process
from ..host.processes import labelled as processes
from .contract import Instance, InstanceRequest, Tools
from .criu import (
    CRIU_PID,
    LAZY_LOG,
    LOOK_AT_CRIU,
    PID_FILE,
    RESTORE_LOG,
    SECONDS,
    ConfirmedFinding,
    has_content,
)
from .criu_images import check_images, first_error, lost_memory
from .instance import seconds
from .program import in_groups, log_failure, read_pid

_END_SECONDS = 10.0
_RESTORE_OUTPUT = "restore.err"
_LOOK_AGAIN = 0.001


def restorer(
    tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], *, apart: bool = False
) -> list[str]:
    """Return the command prefix for a program that restores an instance.

    The program and the restored processes are killed when nearmetal dies. They are put into the control
    groups and on the CPUs of the request. Zombies are reaped at once, even if PID 1 of the machine does not.
    groups: directory by controller.
    apart: whether the program gets its own PID and network namespaces.
    """
    separate = [tools / "nm-box", "wrap", "--new-pids", "--new-net", "--"] if apart else []
    words = [*separate, tools / "nm-box", "reap", "--"]
    return in_groups(tools, groups, request.label, words, request.cpus)


def _why_stuck(pid: int, request: InstanceRequest, images: Path) -> str:
    """Return why a program that restores an instance will hang forever; empty if no reason is found.

    A container program does not notice that CRIU was killed, as long as processes live that CRIU has created.
    CRIU may wait forever for its processes if the program that fetches their memory has ended.
    """
    log = images / RESTORE_LOG
    if not has_content(log):
        return ""
    criu = read_pid(images / CRIU_PID)
    if not any(processes.opened(p, str(log)) for p in (processes.tree(pid) if criu is None else (criu,))):
        return "CRIU has ended"
    if not request.lazy or not lost_memory(log):
        return ""
    fetchers = processes.labelled(lambda label: label == request.label)
    if any(processes.opened(p, str(images / LAZY_LOG)) for p in fetchers):
        return ""
    return "the program that fetches its memory has ended"


def start_restoring(host: Host, request: InstanceRequest, argv: Sequence[str], images: Path) -> Process:
    """Start a program that restores an instance, and return at once."""
    output = images / _RESTORE_OUTPUT
    environment = {processes.LABEL_VARIABLE: request.label}
    return host.start(argv, stdout=output, stderr=output, env=environment, cwd=Path("/"))


@contextmanager
def restoring_from(
    host: Host,
    request: InstanceRequest,
    argv: Sequence[str],
    images: Path,
    *,
    begun: Callable[[], Process] | None = None,
    apart: bool = False,
    pid_of: Callable[[int], int | None] | None = None,
    why_stuck: Callable[[int], str] | None = None,
) -> Iterator[int]:
    """Run a program that restores an instance, and stays as the parent of its first process, until exit.

    images: directory of the checkpoint; CRIU's log and the PID file are written to it.
    begun: lets an earlier started program continue, and returns its process; None to start argv now.
    apart: whether the PID in the PID file belongs to another PID namespace.
    pid_of: returns the PID of the first process, given that of the program, and None until all is restored.
        If omitted, the PID is read from the PID file.
    why_stuck: returns why the program will hang forever, given its PID; '' if it may succeed. If omitted, the
        reasons are searched in CRIU's log.
    Yields the PID of the first process on the machine. Raises RunError.
    """
    check_images(images)
    log, pid_file, output = images / RESTORE_LOG, images / PID_FILE, images / _RESTORE_OUTPUT
    process = start_restoring(host, request, argv, images) if begun is None else begun()
    pid: int | None = None
    try:
        end = time.monotonic() + SECONDS
        by_log = partial(_why_stuck, request=request, images=images)
        stuck = ConfirmedFinding(partial(why_stuck or by_log, process.pid))
        while (pid := read_pid(pid_file) if pid_of is None else pid_of(process.pid)) is None:
            confirmed = stuck.look()
            if confirmed or process.poll() is not None or time.monotonic() > end:
                why = (
                    stuck.found or first_error(log) or log_failure(Path(argv[0]).name, process.poll(), output)
                )
                raise RunError(f"not restored: {why}", where=str(log))
            time.sleep(_LOOK_AGAIN)
        if apart and (pid := processes.descendant(process.pid, "nm-init")) is None:
            raise RunError("not restored: the first process has ended", where=str(log))
        yield pid
    finally:
        if pid is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            end = time.monotonic() + _END_SECONDS
            # It ends with its processes, but not if these end while it has no memory for them.
            while process.poll() is None and time.monotonic() < end and not lost_memory(log):
                with contextlib.suppress(TimeoutError):
                    process.wait(LOOK_AT_CRIU)
        process.kill()


class EarlyRestore:
    """Restores one instance (moving.BeginsEarly). CRIU takes 20 to 50 ms to look at the kernel, and as long
    to mount what a container had mounted.

    With lazy pages CRIU must not begin early: it connects to the program that fetches memory.
    """

    def __init__(
        self,
        host: Host,
        request: InstanceRequest,
        argv: Callable[[Path, Path | None], Sequence[str]],
        instance: Callable[[int, Mapping[str, float]], Instance],
        kept: ExitStack,
        *,
        lazily: bool = False,
        apart: bool = False,
    ) -> None:
        """argv: returns the command line that restores from a directory. The program waits for a line from a
            FIFO if there is one; with lazy pages, before CRIU begins.
        instance: returns the instance, given its first process and the times of the restore.
        kept: what ends when the instance has ended.
        lazily: whether argv() can wait with lazy pages.
        apart: as in restoring_from().
        """
        self._host, self._request, self._kept = host, request, kept
        self._command, self._instance = argv, instance
        self._early, self._apart = lazily or not request.lazy, apart
        self._begun: Callable[[], Process] | None = None
        self._argv: Sequence[str] = ()

    def begin(self, images: Path) -> None:
        if not self._early:
            return
        hold = images / "hold"
        os.mkfifo(hold)
        gate = os.open(hold, os.O_RDWR | os.O_CLOEXEC)
        self._kept.callback(os.close, gate)
        self._argv = self._command(images, hold)
        process = start_restoring(self._host, self._request, self._argv, images)
        self._kept.callback(process.kill)

        def go_on() -> Process:
            if process.poll() is None:  # else CRIU, which may have outlived it, would restore what is lost
                os.write(gate, b"\n")
            return process

        self._begun = go_on

    @contextmanager
    def __call__(self, images: Path) -> Iterator[Instance]:
        begin, begun = time.monotonic_ns(), self._begun
        argv = self._command(images, None) if begun is None else self._argv
        restoring = restoring_from(self._host, self._request, argv, images, begun=begun, apart=self._apart)
        with restoring as pid:
            yield self._instance(pid, {"restore": seconds(begin, time.monotonic_ns())})
