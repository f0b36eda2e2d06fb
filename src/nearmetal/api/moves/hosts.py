"""Moves to another machine: copies images by ssh, and runs the programs of CRIU that send or fetch memory.

In this module, `there` is the other machine, and `here` is this one."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...environments import Criu, Dump, criu_pages
from ...environments import criu as criu_of
from ...environments.external import (
    Dumps,
    RestoredError,
    Saved,
    Work,
    sync_command,
    take_back,
    write_handed_over,
)
from ...errors import NearmetalError, RunError
from ...host import Host, Process, paced
from ...host.connection import connected_sockets
from ...host.processes.failure import TIMED_OUT, describe_failure
from ...host.processes.held import await_ends, holding, signal_all
from ...host.processes.labelled import tree
from ...host.processes.running import NOTED
from ...host.ssh import SshHost
from .connection import DESCRIPTOR, relay, start_connected
from .plans import ASK_SECONDS, REMOTE, SECONDS

_DIES_WITH_TOOL = ("setpriv", "--pdeathsig", "KILL", "--")
_RUNS_NOTED = 'p=$(cat "$f") && tr "\\0" " " <"/proc/$p/cmdline" | grep -q -F -- "$0"'
"""Shell command that succeeds if the process whose PID is in the file $f runs, and its command line contains
$0. The PID may belong to another program by now."""
_READY = b"\0"
"""Byte that a program of CRIU writes to the descriptor of --status-fd when it is ready."""
_LONGEST = 86_400.0
"""Time limit for sending all memory of an instance, in seconds. A lost connection ends the wait earlier."""
_MARGIN = 60.0
"""Seconds that a page server may live beyond the time limit of the dump. Without a connection nothing else
ends it."""
_LOOK_AGAIN = 0.01
"""Seconds between two looks at the output of a program that starts."""


def reason_of(error: BaseException) -> str:
    """Return why a step of a move has ended, for a message: the text of an error, or 'interrupted'."""
    if isinstance(error, NearmetalError):
        return error.what
    if isinstance(error, OSError):
        return ": ".join(filter(None, (str(error.filename or ""), error.strerror or str(error))))
    return str(error) or "interrupted"


@dataclass(kw_only=True)
class RemoteImages:
    """A directory for images on another machine.

    host: this machine.
    remote: the other machine.
    bandwidth: largest number of bytes per second; None for no limit.
    time_limit: time limit of the dump and of the copy, in seconds.
    end: monotonic seconds at which copying is given up.
    kept: whether the directory must stay, because memory of the instance is nowhere else.
    """

    host: Host
    remote: SshHost
    path: Path
    bandwidth: float | None
    time_limit: float
    end: float
    kept: bool = False
    _sent: list[str] = field(default_factory=list)
    _programs: list[tuple[Process, Path]] = field(default_factory=list)
    _connections: list[socket.socket] = field(default_factory=list)

    def send(self, images: Path, part: str = "") -> None:
        """Copy a directory of this machine into the one on the other machine, without the parts that were
        copied before.

        part: name of the only subdirectory to copy; empty for everything.

        Raises RunError.
        """
        left_out = [f"--exclude=./{name}" for name in self._sent]
        pack = ["tar", "--directory", str(images), *left_out, "--create", "--file", "-", f"./{part}"]
        pace = [paced.argv(self.bandwidth)] if self.bandwidth is not None else []
        unpack = self.remote.words(["tar", "--directory", str(self.path), "--extract", "--file", "-"])
        self._pipe(pack, *pace, unpack, what=f"the images are not copied to {self.remote.name}")
        if part:
            self._sent.append(part)

    def fetch(self, images: Path) -> None:
        """Copy the directory of the other machine back into one on this machine. Raises RunError."""
        self.end = time.monotonic() + SECONDS  # the instance runs nowhere now
        pack = self.remote.words(["tar", "--directory", str(self.path), "--create", "--file", "-", "."])
        unpack = ["tar", "--directory", str(images), "--extract", "--file", "-"]
        self._pipe(pack, unpack, what=f"the images are not copied back from {self.remote.name}")

    def sync_words(self) -> tuple[str, ...]:
        """Return the local command that waits until the page server has written its files, and flushes them
        to the disk of the other machine."""
        note = (self.path / criu_of.PAGE_SERVER_LOG).with_suffix(".pid")
        flush = f"{shlex.join(sync_command(self.path))} && sync -- {shlex.quote(str(self.path.parent))}"
        line = f"f=$1; while {_RUNS_NOTED}; do sleep 0.01; done 2>/dev/null; {flush}"
        return tuple(self.remote.words(["sh", "-c", line, str(self.path), str(note)]))

    def _pipe(self, *commands: Sequence[str], what: str) -> None:
        # pipefail is needed: a tar that cannot read a file writes zeros for it, which the other tar accepts.
        line = " | ".join(shlex.join(words) for words in commands)
        limit = max(self.end - time.monotonic(), 0.0)
        done = self.host.run(["bash", "-o", "pipefail", "-c", line], timeout=limit)
        if not done.ok:
            late = done.returncode == TIMED_OUT
            raise RunError(
                f"{what}: {'the time limit is over' if late else done.failure()}",
                remedy="a longer --time-limit, or a higher --bandwidth" if late else "",
            )

    def serve_pages(self, criu: Criu, log: Path) -> socket.socket:
        """Start CRIU's page server on the other machine, and return a connection to it, which clear() closes.
        Raises RunError."""
        there, limit = self.path / criu_of.PAGE_SERVER_LOG, self.time_limit + _MARGIN
        return self._start([*criu.argv, "page-server"], there, log, limit)[1]

    def fetch_pages(self, criu: Criu, server: socket.socket, log: Path) -> Process:
        """Start the program of CRIU on the other machine that fetches memory from a socket of this machine,
        and return it. Raises RunError."""
        argv = [*criu.argv, "lazy-pages", "--page-server"]
        process, end = self._start(argv, self.path / criu_of.LAZY_LOG, log, _LONGEST)
        relay(server, end)
        return process

    def _start(
        self, argv: Sequence[str], there: Path, log: Path, limit: float
    ) -> tuple[Process, socket.socket]:
        """Start a program of CRIU on the other machine, and wait until it is ready. Returns it, and a
        connection to it. Raises RunError if it ends before, or is not ready in time.

        there: path of its log on the other machine.
        log: file on this machine for its output.
        limit: time limit of the program in seconds.
        """
        note = there.with_suffix(".pid")
        # If the connection is lost, only timeout(1) ends the program.
        words = ["sh", "-c", NOTED, str(note), "timeout", "--kill-after=1", f"{limit:g}", *argv]
        words += ["--images-dir", str(self.path), "--ps-socket", str(DESCRIPTOR)]
        words += ["--log-file", there.name, "-v2", "--status-fd", "1"]
        process, connection = start_connected(self.remote, words, log)
        self._programs.append((process, note))
        self._connections.append(connection)
        end = time.monotonic() + SECONDS
        while _READY not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > end:
                said = log.read_text(errors="replace")
                raise RunError(
                    f"on {self.remote.name}: {describe_failure('criu', process.poll() or 1, said)}"
                )
            time.sleep(_LOOK_AGAIN)
        return process, connection

    def clear(self) -> str:
        """End the programs on the other machine, and remove the directory there unless it is kept.

        Returns what the user must do if the directory could not be removed; '' if nothing.
        """
        for process, _ in self._programs:
            process.kill()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # ends the threads of relay()
            connection.close()
        if self.remote.connected():
            notes = [str(note) for _, note in self._programs]
            remove = "" if self.kept else '; rm -r -f "$0"'
            end = f'for f in "$@"; do {_RUNS_NOTED} && kill "$p"; done 2>/dev/null{remove}'
            if self.remote.run(["sh", "-c", end, str(self.path), *notes], timeout=ASK_SECONDS).ok:
                return ""
        # If the directory is kept, the error says what to copy from it.
        return "" if self.kept else f"remove {self.remote.name}:{self.path}, which could not be reached"


@contextmanager
def images_on(
    host: Host, remote: SshHost, work: Work, warn: Callable[[str], object] = lambda _: None
) -> Iterator[RemoteImages]:
    """Make a directory for images on another machine. It is removed on exit, unless it must be kept. If the
    connection is lost, the remedy of the error names it.

    warn: called with its name if it could not be removed after a success.

    Raises RunError if it cannot be made.
    """
    made = remote.run(["mktemp", "--directory", REMOTE], timeout=ASK_SECONDS)
    if not made.ok:
        raise RunError(f"no directory on {remote.name}: {made.failure()}")
    path, end = Path(made.stdout.strip()), time.monotonic() + work.time_limit
    there = RemoteImages(
        host=host,
        remote=remote,
        path=path,
        bandwidth=work.bandwidth,
        time_limit=work.time_limit,
        end=end,
    )
    try:
        yield there
    except NearmetalError as e:
        if left := there.clear():
            e.remedy = "; ".join(filter(None, (e.remedy, left)))
        raise
    except BaseException:
        there.clear()
        raise
    if left := there.clear():
        warn(left)


def move_lazily(
    host: Host,
    external: Dumps,
    work: Work,
    saved: Saved,
    images: Path,
    there: RemoteImages,
    warn: Callable[[str], object] = lambda _: None,
) -> tuple[str, float]:
    """Continue an instance on another machine first, and send its memory afterwards (lazy migration by CRIU).

    warn: called with a message for the user if the move goes on in spite of Ctrl-C.

    Returns its name there, and its downtime in seconds. Raises RunError, which says where the instance runs.
    """
    label = f"nearmetal-check-{os.getpid()}-move"
    what, remote, first = external.what, there.remote, external.first(host)
    near, far = connected_sockets()

    def argv(ready: int) -> list[str]:
        dump = Dump(images=images, server=near.fileno(), ready=ready)
        return [*_DIES_WITH_TOOL, *external.dump_command(host, work, dump)]

    # Our end stays open even if the connection to the other machine is lost. Otherwise CRIU would end the
    # instance.
    with near, far, holding(first) as held, ExitStack() as stack:
        begin, asked = time.monotonic(), False
        try:
            log = images / criu_of.DUMP_LOG
            dumping = criu_pages.background(host, label, argv, log, "no checkpoint", server=near.fileno())
            dump = stack.enter_context(dumping)
            near.close()
            # If CRIU is killed, the processes that it holds are stopped, instead of running twice.
            signal_all(held, signal.SIGSTOP)
            there.send(images)
            fetcher = there.fetch_pages(work.criu(remote), far, images / criu_of.LAZY_LOG)
            write_handed_over(images, remote.name, there.path)
            asked = True
            now = external.restore_lazily(remote, work, there.path, saved)
        except (NearmetalError, OSError, KeyboardInterrupt) as e:
            why = reason_of(e)
            stack.close()  # ends CRIU, which holds the processes
            lost = isinstance(e, (RestoredError, OSError, KeyboardInterrupt)) or not remote.connected()
            if asked and lost:
                raise RunError(
                    f"it is not known whether {what} runs on {remote.name}, without all of its memory; it is "
                    f"stopped here: {why}",
                    remedy=f"end it there, then here: kill -CONT {' '.join(map(str, tree(first)))}",
                ) from e
            take_back(images)
            signal_all(held, signal.SIGCONT)
            external.thaw(host)
            fate = "continues here" if await_ends(held, 0.0) else "runs nowhere"
            raise RunError(f"{what} was not moved to {remote.name}, and {fate}: {why}") from e
        stopped = time.monotonic() - begin
        _await_memory(external, saved, there, (fetcher, dump), held, warn)
    return now, stopped


def _await_memory(
    external: Dumps,
    saved: Saved,
    there: RemoteImages,
    programs: Sequence[Process],
    held: Sequence[int],
    warn: Callable[[str], object],
) -> None:
    """Wait until all memory of an instance has arrived on the other machine. The first Ctrl-C does not end
    the wait, because the instance would be lost; the second one does.

    programs: the program that fetches the memory, and the one that sends it.
    held: PIDs of the stopped processes of the instance on this machine.

    Raises RunError if not all memory arrives. The instance is lost then, and its processes are ended on both
    machines.
    """

    def wait() -> None:
        for program in programs:
            if (status := program.wait(_LONGEST)) != 0:
                raise RunError(f"the program that sends or fetches it ended with status {status}")

    try:
        try:
            wait()
        except KeyboardInterrupt:
            with contextlib.suppress(OSError):  # the terminal may have been closed
                warn(
                    f"{external.what} runs on {there.remote.name} already, and is lost without the rest of "
                    "its memory: waiting for it. Interrupt again to end the instance"
                )
            wait()
    except (RunError, TimeoutError, KeyboardInterrupt) as e:
        signal_all(held, signal.SIGKILL)
        reached = there.remote.connected()
        if reached:
            external.discard(there.remote, saved)
        raise RunError(
            f"{external.what} is lost: it ran on {there.remote.name}, and not all of its memory arrived "
            f"({str(e) or 'interrupted'})",
            remedy="start it again" if reached else f"end what is left of it on {there.remote.name}",
        ) from e
