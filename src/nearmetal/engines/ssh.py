"""Workers on machines that are reached by ssh. One connection to each machine is shared by all commands
(ControlMaster); the machines' keys have to be known."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import RunError, UnavailableError, UsageError
from ..host import Completed, Host
from ..host.processes.failure import TIMED_OUT
from ..host.runtime import make_runtime_directory, runtime_directory
from .contract import SECONDS, Job, State

KEEP = 120
"""Seconds for which a shared connection stays open after its last command."""
CONNECT = 20
NODES_AT_ONCE = 32
"""Machines to which commands are sent at the same time."""
UNREACHABLE = 255
"""Exit status of ssh if it has no connection, or has lost it."""


class Ssh:
    """A worker is a process in a session of its own on the other machine, so it outlives its connection."""

    options: Mapping[str, str] = {
        "hosts": "names of machines as ssh knows them, separated by commas; one worker on each. "
        "NAME=DESTINATION reaches a machine by another name; --nodes FILE takes them from an inventory",
        "config": "a configuration file for ssh",
    }

    def nodes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the machines, in the order in which they get workers."""
        return tuple(_destinations(options))

    def submit(self, host: Host, job: Job, options: Mapping[str, str]) -> tuple[str, ...]:
        hosts = self.nodes(options)
        if len(hosts) < job.workers:
            raise UsageError(
                f"--engine ssh: {job.workers} workers need as many different machines",
                remedy="--nodes FILE, or --engine-option hosts=NAME,NAME",
            )
        if host.which("ssh") is None:
            raise UnavailableError("no ssh here", remedy="apt-get install openssh-client")
        make_runtime_directory()
        ids = []
        for number, name in enumerate(hosts[: job.workers], start=1):
            log = shlex.quote(str(job.logs / f"{number}.out"))
            argv = [*job.argv, "--node", name]
            line = (
                f"cd {shlex.quote(str(job.directory))} || exit 1; "
                f"setsid nohup {shlex.join(argv)} >>{log} 2>&1 </dev/null & "
                'echo "$!:$(cut -d " " -f 22 /proc/$!/stat)"'
            )
            try:
                ids.append(f"{name}:{_last_line(_remote(host, name, line, options).stdout)}")
            except RunError:
                self.cancel(host, ids, options)
                raise
        return tuple(ids)

    def states(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> dict[str, State]:
        found = {}
        for identity in ids:
            name, pid, born = identity.rsplit(":", 2)
            try:
                line = f'cut -d " " -f 3,22 /proc/{int(pid)}/stat 2>/dev/null || echo gone'
                state, _, start = _last_line(_remote(host, name, line, options).stdout).partition(" ")
                # A worker that ended at once has no start time.
                lives = bool(born) and start == born and state != "Z"
                found[identity] = State.RUNNING if lives else State.ENDED
            except RunError:  # unreachable: its worker may go on
                found[identity] = State.RUNNING
        return found

    def cancel(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> None:
        for identity, state in self.states(host, ids, options).items():
            name, pid, _ = identity.rsplit(":", 2)
            if state is State.RUNNING:
                with contextlib.suppress(RunError):  # unreachable: its claim runs out
                    _remote(host, name, f"kill -TERM {int(pid)} || true", options)


def _last_line(text: str) -> str:
    """Return what the command printed, without what a login script printed before."""
    return text.strip().rpartition("\n")[2]


def _destinations(options: Mapping[str, str]) -> dict[str, str]:
    """Return what ssh connects to, by name of the machine. Raises UsageError if a name is given twice."""
    found: dict[str, str] = {}
    for word in options.get("hosts", "").split(","):
        name, _, destination = word.partition("=")
        if name in found:
            raise UsageError(f"--engine ssh: {name} is named twice", remedy="name each machine once")
        if name:
            found[name] = destination or name
    return found


def ssh_words(name: str, options: Mapping[str, str], control: Path) -> list[str]:
    """Return the command that runs a shell line on a machine, without the line.

    control: directory of the shared connections.
    """
    config = ["-F", options["config"]] if "config" in options else []
    settings = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "ConnectTimeout": str(CONNECT),
        "ControlMaster": "auto",
        "ControlPath": f"{control}/ssh-%C",
        "ControlPersist": str(KEEP),
    }
    return ["ssh", *config, *(w for k, v in settings.items() for w in ("-o", f"{k}={v}")), "--", name]


def on_node(
    host: Host,
    name: str,
    line: str,
    options: Mapping[str, str],
    seconds: float = SECONDS,
    each_second: Callable[[], None] | None = None,
) -> Completed:
    """Run a shell line on a machine, whose exit status may be any.

    name: its name in the option 'hosts'.
    seconds: time limit.
    each_second: called while the line runs; an exception that it raises ends the connection.

    Raises RunError that names the machine if it cannot be reached or does not answer in time.
    """
    destination = _destinations(options).get(name, name)
    argv = [*ssh_words(destination, options, runtime_directory()), line]
    done = host.run(argv, timeout=seconds, each_second=each_second)
    if done.returncode in (UNREACHABLE, TIMED_OUT):
        raise RunError(done.failure(), where=name, remedy=f"try: ssh {shlex.quote(destination)} true")
    return done


def _remote(host: Host, name: str, line: str, options: Mapping[str, str]) -> Completed:
    """Run a shell line on a machine. Raises RunError that names the machine if it fails."""
    done = on_node(host, name, line, options)
    if not done.ok:
        destination = _destinations(options).get(name, name)
        raise RunError(done.failure(), where=name, remedy=f"try: ssh {shlex.quote(destination)}")
    return done
