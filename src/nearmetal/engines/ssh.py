"""Workers on machines that are reached by ssh. One connection to each machine is shared by all commands
(ControlMaster); the machines' keys have to be known."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import RunError, UnavailableError, UsageError
from ..host import Completed, Host
from ..host.runtime import make_runtime_directory, runtime_directory
from .contract import Job, State, ask

KEEP = 120
"""Seconds for which a shared connection stays open after its last command."""
CONNECT = 20


class Ssh:
    """A worker is a process in a session of its own on the other machine, so it outlives its connection."""

    options: Mapping[str, str] = {
        "hosts": "names of machines as ssh knows them, separated by commas; one worker on each",
        "config": "a configuration file for ssh",
    }

    def submit(self, host: Host, job: Job, options: Mapping[str, str]) -> tuple[str, ...]:
        hosts = [name for name in options.get("hosts", "").split(",") if name]
        if len(hosts) < job.workers or len(set(hosts)) < len(hosts):
            raise UsageError(
                f"--engine ssh: {job.workers} workers need as many different machines",
                remedy="--engine-option hosts=NAME,NAME",
            )
        if host.which("ssh") is None:
            raise UnavailableError("no ssh here", remedy="apt-get install openssh-client")
        make_runtime_directory()
        ids = []
        for number, name in enumerate(hosts[: job.workers], start=1):
            log = shlex.quote(str(job.logs / f"{number}.out"))
            line = (
                f"cd {shlex.quote(str(job.directory))} || exit 1; "
                f"setsid nohup {shlex.join(job.argv)} >>{log} 2>&1 </dev/null & "
                'echo "$!:$(cut -d " " -f 22 /proc/$!/stat)"'
            )
            try:
                ids.append(f"{name}:{_remote(host, name, line, options).stdout.strip()}")
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
                state, _, start = _remote(host, name, line, options).stdout.strip().partition(" ")
                lives = start == born and state != "Z"
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


def _remote(host: Host, name: str, line: str, options: Mapping[str, str]) -> Completed:
    """Run a shell line on a machine. Raises RunError that names the machine."""
    try:
        return ask(host, [*ssh_words(name, options, runtime_directory()), line])
    except RunError as e:
        raise RunError(e.what, where=name, remedy=f"try: ssh {shlex.quote(name)} true") from e
