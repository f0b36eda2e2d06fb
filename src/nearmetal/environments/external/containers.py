"""Containers that the user has started, controlled by the programs that manage them: runc and LXC."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...errors import RunError, UnavailableError, UsageError
from ...host import Completed, Host, cgroups, text_of
from ...host.mounts import private_tmpfs
from ...host.pages import own_memory
from ...host.processes.labelled import tree
from ...host.processes.running import await_true
from ...lifecycle import Costs, Method
from ..criu import CONTAINER_COSTS, runtime_options, server_options
from ..moving import Dump
from .contract import ASK_SECONDS, SECONDS, DestinationKind, Facts, Saved, Work
from .disk import synced_before_end
from .dumping import (
    DumpedByCriu,
    MovedByImages,
    await_end,
    ended_if_interrupted,
    free_name,
    not_restored,
    not_written,
    script_on,
)
from .surroundings import CheckOutcome, HostCheck, checked

_SAID = "lxc-checkpoint.log"
_NO_CONTAINER = "does not exist"
"""Part of runc's message about a container that it does not know."""
_ENDS_SECONDS, _LOOK_AGAIN = 3.0, 0.05
_QUIETLY = ("sh", "-c", 'exec "$@" >>"$0" 2>&1')
"""Command prefix, followed by a file and a command. The output of the command goes to the file: a daemon that
the command starts would keep a pipe open, for which host.run() would wait."""


def require_program(host: Host, program: str, package: str) -> None:
    if host.which(program) is None:
        raise UnavailableError(
            f"{program} is not installed on {host.name}", remedy=f"apt-get install {package}"
        )


@dataclass(frozen=True, kw_only=True)
class _Container(MovedByImages, ABC):
    """A container that is checkpointed by CRIU through the program that manages it.

    kind: prefix of the names of such instances.
    program: the program that checkpoints and restores it.
    package: package that contains this program.
    container: name of the container.
    """

    kind: ClassVar[str]
    program: ClassVar[str]
    package: ClassVar[str]
    sort = "a container"
    keeps_name = False

    container: str

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.container}"

    @property
    def what(self) -> str:
        return f"container {self.container}"

    def require_programs(self, host: Host, work: Work) -> None:
        require_program(host, self.program, self.package)
        work.criu(host)

    def inspect(self, host: Host) -> Facts:
        first = self._pid(host)
        processes = tree(first)
        return Facts(memory=own_memory(processes), processes=tuple(processes), files=private_tmpfs(first))

    def costs(self, method: Method) -> Costs:
        return CONTAINER_COSTS

    @abstractmethod
    def _pid(self, host: Host) -> int:
        """Return the PID of the container's first process.

        Raises UsageError if the container does not run, UnavailableError if the program is not installed.
        """

    def _restored(self, host: Host, done: Completed, images: Path) -> str:
        if not done.ok:
            raise not_restored(f"{self.name} is not restored", host, done, images)
        return self.name


class RuncContainer(_Container, DumpedByCriu):
    """A container of runc, in runc's default state directory."""

    kind = program = package = "runc"
    own_fields: ClassVar = {"bundle": r"/.*"}

    def first(self, host: Host) -> int:
        return int(self._state(host)["pid"])

    def needs(self, host: Host) -> Mapping[str, str]:
        return {"bundle": str(self._state(host)["bundle"])}

    def dump_command(self, host: Host, work: Work, dump: Dump) -> list[str]:
        more = ["--leave-running"] if work.keep_running and not dump.round else []
        words = self._words(host, work, "checkpoint", dump.images, server_options(dump))
        return [*words, *runtime_options(dump), *more, self.container]

    def thaw(self, host: Host) -> None:
        """See contract.Dumps. runc freezes the container's control group; it stays frozen if CRIU was
        killed."""
        host.run(["runc", "resume", self.container], timeout=ASK_SECONDS)

    def _restore(self, host: Host, work: Work, images: Path, saved: Saved, *more: str) -> str:
        self._require_free(host)
        words = self._words(host, work, "restore", images)
        argv = [*words, "--detach", "--bundle", saved.own["bundle"], *more, self.container]
        with ended_if_interrupted(host, lambda: self.discard(host, saved)):
            done = host.run(argv, timeout=SECONDS)
        if not done.ok:
            # A failed restore leaves the name in use, and perhaps processes that are only partly restored.
            self.discard(host, saved)
        return self._restored(host, done, images)

    def discard(self, host: Host, saved: Saved) -> None:
        host.run(["runc", "delete", "--force", self.container], timeout=ASK_SECONDS)

    def _require_free(self, host: Host) -> None:
        if self._exists(host):
            raise RunError(
                f"runc has a container {self.container} on {host.name} already",
                remedy=f"runc delete {self.container}, then restore",
            )

    def _exists(self, host: Host) -> bool:
        return host.run(["runc", "state", self.container], timeout=ASK_SECONDS).ok

    def look(self, host: Host, images: Path, saved: Saved) -> Iterator[HostCheck]:
        yield free_name(self.what, self._exists(host), f"runc delete {self.container}")
        bundle = Path(saved.own.get("bundle", ""))
        whole = host.run(["test", "-f", str(bundle / "config.json")], timeout=ASK_SECONDS).ok
        remedy = "copy the bundle of the container to that path"
        yield checked("bundle", whole, f"{bundle} is there", f"{bundle} contains no config.json", remedy)
        if whole and (commands := _hooks(text_of(host, str(bundle / "config.json")))):
            yield HostCheck(
                subject="hooks",
                answer=CheckOutcome.FINE,
                text=f"runc runs these commands of config.json on the machine: {', '.join(commands)}",
            )

    def _words(
        self, host: Host, work: Work, action: str, images: Path, more: Sequence[str] = ()
    ) -> list[str]:
        program = script_on(host, work, images, more)
        where = ["--image-path", str(images), "--work-path", str(images)]
        return [
            *("runc", "--criu", program, action, *where),
            *("--tcp-established", "--ext-unix-sk", "--shell-job", "--file-locks"),
        ]

    def remaining_state(self, host: Host) -> str:
        require_program(host, "runc", "runc")
        done = host.run(["runc", "state", self.container], timeout=ASK_SECONDS)
        if not done.ok:
            if _NO_CONTAINER in done.stderr:
                return ""
            raise RunError(f"the state of {self.name} is not known: {done.failure()}", remedy="runc list")
        status = json.loads(done.stdout)["status"]
        return "" if status == "stopped" else f"is {status}"

    def _pid(self, host: Host) -> int:
        state = self._state(host)
        if state["status"] != "running":
            raise UsageError(f"container {self.container} is {state['status']}", remedy="runc list")
        return int(state["pid"])

    def _state(self, host: Host) -> Mapping[str, str]:
        require_program(host, "runc", "runc")
        done = host.run(["runc", "state", self.container], timeout=ASK_SECONDS)
        if not done.ok:
            raise UsageError(f"runc has no container {self.container}", remedy="runc list")
        read: Mapping[str, str] = json.loads(done.stdout)
        return read


