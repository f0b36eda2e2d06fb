"""The user namespace that all instances share if nearmetal runs without root. A small process keeps it
alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from ..host import REPORT_FD, Host
from ..host.processes.running import running_helper
from .contract import Tools
from .instance import START_TIMEOUT


@dataclass(frozen=True, kw_only=True)
class UserNamespaceHolder:
    """A user namespace in which this user is uid 0. No other user is mapped.

    path: path of the namespace, /proc/<pid>/ns/user.
    pid: PID of the process that keeps it alive. The process also has an empty network namespace, which
        belongs to the user namespace.
    """

    host: Host
    tools: Tools
    label: str
    path: str
    pid: int

    def command(self, argv: Sequence[str], *, pid: int | None = None) -> list[str]:
        """Return the command line that runs argv as root of the user namespace, in the machine's own file
        system.

        pid: process whose network namespace is used; None for that of the holding process.
        """
        enter = [self.tools / "nm-box", "enter", "--pid", str(pid or self.pid), "--user-namespace"]
        return [*enter, "--label", self.label, "--", *argv]

    def network_namespace(self) -> AbstractContextManager[int]:
        """Make a network namespace that belongs to the user namespace, until exit. Yields the PID of the
        process that keeps it alive."""
        return _held(self.host, self.tools, self.label, ["--user-namespace", self.path])


@contextmanager
def user_namespace_holder(host: Host, tools: Tools, label: str) -> Iterator[UserNamespaceHolder]:
    """Make a user namespace with uid 0 mapped to this user. It is removed on exit, or when the calling thread
    ends.

    Raises RunError if the kernel forbids it.
    """
    with _held(host, tools, label, ["--new-user"]) as pid:
        yield UserNamespaceHolder(host=host, tools=tools, label=label, path=f"/proc/{pid}/ns/user", pid=pid)


@contextmanager
def _held(host: Host, tools: Tools, label: str, options: Sequence[str]) -> Iterator[int]:
    argv = [tools / "nm-box", "hold", *options, "--report-fd", str(REPORT_FD)]
    with running_helper(host, argv, label, expect={"pid"}, timeout=START_TIMEOUT) as launched:
        yield launched.facts["pid"]
