"""Creates a transient domain of libvirt, and destroys it on exit.

A guard process destroys the domain if nearmetal is killed. libvirt's flag autodestroy is not used, because
such a domain cannot be moved.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunError
from ...host import Host, Process
from ...host.processes import labelled as processes
from ...host.processes.foreign import ForeignProcess, process_of_thread
from ..guests.guest import DYING_SECONDS
from .daemon import ASK_SECONDS, QUIET, Daemon, ask, destroy, find_virsh_message, has_failed, virsh_argv

FILE = "domain.xml"
_THREADS = '{"execute":"query-cpus-fast"}'
_SAID, _ERRORS = "virsh.txt", "virsh-errors.txt"
GUARD = 'first=$1 last=$2; shift 2; "$@" "$first" && read -r end; exec "$@" "$last" >/dev/null 2>&1'
"""Shell script of the guard. Arguments: a command of virsh, a last command of virsh, the virsh command line.

It runs the first command. Then it waits for the end of its standard input, and runs the last command. If the
first command fails, it runs the last one at once."""
_LOOK_AGAIN = 0.005


@dataclass(frozen=True, kw_only=True)
class Domain:
    """A domain that exists at a daemon.

    uri: URI of the daemon.
    process: process of its QEMU.
    threads: thread IDs of its vCPUs on the machine, in the order of the vCPUs.
    """

    host: Host
    uri: str
    name: str
    process: Process
    threads: tuple[int, ...]

    def resume(self) -> None:
        """Let the vCPUs of the paused domain run.

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
def made(host: Host, daemon: Daemon, name: str, xml: str, state: Path) -> Iterator[Domain]:
    """Create a paused domain, and destroy it on exit.

    xml: description of the domain.
    state: state directory of the instance.

    Raises RunError, with libvirt's message, if the domain cannot be created.
    """
    (state / FILE).write_text(xml)
    output, errors = state / _SAID, state / _ERRORS
    words = (f"create --file {FILE} --paused", f"qemu-monitor-command {name} '{_THREADS}'")
    with ExitStack() as stack:
        # Until its process is known, only the daemon can end it.
        unknown = stack.enter_context(ExitStack())
        unknown.callback(_destroy, host, daemon.uri, name)
        client = stack.enter_context(guarded(host, daemon.uri, name, state, "; ".join(words)))
        threads = _threads(client, output, errors)
        process = stack.enter_context(ForeignProcess(process_of_thread(threads[0])))
        if not daemon.own:  # nearmetal's own daemon has only this guest and ends with it
            stack.callback(_destroy, host, daemon.uri, name)
        unknown.pop_all()
        yield Domain(host=host, uri=daemon.uri, name=name, process=process, threads=threads)


@contextmanager
def guarded(host: Host, uri: str, name: str, state: Path, first: str) -> Iterator[Process]:
    """Run a guard until exit: it runs a command of virsh, and destroys a domain if nearmetal is killed.

    Yields the process of the guard. Its output goes to files in the state directory.
    name: name of the domain.
    state: state directory of the instance, in which virsh runs.
    first: the command of virsh.
    """
    reader, writer = os.pipe()
    try:
        try:
            guard = host.start(
                ["sh", "-c", GUARD, "sh", first, f"destroy {name}", *virsh_argv(uri, [])],
                stdin=reader,
                stdout=state / _SAID,
                stderr=state / _ERRORS,
                env={processes.LABEL_VARIABLE: name, **QUIET},
                cwd=state,
            )
        finally:
            os.close(reader)
        try:
            yield guard
        finally:
            guard.kill()
    finally:
        os.close(writer)


def threads_of(host: Host, uri: str, name: str) -> tuple[int, ...]:
    """Return the thread IDs of a domain's vCPUs on the machine, in the order of the vCPUs.

    Raises RunError if QEMU does not report them.
    """
    done = ask(host, uri, "qemu-monitor-command", name, _THREADS)
    found = _threads_in(done.stdout)
    if not found:
        raise RunError(f"guest {name} does not name its vCPUs: {done.failure(find_virsh_message)}")
    return found


def _threads_in(said: str) -> tuple[int, ...]:
    """Parse the thread IDs from virsh's output, which contains QEMU's answer in JSON; empty if the answer is
    missing."""
    for line in said.splitlines():
        with contextlib.suppress(ValueError, KeyError):
            found = sorted(json.loads(line)["return"], key=lambda c: int(c["cpu-index"]))
            return tuple(int(c["thread-id"]) for c in found)
    return ()


def _destroy(host: Host, uri: str, name: str) -> None:
    """Destroy a domain, and ignore errors: its process is ended by its PID as well."""
    with contextlib.suppress(RunError):
        destroy(host, uri, name)


def _threads(client: Process, output: Path, errors: Path) -> tuple[int, ...]:
    """Wait until QEMU has reported the thread IDs of its vCPUs, and return them.

    client: the virsh process that creates the domain and queries QEMU.
    output, errors: files with its standard output and its standard error.
    Raises RunError if the domain is not created, or at the time limit ASK_SECONDS.
    """
    end = time.monotonic() + ASK_SECONDS
    while True:
        if found := _threads_in(output.read_text()):
            return found
        if client.poll() is not None or has_failed(errors.read_text()):
            with contextlib.suppress(TimeoutError):
                client.wait(DYING_SECONDS)
            message = find_virsh_message(errors.read_text()) or "libvirt gave no reason"
            raise RunError(f"the guest ended while it booted: {message}")
        if time.monotonic() > end:
            raise RunError(f"libvirt has started no guest in {ASK_SECONDS:g} s")
        time.sleep(_LOOK_AGAIN)
