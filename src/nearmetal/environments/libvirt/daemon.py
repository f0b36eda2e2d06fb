"""Access to the daemons of libvirt by virsh. nearmetal uses a running daemon; if none answers, it starts a
session daemon.

A session daemon of nearmetal keeps all its files in a directory of nearmetal, and runs only as long as its
one guest. This module also lists and destroys domains of all daemons, as leftovers of killed runs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit
from uuid import uuid4
from zlib import crc32

from ...errors import RunError, UnavailableError
from ...host import Completed, Host, Process, runtime
from ...host.outside import short_directory
from ...host.processes import labelled as processes
from ...host.processes.failure import MOST_SHOWN
from ...host.processes.running import await_true
from ..contract import Tools, Unavailable
from ..instance import START_TIMEOUT
from ..program import log_failure
from .settings import URI
from .xml import security_models

SYSTEM, SESSION = "qemu:///system", "qemu:///session"
REMEDY = "apt-get install libvirt-clients libvirt-daemon libvirt-daemon-driver-qemu"
START_REMEDY = "systemctl start virtqemud.socket, or libvirtd; or take guest: uri out"
ASK_SECONDS = 60.0
"""Time limit of a request, in seconds. At the first request, a daemon probes every QEMU that it finds."""
LIST_SECONDS = 10.0
"""Time limit of listing domains, in seconds. A daemon that hangs must not delay a run for longer."""
PROGRAMS = ("virtqemud", "libvirtd")
IDLE_SECONDS = 10
"""Seconds after which a daemon of nearmetal exits if it has neither a guest nor a client. This removes it if
nearmetal was killed."""
CONFIGURATION = 'stdio_handler = "file"\nsecurity_driver = "none"\n'
NOTE = "libvirt"
"""Name of the note in an instance's state directory: a file with the URI of the daemon that runs its
guest."""
LONGEST_PLACE = 40
"""Maximum length of the path of a directory below which libvirt makes sockets. The paths of the sockets must
fit into sockaddr_un."""
_DIRECTORIES = {"XDG_RUNTIME_DIR": "r", "XDG_CONFIG_HOME": "c", "XDG_CACHE_HOME": "k"}
"""Environment variables that set the directories of a user's daemon -> short names for these directories."""
_ANOTHER = 1
"""Number used as uid and gid in a user namespace: neither 0 (root) nor the ID that the kernel shows for
unmapped users."""
_END_SECONDS = 20.0
QUIET = {"LIBVIRT_AUTOSTART": "0", "LC_ALL": "C"}
"""Environment variables for virsh. Without LIBVIRT_AUTOSTART=0, virsh would start a user's daemon, which
stays."""
_GONE = ("failed to get domain", "Domain not found", "domain is not running")
_NOT_RUNNING = ("No such file or directory", "Connection refused")
"""What virsh says of a socket on which no daemon listens."""
_ERROR = re.compile("^error:", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A libvirt daemon that answers.

    own: whether nearmetal has started it.
    pids: directory of the PID files of its guests; None if nearmetal has not started it.
    security: security models, such as 'selinux', by which it would relabel the files of guests.
    """

    uri: str
    own: bool
    pids: Path | None = None
    security: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return "a session daemon of its own" if self.own else self.uri


def virsh_argv(uri: str, words: Sequence[str]) -> list[str]:
    return ["virsh", "--quiet", "--connect", uri, *words]


def ask(
    host: Host, uri: str, *words: str, timeout: float = ASK_SECONDS, stdin: str | None = None
) -> Completed:
    """Run a virsh command. virsh is prevented from starting a daemon."""
    return host.run(virsh_argv(uri, words), timeout=timeout, env=QUIET, stdin=stdin)


def has_failed(output: str) -> bool:
    """Return whether virsh's standard error contains an error. Other messages are warnings."""
    return _ERROR.search(output) is not None


def is_gone(output: str) -> bool:
    """Return whether virsh's standard error says that a domain no longer exists."""
    return any(words in output for words in _GONE)


def find_virsh_message(output: str) -> str:
    """Return the reason why virsh failed, from its output.

    virsh prints two errors for a failure: the operation that failed, and then the reason. If several commands
    have failed, the reason of the first one is returned.
    """
    parts = _ERROR.split(output)
    errors = [" ".join(e.split()) for e in parts[1:] or parts if e.strip()]
    return errors[min(1, len(errors) - 1)][:MOST_SHOWN] if errors else ""


def missing_programs(host: Host) -> Unavailable | None:
    """Return Unavailable if virsh is missing; else None. The program of a daemon is needed only if no daemon
    answers, so it is not checked here."""
    if host.which("virsh") is None:
        return Unavailable(reason="virsh is not installed", remedy=REMEDY)
    return None


def usual_uri(host: Host) -> str:
    """Return the default URI: of the system daemon for root, of the session daemon for other users."""
    return SYSTEM if host.is_root() else SESSION


@contextmanager
def reached(
    host: Host, tools: Tools, requested: str | None, label: str, state: Path, cache: Path | None
) -> Iterator[Daemon]:
    """Yield the daemon for a guest: the one that answers at a URI or, if none does, one that runs until exit.

    requested: URI; None for the default.
    state: state directory of the instance, in which a note names the daemon.
    cache: directory in which a daemon started here keeps the results of its QEMU probes; None to discard
        them.

    Raises UnavailableError if a requested daemon, except the default session daemon, does not answer, or if
    no daemon is installed.
    Raises RunError if the daemon of nearmetal does not start.
    """
    uri = requested or usual_uri(host)
    answer = ask(host, uri, "capabilities")
    if answer.ok:
        (state / NOTE).write_text(uri)
        yield Daemon(uri=uri, own=False, security=_security(answer))
        return
    if requested not in (None, SESSION):
        raise UnavailableError(f"libvirt at {uri}: {answer.failure(find_virsh_message)}", remedy=START_REMEDY)
    with _own_daemon(host, tools, label, state, cache, ()) as own:
        yield own


def elsewhere(
    host: Host, tools: Tools, label: str, state: Path, cache: Path | None, netns: str | None
) -> AbstractContextManager[Daemon]:
    """Run a daemon of nearmetal until exit, to which libvirt can move domains from any other daemon. It has a
    host name of its own, because libvirt moves domains only between different hosts.

    netns: path of the network namespace for the daemon and its guest; None for that of the machine.
    Raises UnavailableError or RunError.
    """
    net = [] if netns is None else ["--netns", netns]
    words = [tools / "nm-box", "wrap", *net, "--hostname", f"nm{crc32(label.encode()):08x}", "--"]
    return _own_daemon(host, tools, label, state, cache, words)


def _security(answer: Completed) -> tuple[str, ...]:
    try:
        return security_models(answer.stdout)
    except ValueError as e:
        raise RunError(f"libvirt's capabilities: {e}") from e


@contextmanager
def _own_daemon(
    host: Host, tools: Tools, label: str, state: Path, cache: Path | None, around: Sequence[str]
) -> Iterator[Daemon]:
    """Run a session daemon of nearmetal until exit. Its arguments are those of reached().

    around: command prefix of the daemon.
    """
    program = _program(host)
    if program is None:
        raise UnavailableError("no daemon of libvirt answers, and none is installed", remedy=REMEDY)
    with short_directory(place_name(label)) as place:
        runtime_directory, settings, findings = (place / name for name in _DIRECTORIES.values())
        for directory in (runtime_directory, settings, findings):
            (directory / "libvirt").mkdir(parents=True, mode=0o700)
        (settings / "libvirt" / "qemu.conf").write_text(CONFIGURATION)
        (settings / "libvirt" / f"{Path(program).name}.conf").write_text(f'host_uuid = "{uuid4()}"\n')
        if cache is not None:
            _keep_findings(findings, cache)
        output = place / "said"
        # The daemon is not killed together with nearmetal, so that the guard (domain.guarded) can destroy the
        # guest first.
        reaper = [tools / "nm-box", "reap", "--"]
        daemon = host.start(
            [*reaper, *around, *_as_user(host), program, "--timeout", str(IDLE_SECONDS)],
            stdout=output,
            stderr=output,
            env={
                processes.LABEL_VARIABLE: label,
                "HOME": str(place),
                **{name: str(place / own) for name, own in _DIRECTORIES.items()},
            },
            cwd=Path("/"),
        )
        try:
            name = "virtqemud-sock" if program.endswith("virtqemud") else "libvirt-sock"
            socket = runtime_directory / "libvirt" / name
            if not await_true(socket.exists, START_TIMEOUT, daemon):
                raise RunError(log_failure(program, daemon.poll(), output))
            uri = f"qemu+unix:///session?socket={quote(str(socket))}"
            (state / NOTE).write_text(uri)
            yield Daemon(uri=uri, own=True, pids=socket.parent / "qemu" / "run")
        finally:
            _end(daemon, Path(program).name)


def _end(daemon: Process, name: str) -> None:
    """Kill a daemon, then its reaper (nm-box reap).

    daemon: process of the reaper. It lives on while the daemon is killed, so that it can reap the daemon.
    name: name of the daemon's program.
    """
    with contextlib.suppress(ProcessLookupError, TimeoutError):
        pid = processes.descendant(daemon.pid, name)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            daemon.wait(_END_SECONDS)
    daemon.kill()


def _as_user(host: Host) -> list[str]:
    """Return the command prefix that starts a daemon as an ordinary user; empty if nearmetal runs without
    root.

    A daemon of root would use the directories of the machine's own daemon. In a user namespace that maps root
    to another user ID, the daemon uses the directories of a user, and still has root's access to files.
    """
    if not host.is_root():
        return []
    return ["unshare", "--user", f"--map-user={_ANOTHER}", f"--map-group={_ANOTHER}", "--"]


def _keep_findings(directory: Path, cache: Path) -> None:
    """Let a daemon keep the results of its QEMU probes in the cache of nearmetal. A probe takes seconds, and
    libvirt itself discards the results when QEMU, kernel or libvirt change.

    directory: cache directory of the daemon.
    """
    kept = cache / "libvirt"
    kept.mkdir(parents=True, exist_ok=True, mode=0o700)
    (directory / "libvirt" / "qemu").mkdir(mode=0o700)
    (directory / "libvirt" / "qemu" / "cache").symlink_to(kept)


def _program(host: Host) -> str | None:
    """Return the path of a daemon's program; None if none is installed. /usr/sbin is searched too, since it
    is often missing in the $PATH of users."""
    names = (name for p in PROGRAMS for name in (p, f"/usr/sbin/{p}"))
    return next((found for name in names if (found := host.which(name)) is not None), None)


def place_name(label: str) -> str:
    """Return a name for the daemon's directory that is short enough for LONGEST_PLACE: the label, or its
    beginning and a checksum. It shows to which run the directory belongs."""
    return (
        label if len(label) + len("/tmp/") <= LONGEST_PLACE else f"{label[:24]}-{crc32(label.encode()):08x}"
    )


def domain_names(host: Host, *, noted: bool = False) -> tuple[str, ...]:
    """Return the names of all domains, running or not, of the known daemons on this machine; empty if no
    daemon answers.

    noted: query only daemons that are named in notes of instances (NOTE). A query of the default daemon may
        start it, through systemd's socket activation.
    """
    return tuple(dict.fromkeys(name for uri in _known(host, noted=noted) for name in _domains(host, uri)))


def not_searched(host: Host) -> tuple[str, ...]:
    """See leftovers.ReportsSilence."""
    answers = {uri: _list_domains(host, uri) for uri in _known(host)}
    return tuple(
        f"libvirt at {uri} does not answer: its guests were not looked at "
        f"({answer.failure(find_virsh_message)})"
        for uri, answer in answers.items()
        if not answer.ok and not any(words in answer.stderr for words in _NOT_RUNNING)
    )


def destroy_domain(host: Host, name: str) -> None:
    """Find the daemon that has a domain, and destroy the domain there. Harmless if the domain is gone.

    Raises RunError.
    """
    for uri in _known(host):
        if name in _domains(host, uri):
            destroy(host, uri, name)
            return
    if silent := not_searched(host):
        raise RunError(f"guest {name}: {silent[0]}", remedy="nearmetal clean")


def destroy(host: Host, uri: str, name: str) -> None:
    """Destroy a transient domain, and remove libvirt's log file of it. Harmless if the domain is gone.

    Raises RunError.
    """
    done = ask(host, uri, "destroy", name)
    if not done.ok and not is_gone(done.stderr):
        raise RunError(
            f"guest {name} cannot be destroyed: {done.failure(find_virsh_message)}", remedy="nearmetal clean"
        )
    with contextlib.suppress(OSError, RuntimeError):  # a user without a home directory has no log there
        (_log_directory(uri) / f"{name}.log").unlink(missing_ok=True)


def _list_domains(host: Host, uri: str) -> Completed:
    return ask(host, uri, "list", "--all", "--name", timeout=LIST_SECONDS)


def _domains(host: Host, uri: str) -> tuple[str, ...]:
    answer = _list_domains(host, uri)
    return tuple(answer.stdout.split()) if answer.ok else ()


def _known(host: Host, *, noted: bool = False) -> tuple[str, ...]:
    """Return the URIs of the daemons in notes of instances and, unless noted, the default URI as the last
    one.

    Empty if virsh is not installed.
    """
    uris = [uri for uri in runtime.own_notes(NOTE) if re.fullmatch(URI, uri)]
    if not noted:
        uris.append(usual_uri(host))
    return tuple(dict.fromkeys(uris)) if uris and missing_programs(host) is None else ()


def _log_directory(uri: str) -> Path:
    """Return libvirt's default directory for the logs of QEMU. A daemon of nearmetal logs to another
    directory, which is removed with the daemon."""
    if urlsplit(uri).path == urlsplit(SYSTEM).path:
        return Path("/var/log/libvirt/qemu")
    return runtime.user_cache() / "libvirt/qemu/log"
