"""Workers on machines that are reached by ssh."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from ..errors import RunError, UnavailableError, UsageError
from ..host import Completed, Host
from ..host.runtime import make_runtime_directory
from .contract import BIRTH, PID, Job, State
from .reach import at_once, destinations, on_node

NAME = r"[A-Za-z0-9_\[][A-Za-z0-9_.@%+/:\\\[\]-]*"
"""Regular expression for the name of a machine, which may be a destination of ssh but no option."""
_FIELDS = "set -- $(cat /proc/{pid}/stat 2>/dev/null | sed 's/.*)//')"
"""Shell command that sets $1 to the state and $20 to the start time of a process; both are empty if it has
ended. The name of its program, in parentheses before these fields, may contain spaces and parentheses."""


class Ssh:
    """The engine that starts workers by ssh, each in a session of its own on its machine, so that it outlives
    the connection."""

    options: Mapping[str, str] = {
        "hosts": "names of machines as ssh knows them, separated by commas; one worker on each. "
        "NAME=DESTINATION reaches a machine by another name; --nodes FILE takes them from an inventory",
        "config": "a configuration file for ssh",
    }

    id = rf"{NAME}:{PID}:{BIRTH}"

    def nodes(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the machines, in the order in which they get workers."""
        return tuple(destinations(options))

    def submit(self, host: Host, job: Job, options: Mapping[str, str]) -> tuple[str, ...]:
        hosts = self.nodes(options)
        for name in hosts:
            if re.fullmatch(NAME, name) is None:
                raise UsageError(f"--engine ssh: {name!r} is no name of a machine", remedy="hosts=NAME,NAME")
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
                f'pid=$!; {_FIELDS.format(pid="$pid")}; echo "$pid:${{20}}"'
            )
            try:
                identity = f"{name}:{_last_line(_remote(host, name, line, options, go_on).stdout)}"
            except RunError as e:
                return e
            if re.fullmatch(self.id, identity, re.ASCII) is None:  # it has no start time
                return RunError("its worker ended at once", where=name, remedy=f"read {log} there")
            return identity

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
            line = f'{_FIELDS.format(pid=pid)}; echo "worker $1 ${{20}}"'
            try:
                words = _last_line(_remote(host, name, line, options, go_on).stdout).split()
            except RunError:  # unreachable: its worker may go on
                return State.UNKNOWN
            if words[:1] != ["worker"]:
                return State.UNKNOWN
            return State.RUNNING if words[2:] == [born] and words[1] not in "ZX" else State.ENDED

        return dict(zip(ids, at_once(ids, state_of), strict=True))

    def cancel(self, host: Host, ids: Sequence[str], options: Mapping[str, str]) -> None:
        def end(identity: str, go_on: Callable[[], None]) -> None:
            name, pid, born = identity.rsplit(":", 2)
            # In one line, because another process may have this PID after a while.
            line = f'{_FIELDS.format(pid=pid)}; [ "${{20}}" != {born} ] || kill -TERM {pid} || true'
            with contextlib.suppress(RunError):  # unreachable: its claim runs out
                _remote(host, name, line, options, go_on)

        at_once(ids, end)


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
