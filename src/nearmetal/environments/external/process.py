"""A process of the user's, with all its descendants, by CRIU."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunError, UsageError
from ...host import Host
from ...host.pages import own_memory, tree
from ...host.processes.labelled import ancestors
from ...lifecycle import Costs, Estimate, Method
from ..contract import Criu, Dump, Unavailable
from ..criu import DUMP_LOG, PID_FILE, RESTORE_LOG, dump_argv, restore_argv
from ..criu_images import first_error
from .contract import SECONDS, Facts, RestoredError, Saved, Way, Work, WrittenError

CRIU_COSTS = Costs(fixed=Estimate(0.08, 0.2, 0.9), setup=Estimate(0.0, 0.0, 0.05))
"""CRIU's own start, the freeze, and the restore of a process without memory."""
_CONNECTED = ("--tcp-established", "--ext-unix-sk")
_OWN_SESSION = "--shell-job"
_GONE_SECONDS = 10.0
_LOOK_AGAIN = 0.005
_STATE, _SESSION = 0, 3
"""Fields of /proc/<pid>/stat after the name."""


@dataclass(frozen=True, kw_only=True)
class ProcessTree:
    """A process and its descendants."""

    pid: int

    @property
    def name(self) -> str:
        return f"pid:{self.pid}"

    checkpoints_by = (Method.CRIU,)

    @property
    def moves_by(self) -> Mapping[Way, tuple[Method, ...]]:
        return {Way.DIRECTORY: (Method.CRIU,), Way.HOST: (Method.CRIU,)}

    def refuses(self, way: Way) -> Unavailable:
        del way
        return Unavailable(
            reason="a process is not moved to a QEMU", remedy="--to with a directory or a host name"
        )

    def require_programs(self, host: Host, work: Work) -> None:
        work.criu(host)

    def inspect(self, host: Host) -> Facts:
        del host
        found = _fields(self.pid)
        if found is None or found[_STATE] == "Z":
            raise UsageError(f"there is no process {self.pid}", remedy="a PID of: ps -e")
        if self.pid in ancestors(os.getpid()):
            raise UsageError(
                f"nearmetal runs below process {self.pid}", remedy="a process that has not started nearmetal"
            )
        processes = tree(self.pid)
        memory = own_memory(processes)
        if not memory:
            raise UsageError(f"process {self.pid} belongs to the kernel", remedy="a PID of: ps -e")
        return Facts(memory=memory, processes=tuple(processes))

    def costs(self, method: Method) -> Costs:
        del method
        return CRIU_COSTS

    def checkpoint(self, host: Host, work: Work, images: Path) -> Mapping[str, str]:
        criu, options, processes = work.criu(host), self._options(), tree(self.pid)
        more = [*options, *(["--leave-running"] if work.keep_running else [])]
        done = host.run(dump_argv(criu, self.pid, Dump(images=images), more), timeout=SECONDS, cwd=Path("/"))
        if not done.ok:
            reason = first_error(images / DUMP_LOG) or done.failure()
            raise RunError(
                f"no checkpoint of process {self.pid}, {still(self.pid)}: {reason}",
                where=str(images / DUMP_LOG),
                remedy="the log above says what CRIU cannot write",
            )
        own = {"options": " ".join(options), "pids": " ".join(map(str, processes))}
        if not work.keep_running:
            await_end(self.pid, own)
        return own

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        _await_free(host, saved.own.get("pids", "").split())
        restored = restore_detached(host, work.criu(host), images, saved.own.get("options", "").split())
        return f"pid:{restored}"

    def _options(self) -> list[str]:
        """Return the options of CRIU that dump and restore need for these processes."""
        fields = _fields(self.pid)
        leads = fields is not None and int(fields[_SESSION]) == self.pid
        return [*_CONNECTED, *([] if leads else [_OWN_SESSION])]


def restore_detached(host: Host, criu: Criu, images: Path, options: Sequence[str]) -> int:
    """Restore processes that go on after nearmetal has ended, and return the PID of the first.

    Raises RunError. Nothing runs then, unless it is RestoredError.
    """
    host.run(["rm", "-f", str(images / PID_FILE)], timeout=SECONDS)
    argv = restore_argv(criu, images, ["--restore-detached", *options])
    done = host.run(argv, timeout=SECONDS, cwd=Path("/"))
    if not done.ok:
        reason = first_error(images / RESTORE_LOG) or done.failure()
        raise RunError(
            f"not restored on {host.name}: {reason}",
            where=str(images / RESTORE_LOG),
            remedy=f"the images are whole; mend the reason, then: nearmetal restore {images}",
        )
    read = host.read(images / PID_FILE)
    if not isinstance(read, bytes) or not read.strip().isdigit():
        raise RestoredError("CRIU has restored a process, and does not say its PID", where=str(images))
    return int(read)


def still(pid: int) -> str:
    """Return in words whether a process whose checkpoint failed continues."""
    fields = _fields(pid)
    if fields is None or fields[_STATE] in "ZX":
        return "which has ended"
    return "which is still stopped" if fields[_STATE] in "Tt" else "which continues"


def await_end(pid: int, own: Mapping[str, str]) -> None:
    """Wait until a process that was written to files has ended; its parent may not have reaped it yet.

    own: see WrittenError, which is raised if the process still runs, or at Ctrl-C: a second one must not be
        made of it.
    """
    end = time.monotonic() + _GONE_SECONDS
    try:
        while (fields := _fields(pid)) is not None and fields[_STATE] not in "ZX":
            if time.monotonic() > end:
                raise WrittenError(f"process {pid} was written to files, but still runs", own)
            time.sleep(_LOOK_AGAIN)
    except KeyboardInterrupt as e:
        raise WrittenError(f"interrupted: process {pid} was written to files, and ends", own) from e


def _await_free(host: Host, pids: Sequence[str]) -> None:
    """Wait until no process of a host has one of these PIDs, which CRIU restores.

    Raises RunError if one remains taken. Nothing runs then.
    """
    paths = [f"/proc/{pid}" for pid in pids]
    end = time.monotonic() + _GONE_SECONDS
    while taken := host.run(["ls", "-d", *paths], timeout=SECONDS).stdout.split() if paths else []:
        if time.monotonic() > end:
            raise RunError(
                f"PID {taken[0].removeprefix('/proc/')} is taken on {host.name}",
                remedy="end that process, or the parent that has not waited for it; then restore",
            )
        time.sleep(_LOOK_AGAIN)


def _fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat after the name; None if there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return None
