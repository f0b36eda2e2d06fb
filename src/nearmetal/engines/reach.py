"""Reaches machines by ssh. One connection to each machine is shared by all commands (ControlMaster); the
machines' keys have to be known."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TypeVar

from ..errors import RunError, UsageError
from ..host import Completed, Host
from ..host.processes.failure import TIMED_OUT
from ..host.runtime import runtime_directory
from .contract import SECONDS

KEEP = 120
"""Seconds for which a shared connection stays open after its last command."""
CONNECT = 20
NODES_AT_ONCE = 32
"""Machines to which commands are sent at the same time."""
UNREACHABLE = 255
"""Exit status of ssh if it has no connection, or has lost it."""
T = TypeVar("T")
R = TypeVar("R")


def destinations(options: Mapping[str, str]) -> dict[str, str]:
    """Return the argument of ssh that names each machine, by the machine's name in the option 'hosts'.

    Raises UsageError if a name is given twice.
    """
    found: dict[str, str] = {}
    for word in options.get("hosts", "").split(","):
        name, _, destination = word.partition("=")
        if name in found:
            raise UsageError(f"--engine ssh: {name} is named twice", remedy="name each machine once")
        if name:
            found[name] = destination or name
    return found


def ssh_words(name: str, options: Mapping[str, str], control: Path) -> list[str]:
    """Return the words of an ssh command, to which the shell line that runs on the machine is appended.

    name: destination of ssh.
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
    """Run a shell line on a machine. Its exit status is not checked.

    name: its name in the option 'hosts'.
    seconds: time limit.
    each_second: called while the line runs; an exception that it raises ends the connection.

    Raises RunError that names the machine if it cannot be reached or does not answer in time.
    """
    destination = destinations(options).get(name, name)
    argv = [*ssh_words(destination, options, runtime_directory()), line]
    done = host.run(argv, timeout=seconds, each_second=each_second)
    if done.returncode in (UNREACHABLE, TIMED_OUT):
        raise RunError(done.failure(), where=name, remedy=f"try: ssh {shlex.quote(destination)} true")
    return done


def at_once(machines: Sequence[T], work: Callable[[T, Callable[[], None]], R]) -> list[R]:
    """Call `work` for each machine, for up to NODES_AT_ONCE at the same time, and return the results in the
    order of the machines.

    work: gets a machine and a function that raises RunError once this process is interrupted; see
        `each_second` of on_node().
    """
    ended = Event()

    def go_on() -> None:
        if ended.is_set():
            raise RunError("interrupted")

    with ThreadPoolExecutor(NODES_AT_ONCE) as pool:
        try:
            return list(pool.map(lambda machine: work(machine, go_on), machines))
        except BaseException:  # Ctrl-C: the commands on the machines would keep this process for minutes
            ended.set()
            pool.shutdown(cancel_futures=True)
            raise
