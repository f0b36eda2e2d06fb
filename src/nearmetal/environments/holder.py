"""The user namespace that all instances share where we are not root: one small process owns it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..host import REPORT_FD, Host
from ..host.processes import labelled as processes
from .contract import Tools
from .instance import START_TIMEOUT


@dataclass(frozen=True, kw_only=True)
class UserNamespaceHolder:
    """We are uid 0 in it, and nobody else is there.

    path: /proc/<pid>/ns/user.
    pid: of the process that owns it and an empty network namespace in it.
    """

    host: Host
    tools: Tools
    label: str
    path: str
    pid: int

    def command(self, argv: Sequence[str], *, pid: int | None = None) -> list[str]:
        """Tokens that run argv as root of the user namespace, in the network namespace of pid (default: the
        holder's own), on the machine's own files."""
        enter = [self.tools / "nm-box", "enter", "--pid", str(pid or self.pid), "--user-namespace"]
        return [*enter, "--label", self.label, "--", *argv]

    @contextmanager
    def network_namespace(self) -> Iterator[int]:
        """A new network namespace that belongs to the user namespace: the pid of the process that holds
        it."""
        with _held(self.host, self.tools, self.label, ["--user-namespace", self.path]) as pid:
            yield pid


@contextmanager
def user_namespace_holder(host: Host, tools: Tools, label: str) -> Iterator[UserNamespaceHolder]:
    """A new user namespace with uid 0 mapped to this user; gone on leaving, and when this thread ends.

    Raises RunError where the kernel forbids it.
    """
    with _held(host, tools, label, ["--new-user"]) as pid:
        yield UserNamespaceHolder(host=host, tools=tools, label=label, path=f"/proc/{pid}/ns/user", pid=pid)


@contextmanager
def _held(host: Host, tools: Tools, label: str, options: Sequence[str]) -> Iterator[int]:
    launched = host.launch(
        [tools / "nm-box", "hold", *options, "--report-fd", str(REPORT_FD)],
        expect={"pid"},
        timeout=START_TIMEOUT,
        env={processes.LABEL_VARIABLE: label},
    )
    try:
        yield launched.facts["pid"]
    finally:
        launched.process.kill()
