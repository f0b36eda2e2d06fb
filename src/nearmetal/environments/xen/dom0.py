"""Access to the dom0 on which a guest is started: this machine, or another one that is reached by ssh. Also
puts the files there that the guest needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ...host import Host, LocalHost, runtime
from ...host.ssh import SshHost, SshWay, ssh_host
from .settings import Dom0

NOTE = "dom0"
"""Name of the note in an instance's state directory: a file with its dom0 and the directory of its disks
there. By the note, leftovers are found even after a kill -9."""
THERE = "/var/tmp"
KEPT = "/var/cache/nearmetal/images"
COPY_SECONDS = 900.0
SHORT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Dom0Access:
    """The connection to the dom0 of an instance.

    host: the dom0.
    ssh: the dom0 if it is another machine; None if it is this one.
    directory: directory of this instance on dom0.
    """

    host: Host
    ssh: SshHost | None
    directory: str

    def write(self, name: str, text: str, *, executable: bool = False) -> str:
        """Write a file for the instance, readable only by its owner, and return its path on dom0.

        Raises RunError if the file cannot be written.
        """
        path = f"{self.directory}/{name}"
        failed, mode = f"{path} is not written", "700" if executable else "600"
        # The mode is set while the file is empty: others must never read the key in a guest's configuration.
        _must(self.host, ["install", "-m", mode, "/dev/null", path], failed)
        _must(self.host, ["dd", f"of={path}", "status=none"], failed, stdin=text)
        return path

    def take(self, file: Path, name: str) -> str:
        """Return the path on dom0 of a file of this machine. If dom0 is another machine, the file is copied
        there, into the directory of the instance.

        name: name of the copy. The file's own name is not used, since scp may pass it to a shell.

        Raises RunError if it cannot be copied.
        """
        if self.ssh is None:
            return str(file)
        target = f"{self.directory}/{name}"
        self.ssh.copy(file, target, timeout=COPY_SECONDS)
        return target

    def keep(self, file: Path, digest: str) -> str:
        """Return the path on dom0 of a file of this machine that never changes. If dom0 is another machine,
        the file is copied there once and kept for later instances.

        digest: name under which it is kept.
        Raises RunError if it cannot be copied.
        """
        if self.ssh is None:
            return str(file)
        target = f"{KEPT}/{digest}{file.suffix}"
        if not self.host.run(["test", "-e", target], timeout=SHORT_SECONDS).ok:
            _must(self.host, ["mkdir", "-p", KEPT], f"no directory {KEPT}")
            aside = f"{self.directory}/{digest}"
            self.ssh.copy(file, aside, timeout=COPY_SECONDS)
            # A rename is atomic, even if another run copies the same file now.
            _must(self.host, ["mv", aside, target], f"{target} is not kept")
        return target


@dataclass(frozen=True, kw_only=True)
class LeftoverNote:
    """The content of a note (NOTE): where leftovers of an instance may be.

    dom0: dom0 of the instance; None for this machine.
    disks: directory on dom0 of the instance's disk files.
    """

    dom0: Dom0 | None
    disks: str


@contextmanager
def reached(host: Host, dom0: Dom0 | None, disks: str, label: str, state: Path) -> Iterator[Dom0Access]:
    """Connect to the dom0 of an instance until exit. Also write the note, and make a directory for the
    instance on dom0, which is removed on exit.

    dom0: None for this machine.
    disks: directory on dom0 for the instance's disk files, for the note.
    label: label of the instance.
    state: state directory of the instance on this machine.
    Raises UnavailableError if dom0 does not answer.
    Raises RunError if the directory cannot be created.
    """
    with ExitStack() as stack:
        (state / NOTE).write_text(json.dumps({"dom0": asdict(dom0) if dom0 else None, "disks": disks}))
        if dom0 is None:
            yield Dom0Access(host=host, ssh=None, directory=str(state))
            return
        way = SshWay(destination=dom0.destination, config=dom0.config)
        ssh = stack.enter_context(ssh_host(host, way, label=label, scratch=state))
        directory = f"{THERE}/{label}"
        stack.callback(ssh.run, ["rm", "-rf", directory], timeout=SHORT_SECONDS)
        _must(ssh, ["mkdir", "-m", "700", directory], f"no directory {directory} on {dom0.destination}")
        yield Dom0Access(host=ssh, ssh=ssh, directory=directory)


def noted() -> tuple[LeftoverNote, ...]:
    """Return the content of all notes of this user's runs: of running ones, and of killed ones whose
    leftovers have not been removed."""
    found: dict[LeftoverNote, None] = {}
    for note in runtime.own_notes(NOTE):
        try:
            values = json.loads(note)
            dom0 = Dom0(**values["dom0"]) if values["dom0"] is not None else None
            found[LeftoverNote(dom0=dom0, disks=str(values["disks"]))] = None
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return tuple(found)


@contextmanager
def visited(dom0: Dom0 | None, label: str) -> Iterator[Host]:
    """Connect to a dom0 for a few commands, until exit.

    dom0: None for this machine.
    label: name of a temporary directory for the connection.
    Raises UnavailableError if the dom0 does not answer.
    """
    if dom0 is None:
        yield LocalHost()
        return
    with runtime.scratch_directory(label) as scratch:
        way = SshWay(destination=dom0.destination, config=dom0.config)
        with ssh_host(LocalHost(), way, label=label, scratch=scratch) as ssh:
            yield ssh


def _must(host: Host, argv: list[str], failed: str, stdin: str | None = None) -> str:
    return host.run(argv, timeout=SHORT_SECONDS, stdin=stdin).require(failed).stdout
