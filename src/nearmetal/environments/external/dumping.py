"""Checkpoints an instance by CRIU: in one dump, or after pre-copy rounds while it runs."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import ClassVar

from ...errors import RunError, UsageError
from ...host import Completed, Host
from ...host.processes.birth import stat_fields
from ...host.processes.failure import TIMED_OUT
from ...host.ssh import SshHost
from ...lifecycle import Method
from ..contract import Unavailable
from ..criu import DUMP_LOG, RESTORE_LOG, script, write_rounds
from ..criu_images import first_error
from ..moving import Criu, Dump
from .contract import DestinationKind, Dumps, Saved, Work, WrittenError, restore_line
from .disk import SYNC_LOG, sync_failure, synced_before_end
from .surroundings import HostCheck, checked

BY_IMAGES = (Method.CRIU, Method.CRIU_PRECOPY)
"""Methods by which CRIU writes all memory to files."""
BY_CONNECTION = (Method.CRIU_PAGESERVER, Method.CRIU_LAZY)
"""Methods by which CRIU sends the memory to another host, without a file on this one."""
_GONE_SECONDS = 10.0
_SETTLES_SECONDS = 1.0
"""Maximum time in seconds until a process continues after the CRIU that had stopped it was killed."""
_LOOK_AGAIN = 0.005
_STATE = 0
"""Index of the process state in fields_of()."""


class MovedByImages:
    """What all instances that CRIU writes to images have in common.

    sort: their kind for a message, such as 'a container'.
    """

    sort: ClassVar[str]

    def refuses(self, way: DestinationKind) -> Unavailable:
        return Unavailable(
            reason=f"{self.sort} is not moved to a QEMU", remedy="--to with a directory or a host name"
        )

    def exceeds(self, way: DestinationKind, method: Method, bandwidth: float) -> Unavailable | None:
        if way is DestinationKind.DIRECTORY:
            return Unavailable(
                reason="CRIU writes images to a directory by itself, as fast as the disk takes them",
                remedy="leave --bandwidth out, or --to with a host name: the copy is limited then",
            )
        if method in BY_CONNECTION:
            return Unavailable(
                reason=f"{method} sends memory by CRIU itself, which has no limit",
                remedy=f"leave --bandwidth out, or --method {Method.CRIU}",
            )
        return None


class DumpedByCriu(MovedByImages, Dumps, ABC):
    """What all instances that support every checkpoint method of CRIU have in common."""

    checkpoints_by = BY_IMAGES
    moves_by: ClassVar = {
        DestinationKind.DIRECTORY: BY_IMAGES,
        DestinationKind.HOST: (*BY_IMAGES, *BY_CONNECTION),
    }

    def checkpoint(self, host: Host, work: Work, images: Path, method: Method) -> None:
        write_images(self, host, work, images, method)

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        return self._restore(host, work, images, saved)

    def restore_lazily(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        return self._restore(host, work, images, saved, "--lazy-pages")

    @abstractmethod
    def _restore(self, host: Host, work: Work, images: Path, saved: Saved, *more: str) -> str:
        """Restore the instance on a host with further options of CRIU, and return its new name."""


def write_images(
    instance: Dumps, host: Host, work: Work, images: Path, method: Method, server: int | None = None
) -> None:
    """Write an instance to files in an empty directory, and wait until it has ended, unless
    work.keep_running.

    server: Dump.server.
    Raises RunError if this fails; the message says whether the instance continues.
    Raises WrittenError if the files are complete, but the instance does not end.
    """
    pid, end = instance.first(host), time.monotonic() + work.time_limit

    def write(dump: Dump) -> None:
        limit = max(end - time.monotonic(), 0.0)
        ends = not (dump.round or work.keep_running)
        try:
            with synced_before_end(dump.images, work.before_end) if ends else nullcontext() as variables:
                argv = instance.dump_command(host, work, dump)
                passed = () if dump.server is None else (dump.server,)
                done = host.run(argv, timeout=limit, cwd=Path("/"), env=variables, pass_fds=passed)
        except BaseException:
            instance.thaw(host)
            raise
        if not done.ok:
            instance.thaw(host)
            remedy = "the log above says what CRIU cannot write"
            raise not_written(instance.what, pid, work, done, dump.images, remedy)

    def round_directory(number: int) -> Path:
        directory = images / f"round-{number}"
        directory.mkdir(mode=0o700)
        return directory

    def write_round(dump: Dump) -> None:
        write(dump)
        work.round_written(dump.images)

    previous = write_rounds(round_directory, write_round)[0] if method is Method.CRIU_PRECOPY else None
    write(Dump(images=images, server=server, previous=previous, tracked=previous is not None))
    if not work.keep_running:
        await_end(pid, instance.what)


def not_written(what: str, pid: int, work: Work, done: Completed, images: Path, remedy: str) -> RunError:
    """Return the error of a checkpoint that has failed.

    what: kind and name of the instance, such as 'container web'.
    pid: PID of its first process.
    done: the command that should have written it to the directory.
    remedy: what helps, unless the time limit was too short.
    """
    log, late = images / DUMP_LOG, done.returncode == TIMED_OUT
    limit = f"the time limit of {work.time_limit:g} s is over"
    if not late and (unsynced := sync_failure(images)):
        return RunError(
            f"no checkpoint of {what}, {still(pid)}: the images cannot be flushed to the disk: {unsynced}",
            where=str(images / SYNC_LOG),
            remedy="a directory on another disk",
        )
    reason = limit if late else first_error(log) or done.failure()
    return RunError(
        f"no checkpoint of {what}, {still(pid)}: {reason}",
        where=str(log),
        remedy="a longer --time-limit" if late else remedy,
    )


def not_restored(what: str, host: Host, done: Completed, images: Path) -> RunError:
    """Return the error of a restore from a directory that has failed.

    what: beginning of the message, such as 'runc:web is not restored'.
    done: the command that should have restored the instance on the host.
    """
    log = images / RESTORE_LOG
    return RunError(
        f"{what} on {host.name}: {first_error(log) or done.failure()}",
        where=str(log),
        remedy=f"the images are whole; mend the reason, then: {restore_line(images)}",
    )


@contextmanager
def ended_if_interrupted(host: Host, end: Callable[[], object]) -> Iterator[None]:
    """If Ctrl-C interrupts the body, a restore, call `end`, which ends what is restored by then.

    On another host nothing is ended: the restore goes on there, without the connection.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not isinstance(host, SshHost):
            end()
        raise


