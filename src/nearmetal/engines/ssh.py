"""Workers on machines that are reached by ssh."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence

from ..errors import RunError, UnavailableError, UsageError
from ..host import Completed, Host
from ..host.runtime import make_runtime_directory
from .contract import Job, State
from .reach import at_once, destinations, on_node


class Ssh:
    """The engine that starts workers by ssh, each in a session of its own on its machine, so that it outlives
    the connection."""

    options: Mapping[str, str] = {
        "hosts": "names of machines as ssh knows them, separated by commas; one worker on each. "
        "NAME=DESTINATION reaches a machine by another name; --nodes FILE takes them from an inventory",
        "config": "a configuration file for ssh",
    }

    def nodes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the machines, in the order in which they get workers."""
        return tuple(destinations(options))

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

        def begin(numbered: tuple[int, str], go_on: Callable[[], None]) -> str | RunError:
            number, name = numbered
            log = shlex.quote(str(job.logs / f"{number}.out"))
            argv = [*job.argv, "--node", name]
            line = (
                f"cd {shlex.quote(str(job.directory))} || exit 1; "
                f"setsid nohup {shlex.join(argv)} >>{log} 2>&1 </dev/null & "
                'echo "$!:$(cut -d " " -f 22 /proc/$!/stat)"'
            )
            try:
                return f"{name}:{_last_line(_remote(host, name, line, options, go_on).stdout)}"
            except RunError as e:
                return e

        begun = at_once(list(enumerate(hosts[: job.workers], start=1)), begin)
        ids = tuple(identity for identity in begun if isinstance(identity, str))
        for failed in begun:
            if isinstance(failed, RunError):
                self.cancel(host, ids, options)
                raise failed
        return ids

    def states(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> dict[str, State]:
        def state_of(identity: str, go_on: Callable[[], None]) -> State:
            name, pid, born = identity.rsplit(":", 2)
            line = f'cut -d " " -f 3,22 /proc/{int(pid)}/stat 2>/dev/null || echo gone'
            try:
                state, _, start = _last_line(_remote(host, name, line, options, go_on).stdout).partition(" ")
            except RunError:  # unreachable: its worker may go on
                return State.RUNNING
            # A worker that ended at once has no start time.
            return State.RUNNING if born and start == born and state != "Z" else State.ENDED

        return dict(zip(ids, at_once(ids, state_of), strict=True))

    def cancel(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> None:
        def end(identity: str, go_on: Callable[[], None]) -> None:
            name, pid, _ = identity.rsplit(":", 2)
            with contextlib.suppress(RunError):  # unreachable: its claim runs out
                _remote(host, name, f"kill -TERM {int(pid)} || true", options, go_on)

        states = self.states(host, ids, options)
        at_once([identity for identity, state in states.items() if state is State.RUNNING], end)


def _last_line(text: str) -> str:
    """Return the last line of an output, which is that of the command. A login script may have printed lines
    before."""
    return text.strip().rpartition("\n")[2]


def _remote(
    host: Host, name: str, line: str, options: Mapping[str, str], go_on: Callable[[], None]
) -> Completed:
    """Run a shell line on a machine. Raises RunError that names the machine if it fails.

    go_on: see `each_second` of on_node().
    """
    done = on_node(host, name, line, options, each_second=go_on)
    if not done.ok:
        destination = destinations(options).get(name, name)
        raise RunError(done.failure(), where=name, remedy=f"try: ssh {shlex.quote(destination)}")
    return done