def _hooks(config: str) -> tuple[str, ...]:
    """Return the paths of the programs that runc runs outside of a container, from its config.json."""
    try:
        hooks = json.loads(config).get("hooks") or {}
        return tuple(str(hook["path"]) for kind in hooks.values() for hook in kind)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()


class LxcContainer(_Container):
    """A container of LXC.

    container: name of the container, or the path of its directory if it is not in LXC's default directory.
    """

    kind = package = "lxc"
    program = "lxc-checkpoint"
    own_fields: ClassVar[Mapping[str, str]] = {}
    checkpoints_by = (Method.CRIU,)
    moves_by: ClassVar = {DestinationKind.DIRECTORY: (Method.CRIU,), DestinationKind.HOST: (Method.CRIU,)}

    def needs(self, host: Host) -> Mapping[str, str]:
        return {}

    def checkpoint(self, host: Host, work: Work, images: Path, method: Method) -> None:
        pid = self._pid(host)
        try:
            if work.keep_running:
                done = self._run(host, work, images, timeout=work.time_limit)
            else:
                with synced_before_end(images, work.before_end) as variables:
                    done = self._run(host, work, images, "--stop", timeout=work.time_limit, env=variables)
        except BaseException:
            self._thaw(host, pid)
            raise
        if not done.ok:
            self._thaw(host, pid)
            remedy = "lxc.console.path = none and lxc.tty.max = 0 in its configuration"
            raise not_written(self.what, pid, work, done, images, remedy)
        if not work.keep_running:
            await_end(pid, self.what)

    def _thaw(self, host: Host, pid: int) -> None:
        """Resume the container after an interrupted checkpoint; harmless if it runs.

        pid: PID of its first process.
        """
        host.run(["lxc-unfreeze", *self._named()], timeout=ASK_SECONDS)
        # With version 1, LXC thaws only what it has frozen itself.
        cgroups.thaw(pid, self.container.rpartition("/")[2])

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        # Its monitor ends a moment after its processes.
        if not await_true(lambda: self._running(host) is None, _ENDS_SECONDS, every=_LOOK_AGAIN):
            raise RunError(
                f"container {self.container} runs on {host.name} already", remedy="lxc-stop, then restore"
            )

        def end() -> None:
            host.run(["lxc-stop", *self._named(), "--kill"], timeout=ASK_SECONDS)

        with ended_if_interrupted(host, end):
            done = self._run(host, work, images, "--restore", "--daemon", timeout=SECONDS)
        if not done.ok:
            end()
        return self._restored(host, done, images)

    def look(self, host: Host, images: Path, saved: Saved) -> Iterator[HostCheck]:
        yield free_name(self.what, self._running(host) is not None, "lxc-stop")
        known = host.run(["lxc-info", *self._named(), "--state"], timeout=ASK_SECONDS).ok
        good, bad = "LXC knows the container", f"LXC has no container {self.container}"
        yield checked(
            "configuration", known, good, bad, "copy its configuration and its root to the same paths"
        )

    def _run(
        self,
        host: Host,
        work: Work,
        images: Path,
        *more: str,
        timeout: float,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run lxc-checkpoint with a PATH by which it finds CRIU.

        images: directory of the checkpoint.
        more: further options.
        timeout: time limit in seconds.
        env: further environment variables.
        """
        path = f"{Path(script_on(host, work, images)).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        argv = ["env", f"PATH={path}", "lxc-checkpoint", *self._named(), "--checkpoint-dir", str(images)]
        return host.run([*_QUIETLY, str(images / _SAID), *argv, *more], timeout=timeout, env=env)

    def _named(self) -> list[str]:
        directory, _, name = self.container.rpartition("/")
        return ["--name", name, *(["--lxcpath", directory] if directory else [])]

    def remaining_state(self, host: Host) -> str:
        require_program(host, "lxc-info", "lxc")
        return "" if self._running(host) is None else "still runs"

    def _pid(self, host: Host) -> int:
        require_program(host, "lxc-info", "lxc")
        pid = self._running(host)
        if pid is None:
            raise UsageError(f"LXC has no running container {self.container}", remedy="lxc-ls --running")
        return pid

    def _running(self, host: Host) -> int | None:
        """Return the PID of the container's first process; None if the container does not run."""
        done = host.run(["lxc-info", *self._named(), "--pid", "--no-humanize"], timeout=ASK_SECONDS)
        return int(done.stdout) if done.ok and done.stdout.strip().isdigit() else None
