"""A transient domain of libvirt from creation to end.

It is created paused by a client that keeps running. The domain ends with this client, even if nearmetal is
killed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunError
from ...host import Host, Process
from ...host.processes import labelled as processes
from ...host.processes.foreign import ForeignProcess, process_of_thread
from ..contract import Tools
from ..guests.guest import DYING_SECONDS
from ..program import in_groups
from .daemon import ASK_SECONDS, Daemon, ask, destroy, find_virsh_message, has_failed, virsh_argv

FILE = "domain.xml"
_THREADS = '{"execute":"query-cpus-fast"}'
_SAID, _ERRORS = "virsh.txt", "virsh-errors.txt"
_LOOK_AGAIN = 0.005


@dataclass(frozen=True, kw_only=True)
class Domain:
    """A running domain.

    threads: thread IDs of its vCPUs, by number.
    """

    host: Host
    uri: str
    name: str
    process: Process
    threads: tuple[int, ...]

    def resume(self) -> None:
        """Let its vCPUs run.

        Raises RunError.
        """
        done = ask(self.host, self.uri, "resume", self.name)
        if not done.ok:
            raise RunError(f"guest {self.name} cannot be resumed: {done.failure(find_virsh_message)}")

    def registers(self) -> str:
        """Return the registers of its first CPU as printed by QEMU; empty if QEMU does not print them."""
        done = ask(self.host, self.uri, "qemu-monitor-command", self.name, "--hmp", "info registers")
        return done.stdout if done.ok else ""


@contextmanager
def made(host: Host, tools: Tools, daemon: Daemon, name: str, xml: str, state: Path) -> Iterator[Domain]:
    """Create a paused domain, and destroy it on exit.

    state: the instance's directory.

    Raises RunError with libvirt's message.
    """
    (state / FILE).write_text(xml)
    output, errors = state / _SAID, state / _ERRORS
    words = (
        f"create --file {FILE} --paused --autodestroy",
        f"qemu-monitor-command {name} '{_THREADS}'",
        f"event --domain {name} --event lifecycle --loop",
    )
    with ExitStack() as stack:
        # Until its process is known, only the daemon can end it, and nearmetal's own daemon is killed before
        # it has noticed that its client is gone.
        unknown = stack.enter_context(ExitStack())
        unknown.callback(_destroy, host, daemon.uri, name)
        client = host.start(
            in_groups(tools, {}, name, virsh_argv(daemon.uri, ["; ".join(words)])),
            stdout=output,
            stderr=errors,
            env={processes.LABEL_VARIABLE: name, "LIBVIRT_AUTOSTART": "0", "LC_ALL": "C"},
            cwd=state,
        )
        stack.callback(client.kill)
        threads = _threads(client, output, errors)
        process = stack.enter_context(ForeignProcess(process_of_thread(threads[0])))
        if not daemon.own:  # nearmetal's own daemon has only this guest and ends with it
            stack.callback(_destroy, host, daemon.uri, name)
        unknown.pop_all()
        yield Domain(host=host, uri=daemon.uri, name=name, process=process, threads=threads)


def _destroy(host: Host, uri: str, name: str) -> None:
    """Destroy a domain. If the daemon fails, the domain is ended later by its PID."""
    with contextlib.suppress(RunError):
        destroy(host, uri, name)


def _threads(client: Process, output: Path, errors: Path) -> tuple[int, ...]:
    """Return the thread IDs of the vCPUs, which QEMU reports as soon as it runs."""
    end = time.monotonic() + ASK_SECONDS
    while True:
        for line in output.read_text().splitlines():
            with contextlib.suppress(ValueError, KeyError):
                found = sorted(json.loads(line)["return"], key=lambda c: int(c["cpu-index"]))
                return tuple(int(c["thread-id"]) for c in found)
        if client.poll() is not None or has_failed(errors.read_text()):
            with contextlib.suppress(TimeoutError):
                client.wait(DYING_SECONDS)
            message = find_virsh_message(errors.read_text()) or "libvirt gave no reason"
            raise RunError(f"the guest ended while it booted: {message}")
        if time.monotonic() > end:
            raise RunError(f"libvirt has started no guest in {ASK_SECONDS:g} s")
        time.sleep(_LOOK_AGAIN)
