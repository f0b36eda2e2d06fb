"""A process that the user has started, with all its descendants, checkpointed by CRIU."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...errors import RunError, UsageError
from ...host import Host
from ...host.mounts import private_tmpfs
from ...host.pages import own_memory
from ...host.processes.failure import TIMED_OUT
from ...host.processes.labelled import ancestors, tree
from ...host.ssh import LOST, SshHost
from ...lifecycle import Costs, Method
from ..criu import PID_FILE, PROCESS_COSTS, dump_argv, restore_argv
from ..moving import Criu, Dump
from .contract import SECONDS, Facts, RestoredError, Saved, Work
from .dumping import DumpedByCriu, ended_if_interrupted, fields_of, not_restored
from .surroundings import HostCheck, checked

_CONNECTED = ("--tcp-established", "--ext-unix-sk")
_OWN_SESSION = "--shell-job"
_FREE_SECONDS = 10.0
_SIGNALLED = 128
"""A shell whose command was killed by a signal ends with more than this."""
_LOOK_AGAIN = 0.005
_STATE, _SESSION = 0, 3
"""Indices of the process state and the session ID in fields_of()."""


@dataclass(frozen=True, kw_only=True)
class ProcessTree(DumpedByCriu):
    """A process and its descendants."""

    sort = "a process"
    keeps_name = True
    own_fields: ClassVar = {
        "options": rf"(?:{'|'.join((*_CONNECTED, _OWN_SESSION))}| )*",
        "pids": r"(?:[1-9]\d{0,8}(?: |$))*",
    }

    pid: int

    @property
    def name(self) -> str:
        return f"pid:{self.pid}"

    @property
    def what(self) -> str:
        return f"process {self.pid}"

    def require_programs(self, host: Host, work: Work) -> None:
        work.criu(host)

    def inspect(self, host: Host) -> Facts:
        found = fields_of(self.pid)
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
        return Facts(memory=memory, processes=tuple(processes), files=private_tmpfs(self.pid))

    def remaining_state(self, host: Host) -> str:
        return "" if _ended(str(self.pid)) else "still runs"

    def costs(self, method: Method) -> Costs:
        return PROCESS_COSTS

    def first(self, host: Host) -> int:
        return self.pid

    def needs(self, host: Host) -> Mapping[str, str]:
        return {"options": " ".join(self._options()), "pids": " ".join(map(str, tree(self.pid)))}

    def dump_command(self, host: Host, work: Work, dump: Dump) -> list[str]:
        more = ["--leave-running"] if work.keep_running and not dump.round else []
        return dump_argv(work.criu(host), self.pid, dump, [*self._options(), *more])

    def thaw(self, host: Host) -> None:
        """See contract.Dumps. Nothing is to be done: the processes continue when CRIU ends."""

    def _restore(self, host: Host, work: Work, images: Path, saved: Saved, *more: str) -> str:
        pids = saved.own.get("pids", "").split()
        _await_free(host, pids)
        options = [*saved.own.get("options", "").split(), *more]
        return f"pid:{restore_detached(host, work.criu(host), images, options, pids)}"

    def discard(self, host: Host, saved: Saved) -> None:
        if left := _taken(host, saved.own.get("pids", "").split()):
            host.run(["kill", "-KILL", *left], timeout=SECONDS)

    def look(self, host: Host, images: Path, saved: Saved) -> Iterator[HostCheck]:
        pids = saved.own.get("pids", "").split()
        here, end = not isinstance(host, SshHost), time.monotonic() + _FREE_SECONDS
        while (taken := _taken(host, pids)) and here and all(map(_ended, taken)) and time.monotonic() < end:
            time.sleep(_LOOK_AGAIN)
        bad = f"PID {' and '.join(taken)} is taken"
        remedy = "end that process, or the parent that has not waited for it"
        yield checked("process IDs", not taken, "they are free", bad, remedy)

    def _options(self) -> list[str]:
        """Return the options of CRIU that a dump and a restore of these processes need."""
        fields = fields_of(self.pid)
        leads = fields is not None and int(fields[_SESSION]) == self.pid
        return [*_CONNECTED, *([] if leads else [_OWN_SESSION])]


def restore_detached(
    host: Host, criu: Criu, images: Path, options: Sequence[str], pids: Sequence[str]
) -> int:
    """Restore processes that continue after nearmetal has ended, and return the PID of the first one.

    images: directory of the checkpoint on the host.
    options: further options of CRIU.
    pids: the PIDs that the processes get. They must be free.
    Raises RunError if the restore fails. Processes that a killed CRIU has left are then killed.
    Raises RestoredError if they run, but the PID is not known.
    """
    host.run(["rm", "-f", str(images / PID_FILE)], timeout=SECONDS)
    # Run by a shell, because the exit status of ssh is the same for a killed command and a lost connection.
    argv = ["sh", "-c", '"$@"; exit $?', "sh"]
    argv += restore_argv(criu, images, ["--restore-detached", *options])

    def end_left() -> None:
        if left := _taken(host, pids):
            host.run(["kill", "-KILL", *left], timeout=SECONDS)

    with ended_if_interrupted(host, end_left):
        # First those that CRIU restores: without CRIU, which holds them, they would run.
        done = host.run(argv, timeout=SECONDS, cwd=Path("/"), before_kill=end_left)
    if not done.ok:
        # A killed CRIU leaves processes that are partly restored, or that run already. After other failures
        # nothing is killed: a PID may belong to another program, or CRIU may go on after a lost connection.
        code = done.returncode
        if code < 0 or code == TIMED_OUT or _SIGNALLED < code < LOST:
            end_left()
        raise not_restored("not restored", host, done, images)
    read = host.read(images / PID_FILE)
    if not isinstance(read, bytes) or not read.strip().isdigit():
        raise RestoredError("CRIU has restored a process, but does not report its PID", where=str(images))
    return int(read)


def _await_free(host: Host, pids: Sequence[str]) -> None:
    """Wait until all PIDs that CRIU will restore are free on a host.

    Raises RunError if one is still in use after 10 s.
    """
    end = time.monotonic() + _FREE_SECONDS
    while taken := _taken(host, pids):
        if time.monotonic() > end:
            raise RunError(
                f"PID {taken[0]} is taken on {host.name}",
                remedy="end that process, or the parent that has not waited for it; then restore",
            )
        time.sleep(_LOOK_AGAIN)


def _ended(pid: str) -> bool:
    """Return whether a process of this machine has ended; it may still be a zombie."""
    fields = fields_of(int(pid))
    return fields is None or fields[_STATE] in "ZX"


def _taken(host: Host, pids: Sequence[str]) -> list[str]:
    if not pids:
        return []
    found = host.run(["ls", "-d", *(f"/proc/{pid}" for pid in pids)], timeout=SECONDS).stdout.split()
    return [path.removeprefix("/proc/") for path in found]
