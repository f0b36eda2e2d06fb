"""The host that is another machine, reached by ssh. All commands share one connection (ControlMaster), which
leaves nothing behind."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunError, UnavailableError
from .base import Completed, Host, Launched, MissingValue, Process, text_of
from .connection import LOOPBACK
from .facts.topology import ranges
from .outside import short_directory
from .processes.running import await_true, running_program

CONNECT_SECONDS = 20.0
"""Seconds after which a machine that does not answer is unavailable."""
READ_SECONDS = 60.0
LOST = 255
"""Exit status of ssh if the connection was lost or the command was killed."""
GRACE = 5.0
"""Seconds that the client waits after the timeout of its command, which the other machine enforces."""


@dataclass(frozen=True, kw_only=True)
class SshWay:
    """How to reach a machine.

    destination: argument of ssh ('root@node7', 'ssh://root@node7:2222').
    config: file for ssh -F; None for the user's own configuration.
    """

    destination: str
    config: str | None = None


def client(way: SshWay, socket: Path) -> list[str]:
    """Return the ssh command with its options, without the destination. No I/O."""
    config = ["-F", way.config] if way.config is not None else []
    return ["ssh", *config, "-o", "BatchMode=yes", "-o", f"ControlPath={socket}"]


def remote_words(
    argv: Sequence[str], *, timeout: float | None, env: Mapping[str, str | None] | None, cwd: Path | None
) -> str:
    """Return the command line for the shell of the other machine, with every word quoted. No I/O.

    timeout: seconds after which the command is ended on the other machine, because the end of the client does
        not end it; None for no limit.
    """
    given = env or {}
    words = ["env", *(["-C", str(cwd)] if cwd else [])]
    words += [f"--unset={name}" for name, value in given.items() if value is None]
    words += [f"{name}={value}" for name, value in given.items() if value is not None]
    limit = ["timeout", "--kill-after=1", f"{timeout:g}"] if timeout is not None else []
    return shlex.join([*(words if len(words) > 1 else ()), *limit, *argv])


class SshHost:
    """Implements base.Host for another machine; made by ssh_host()."""

    def __init__(self, local: Host, way: SshWay, socket: Path) -> None:
        self.name = way.destination
        self._local, self._way, self._socket = local, way, socket

    def words(self, argv: Sequence[str]) -> list[str]:
        """Return the local command that runs argv on the other machine."""
        return [*self._client(), shlex.join(argv)]

    def connected(self) -> bool:
        """Return whether the shared connection exists. A command would silently make one of its own."""
        argv = [*client(self._way, self._socket), "-O", "check", "--", self._way.destination]
        return self._local.run(argv, timeout=GRACE).ok

    def forward(self, path: Path, address: str, port: int) -> None:
        """Forward a local socket to an address and port that the other machine can reach.

        Only this user can use the socket. It is forwarded as long as the connection exists.

        Raises RunError if ssh refuses.
        """
        self._forward("-L", f"{path}:{address}:{port}")

    def forward_from(self, port: int) -> int:
        """Forward a free loopback port of the other machine to loopback port `port` of this machine.

        Returns the port of the other machine.

        Raises RunError if ssh refuses.
        """
        there = self._forward("-R", f"{LOOPBACK}:0:{LOOPBACK}:{port}").strip()
        if not there.isdigit():
            raise RunError(f"{self.name}: nothing is forwarded: ssh names no port")
        return int(there)

    def _forward(self, kind: str, what: str) -> str:
        argv = [*client(self._way, self._socket), "-O", "forward", kind, what]
        return (
            self._local.run([*argv, "--", self._way.destination], timeout=GRACE)
            .require(f"{self.name}: nothing is forwarded")
            .stdout
        )

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: str | int | None = None,
        pass_fds: Sequence[int] = (),
        each_second: Callable[[], None] | None = None,
        before_kill: Callable[[], None] | None = None,
        most: int | None = None,
    ) -> Completed:
        if pass_fds:
            raise RunError(f"{self.name}: no descriptor can be handed to another machine")
        text = remote_words(argv, timeout=timeout, env=env, cwd=cwd)
        done = self._local.run(
            [*self._client(), text], timeout=timeout + GRACE, stdin=stdin, each_second=each_second, most=most
        )
        return Completed(
            argv=tuple(argv),
            returncode=done.returncode,
            stdout=done.stdout,
            stderr=done.stderr or self._lost(done.returncode),
            seconds=done.seconds,
        )

    def start(
        self,
        argv: Sequence[str],
        *,
        stdout: Path,
        stderr: Path,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: int | None = None,
        pass_fds: Sequence[int] = (),
        most: int | None = None,
    ) -> Process:
        """Start a command on the other machine.

        The returned process is the local ssh client. Its end closes the input and output of the command,
        which ends most programs.

        stdout, stderr: local files.
        """
        if pass_fds:
            raise RunError(f"{self.name}: no descriptor can be handed to another machine")
        text = remote_words(argv, timeout=None, env=env, cwd=cwd)
        return self._local.start(
            [*self._client(), text], stdout=stdout, stderr=stderr, stdin=stdin, most=most
        )

    def launch(
        self,
        argv: Sequence[str],
        *,
        expect: Set[str],
        timeout: float,
        env: Mapping[str, str] | None = None,
        inherit: bool = True,
    ) -> Launched:
        raise RunError(f"{self.name}: helpers that report by a descriptor run on this machine only")

    def copy(self, source: Path, target: str, *, timeout: float) -> None:
        """Copy a local file to a path on the other machine. Raises RunError."""
        to = self._way.destination
        where = f"scp://{to.removeprefix('ssh://')}/{target}" if to.startswith("ssh://") else f"{to}:{target}"
        _, *options = client(self._way, self._socket)
        self._local.run(["scp", "-q", *options, "--", str(source), where], timeout=timeout).require(
            f"{self.name}: {source.name} is not copied"
        )

    def read(self, path: str | Path) -> bytes | MissingValue:
        done = self.run(["cat", str(path)], timeout=READ_SECONDS)
        return done.stdout.encode() if done.ok else MissingValue(f"{path}: {done.failure()}")

    def which(self, program: str) -> str | None:
        """Return the path of a program, or None. /usr/sbin and /sbin are searched too, because they are often
        missing from the PATH of ssh commands."""
        done = self.run(["which", program, f"/usr/sbin/{program}", f"/sbin/{program}"], timeout=READ_SECONDS)
        found = done.stdout.split()
        return found[0] if found else None

    def cpus(self) -> tuple[int, ...]:
        status = text_of(self, "/proc/self/status")
        found = re.search(r"^Cpus_allowed_list:\s*(\S+)$", status, re.MULTILINE)
        return ranges(found[1]) if found is not None else ()

    def is_root(self) -> bool:
        return self.run(["id", "-u"], timeout=READ_SECONDS).stdout.strip() == "0"

    def _lost(self, code: int) -> str:
        """Return a message if a command ended because the connection was lost, else ''. ssh itself prints
        none in this case."""
        gone = code == LOST and not self._socket.exists()
        return f"the connection to {self.name} is lost" if gone else ""

    def _client(self) -> list[str]:
        return [*client(self._way, self._socket), "-T", "--", self._way.destination]


@contextmanager
def ssh_host(local: Host, way: SshWay, *, label: str, scratch: Path) -> Iterator[SshHost]:
    """Open a connection to another machine, and close it on exit.

    label: label by which the process and the socket are found after a kill -9.
    scratch: scratch directory in which the directory of the socket is noted.

    Raises UnavailableError with the message of ssh if no connection can be made.
    """
    if local.which("ssh") is None:
        raise UnavailableError("ssh is not installed", remedy="apt-get install openssh-client")
    with short_directory(f"{label}-ssh") as directory:
        socket, log = directory / "c", scratch / "ssh.err"
        log.unlink(missing_ok=True)
        argv = [*client(way, socket), "-M", "-N", "-o", "ControlPersist=no", "-o", "ConnectTimeout=15"]
        argv += ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8", "--", way.destination]
        with running_program(local, ["setpriv", "--pdeathsig", "KILL", "--", *argv], label, log) as master:
            if not await_true(socket.exists, CONNECT_SECONDS, master):
                lines = [s.strip() for s in log.read_text(errors="replace").splitlines() if s.strip()]
                words = lines[-1][:300] if lines else f"no answer within {CONNECT_SECONDS:g} s"
                raise UnavailableError(
                    f"no connection to {way.destination}: {words}",
                    remedy=f"ssh {way.destination} true  must work without a question (keys, known hosts)",
                )
            yield SshHost(local, way, socket)
