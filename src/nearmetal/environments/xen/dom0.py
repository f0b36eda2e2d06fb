"""The dom0 that a guest is started on: this machine, or another by ssh; and the files that a guest needs
there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ...errors import RunError
from ...host import Host, LocalHost, runtime
from ...host.ssh import SshHost, SshWay, ssh_host
from .settings import Dom0

NOTE = "dom0"
"""The file in an instance's state directory that tells where it has what, to be found after a kill -9."""
THERE = "/var/tmp"
KEPT = "/var/cache/nearmetal/images"
COPY_SECONDS = 900.0
SHORT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Dom0Access:
    """How an instance reaches dom0.

    host: dom0.
    ssh: the same where it is another machine, else None.
    directory: on dom0, of this instance.
    """

    host: Host
    ssh: SshHost | None
    directory: str

    def write(self, name: str, text: str, *, executable: bool = False) -> str:
        """A file of the instance's, readable by nobody else: its path on dom0. Raises RunError."""
        path = f"{self.directory}/{name}"
        _must(self.host, ["dd", f"of={path}", "status=none"], f"{path} is not written", stdin=text)
        _must(self.host, ["chmod", "700" if executable else "600", path], f"{path} is not written")
        return path

    def take(self, file: Path) -> str:
        """The path on dom0 of a file of ours, copied where that is another machine. Raises RunError."""
        if self.ssh is None:
            return str(file)
        target = f"{self.directory}/{file.name}"
        self.ssh.copy(file, target, timeout=COPY_SECONDS)
        return target

    def keep(self, file: Path, digest: str) -> str:
        """take() of what does not change: copied once, and kept there by its digest."""
        if self.ssh is None:
            return str(file)
        target = f"{KEPT}/{digest}{file.suffix}"
        if not self.host.run(["test", "-e", target], timeout=SHORT_SECONDS).ok:
            _must(self.host, ["mkdir", "-p", KEPT], f"no directory {KEPT}")
            aside = f"{self.directory}/{digest}"
            self.ssh.copy(file, aside, timeout=COPY_SECONDS)
            # Whole or not at all, whoever else copies it now.
            _must(self.host, ["mv", aside, target], f"{target} is not kept")
        return target


@dataclass(frozen=True, kw_only=True)
class Noted:
    """dom0: None for this machine; disks: the directory of the instance's disk files there."""

    dom0: Dom0 | None
    disks: str


@contextmanager
def reached(host: Host, dom0: Dom0 | None, disks: str, label: str, state: Path) -> Iterator[Dom0Access]:
    """A directory of the instance's own on its dom0, removed on leaving. state: a directory of ours for it;
    disks: on dom0, where it will have files of disks.

    Raises UnavailableError where the machine does not answer, RunError.
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


def noted() -> tuple[Noted, ...]:
    """Where runs of this user have guests, or had when they were killed."""
    found: dict[Noted, None] = {}
    for note in runtime.own_notes(NOTE):
        try:
            told = json.loads(note)
            dom0 = Dom0(**told["dom0"]) if told["dom0"] is not None else None
            found[Noted(dom0=dom0, disks=str(told["disks"]))] = None
        except (ValueError, KeyError, TypeError):
            continue
    return tuple(found)


@contextmanager
def visited(dom0: Dom0 | None, label: str) -> Iterator[Host]:
    """A dom0 for a few commands. Raises UnavailableError where it does not answer."""
    if dom0 is None:
        yield LocalHost()
        return
    with runtime.scratch_directory(label) as scratch:
        way = SshWay(destination=dom0.destination, config=dom0.config)
        with ssh_host(LocalHost(), way, label=label, scratch=scratch) as ssh:
            yield ssh


def _must(host: Host, argv: list[str], failed: str, stdin: str | None = None) -> str:
    done = host.run(argv, timeout=SHORT_SECONDS, stdin=stdin)
    if not done.ok:
        raise RunError(f"{failed}: {done.failure()}")
    return done.stdout