def still(pid: int) -> str:
    """Return whether a process continues after a failed checkpoint, as part of a message: 'which
    continues'."""
    end = time.monotonic() + _SETTLES_SECONDS
    while (fields := fields_of(pid)) is not None and fields[_STATE] in "Tt" and time.monotonic() < end:
        time.sleep(_LOOK_AGAIN)
    if fields is None or fields[_STATE] in "ZX":
        return "which has ended"
    return "which is still stopped" if fields[_STATE] in "Tt" else "which continues"


def await_end(pid: int, what: str) -> None:
    """Wait until a checkpointed process has ended. It may still be a zombie.

    what: name of the instance for the message.
    Raises WrittenError if the process still runs after 10 s, or at Ctrl-C. The caller must then not restore
    the instance.
    """
    end = time.monotonic() + _GONE_SECONDS
    try:
        while (fields := fields_of(pid)) is not None and fields[_STATE] not in "ZX":
            if time.monotonic() > end:
                raise WrittenError(f"{what} was written to files, but still runs")
            time.sleep(_LOOK_AGAIN)
    except KeyboardInterrupt as e:
        raise WrittenError(f"interrupted: {what} was written to files, and ends") from e


def fields_of(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat that follow the name of the program; the first is the state. None
    if the process does not exist."""
    with contextlib.suppress(OSError):
        return stat_fields(pid)
    return None


def script_on(host: Host, work: Work, images: Path, more: Sequence[str] = ()) -> str:
    """Return the path of a program that runs CRIU, for container programs, which accept only a path.

    This is CRIU itself if it needs no options, and otherwise a script that is written to `images`.
    more: options of CRIU.
    """
    criu: Criu = work.criu(host)
    if len(criu.argv) == 1 and not more:
        return criu.argv[0]
    return str(script(None, criu.argv, images, more=more))


def free_name(name: str, taken: bool, remedy: str) -> HostCheck:
    return checked("name", not taken, f"{name} is free", f"{name} runs or exists already", remedy)


def require_way(way: DestinationKind, method: Method) -> None:
    """Check that a method makes sense for a kind of destination.

    Raises UsageError for a method that is only useful with another host, if the destination is a directory.
    """
    if way is not DestinationKind.DIRECTORY or method not in BY_CONNECTION:
        return
    why = {
        Method.CRIU_PAGESERVER: "a page server saves nothing where CRIU can write to the directory itself",
        Method.CRIU_LAZY: "on the same machine the source still has the PIDs while its memory is fetched",
    }[method]
    raise UsageError(f"{method}: {why}", remedy=f"--method {Method.CRIU}, or --to with a host name")
