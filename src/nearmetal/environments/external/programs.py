"""Containers and domains of the user's, by the programs that manage them: runc, lxc, virsh, xl."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunError, UnavailableError, UsageError
from ...host import Completed, Host
from ...host.pages import own_memory, tree
from ...host.processes.failure import TIMED_OUT
from ...lifecycle import Costs, Estimate, Method
from ..contract import Unavailable
from ..criu import DUMP_LOG, RESTORE_LOG, script
from ..criu_images import first_error
from ..libvirt.daemon import ask as ask_libvirt
from ..libvirt.daemon import find_virsh_message, usual_uri
from .contract import ASK_SECONDS, SECONDS, Facts, MovedAway, Saved, Target, Way, Work
from .process import await_end, still

STATE = "guest.state"
_SAID = "lxc-checkpoint.log"
_QUIETLY = ("sh", "-c", 'exec "$@" >>"$0" 2>&1')
"""Words in front of a file and a command whose daemon would keep the output open."""
_CONTAINER_COSTS = Costs(fixed=Estimate(0.1, 0.3, 1.5), setup=Estimate(0.0, 0.0, 0.1))
_DOMAIN_COSTS = Costs(fixed=Estimate(0.02, 0.2, 3.0), setup=Estimate(0.05, 0.5, 5.0))


def _require_program(host: Host, program: str, package: str) -> None:
    if host.which(program) is None:
        raise UnavailableError(
            f"{program} is not installed on {host.name}", remedy=f"apt-get install {package}"
        )


def _images_only(way: Way, kind: str) -> Unavailable:
    del way
    return Unavailable(reason=f"{kind} is not moved to a QEMU", remedy="--to with a directory or a host name")


@dataclass(frozen=True, kw_only=True)
class RuncContainer:
    """A container of runc, with the state directory of the option --root."""

    container: str

    @property
    def name(self) -> str:
        return f"runc:{self.container}"

    checkpoints_by = (Method.CRIU,)

    @property
    def moves_by(self) -> Mapping[Way, tuple[Method, ...]]:
        return {Way.DIRECTORY: (Method.CRIU,), Way.HOST: (Method.CRIU,)}

    def refuses(self, way: Way) -> Unavailable:
        return _images_only(way, "a container")

    def require_programs(self, host: Host, work: Work) -> None:
        _require_program(host, "runc", "runc")
        work.criu(host)

    def inspect(self, host: Host) -> Facts:
        state = self._state(host)
        if state["status"] != "running":
            raise UsageError(f"container {self.container} is {state['status']}", remedy="runc list")
        processes = tree(int(state["pid"]))
        return Facts(memory=own_memory(processes), processes=tuple(processes))

    def costs(self, method: Method) -> Costs:
        del method
        return _CONTAINER_COSTS

    def checkpoint(self, host: Host, work: Work, images: Path) -> Mapping[str, str]:
        state = self._state(host)
        pid = int(state["pid"])
        more = ["--leave-running"] if work.keep_running else []
        done = host.run(
            [*self._words(host, work, "checkpoint", images), *more, self.container], timeout=SECONDS
        )
        if not done.ok:
            reason = first_error(images / DUMP_LOG) or done.failure()
            raise RunError(
                f"no checkpoint of container {self.container}, {still(pid)}: {reason}",
                where=str(images / DUMP_LOG),
                remedy="the log above says what CRIU cannot write",
            )
        own = {"bundle": str(state["bundle"])}
        if not work.keep_running:
            await_end(pid, own)
        return own

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        words = self._words(host, work, "restore", images)
        argv = [*words, "--detach", "--bundle", saved.own["bundle"], self.container]
        return _restored(host, host.run(argv, timeout=SECONDS), self.name, images)

    def _words(self, host: Host, work: Work, action: str, images: Path) -> list[str]:
        program = script_on(host, work, images)
        where = ["--image-path", str(images), "--work-path", str(images)]
        return [
            *("runc", "--criu", program, action, *where),
            *("--tcp-established", "--ext-unix-sk", "--shell-job", "--file-locks"),
        ]

    def _state(self, host: Host) -> Mapping[str, str]:
        _require_program(host, "runc", "runc")
        done = host.run(["runc", "state", self.container], timeout=ASK_SECONDS)
        if not done.ok:
            raise UsageError(f"runc has no container {self.container}", remedy="runc list")
        read: Mapping[str, str] = json.loads(done.stdout)
        return read


@dataclass(frozen=True, kw_only=True)
class LxcContainer:
    """A container of LXC.

    container: its name, or the path of its directory if it is not in the usual one.
    """

    container: str

    @property
    def name(self) -> str:
        return f"lxc:{self.container}"

    checkpoints_by = (Method.CRIU,)

    @property
    def moves_by(self) -> Mapping[Way, tuple[Method, ...]]:
        return {Way.DIRECTORY: (Method.CRIU,), Way.HOST: (Method.CRIU,)}

    def refuses(self, way: Way) -> Unavailable:
        return _images_only(way, "a container")

    def require_programs(self, host: Host, work: Work) -> None:
        _require_program(host, "lxc-checkpoint", "lxc")
        work.criu(host)

    def inspect(self, host: Host) -> Facts:
        processes = tree(self._pid(host))
        return Facts(memory=own_memory(processes), processes=tuple(processes))

    def costs(self, method: Method) -> Costs:
        del method
        return _CONTAINER_COSTS

    def checkpoint(self, host: Host, work: Work, images: Path) -> Mapping[str, str]:
        pid = self._pid(host)
        more = [] if work.keep_running else ["--stop"]
        done = self._run(host, work, images, *more)
        if not done.ok:
            reason = first_error(images / DUMP_LOG) or done.failure()
            raise RunError(
                f"no checkpoint of container {self.container}, {still(pid)}: {reason}",
                where=str(images / DUMP_LOG),
                remedy="lxc.console.path = none and lxc.tty.max = 0 in its configuration",
            )
        return {}

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        del saved
        return _restored(host, self._run(host, work, images, "--restore", "--daemon"), self.name, images)

    def _run(self, host: Host, work: Work, images: Path, *more: str) -> Completed:
        """Run lxc-checkpoint, which finds CRIU by PATH."""
        path = f"{Path(script_on(host, work, images)).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        argv = ["env", f"PATH={path}", "lxc-checkpoint", *self._named(), "--checkpoint-dir", str(images)]
        return host.run([*_QUIETLY, str(images / _SAID), *argv, *more], timeout=SECONDS)

    def _named(self) -> list[str]:
        directory, _, name = self.container.rpartition("/")
        return ["--name", name, *(["--lxcpath", directory] if directory else [])]

    def _pid(self, host: Host) -> int:
        _require_program(host, "lxc-info", "lxc")
        done = host.run(["lxc-info", *self._named(), "--pid", "--no-humanize"], timeout=ASK_SECONDS)
        if not done.ok or not done.stdout.strip().isdigit():
            raise UsageError(f"LXC has no running container {self.container}", remedy="lxc-ls --running")
        return int(done.stdout)


@dataclass(frozen=True, kw_only=True)
class LibvirtDomain:
    """A domain of libvirt, at the daemon of LIBVIRT_DEFAULT_URI or else the usual one of the user."""

    domain: str

    @property
    def name(self) -> str:
        return f"libvirt:{self.domain}"

    checkpoints_by = (Method.OFFLINE,)

    @property
    def moves_by(self) -> Mapping[Way, tuple[Method, ...]]:
        return {Way.HOST: (Method.PRECOPY, Method.POSTCOPY, Method.MULTIFD, Method.OFFLINE)}

    def refuses(self, way: Way) -> Unavailable:
        del way
        return Unavailable(
            reason="libvirt moves a domain to another host only",
            remedy="--to HOST, or qemu+ssh://HOST/system",
        )

    def require_programs(self, host: Host, work: Work) -> None:
        del work
        _require_program(host, "virsh", "libvirt-clients")

    def inspect(self, host: Host) -> Facts:
        _require_program(host, "virsh", "libvirt-clients")
        done = self._ask(host, "dominfo", self.domain)
        if not done.ok:
            raise UsageError(
                f"libvirt at {self._uri(host)}: {done.failure(find_virsh_message)}", remedy="virsh list --all"
            )
        facts = dict(re.findall(r"^([^:\n]+): +(.*)$", done.stdout, re.MULTILINE))
        if facts.get("State") != "running":
            raise UsageError(
                f"domain {self.domain} does not run: {facts.get('State', 'in no state')}", remedy="virsh list"
            )
        memory = int(facts["Used memory"].split()[0]) << 10
        pid = host.read(f"/run/libvirt/qemu/{self.domain}.pid")
        processes = (int(pid),) if isinstance(pid, bytes) and pid.strip().isdigit() else ()
        return Facts(memory=memory, processes=processes, guest=memory)

    def costs(self, method: Method) -> Costs:
        del method
        return _DOMAIN_COSTS

    def checkpoint(self, host: Host, work: Work, images: Path) -> Mapping[str, str]:
        if work.keep_running:
            raise UsageError("virsh save ends the domain", remedy="without --keep-running, then restore it")
        try:
            done = self._ask(host, "save", self.domain, str(images / STATE))
        except BaseException:
            self._ask(host, "domjobabort", self.domain)  # the daemon goes on without its client
            raise
        if not done.ok:
            if done.returncode == TIMED_OUT:
                self._ask(host, "domjobabort", self.domain)
            raise self._failed(host, "not saved", done)
        return {}

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        del work, saved
        done = self._ask(host, "restore", str(images / STATE))
        if not done.ok:
            raise RunError(
                f"domain {self.domain} is not restored: {done.failure(find_virsh_message)}",
                remedy=f"the image is whole; mend the reason, then: nearmetal restore {images}",
            )
        return self.name

    def require_target(self, target: Target) -> None:
        """The program itself asks the other host."""

    def migrate(self, host: Host, work: Work, target: Target, method: Method) -> MovedAway:
        more = {
            Method.PRECOPY: ["--live", "--auto-converge"],
            Method.POSTCOPY: ["--live", "--postcopy", "--postcopy-after-precopy"],
            Method.MULTIFD: ["--live", "--parallel"],
            Method.OFFLINE: [],
        }[method]
        bandwidth = [] if work.bandwidth is None else ["--bandwidth", str(max(int(work.bandwidth) >> 20, 1))]
        uri = target.text if "://" in target.text else f"qemu+ssh://{target.text}/system"
        self._ask(host, "migrate-setmaxdowntime", self.domain, str(round(work.downtime_limit * 1e3)))
        begin = time.monotonic()
        words = ["migrate", *more, *bandwidth, self.domain, uri]
        done = ask_libvirt(host, self._uri(host), *words, timeout=work.time_limit)
        total = time.monotonic() - begin
        if not done.ok:
            if done.returncode == TIMED_OUT:
                self._ask(host, "domjobabort", self.domain)
            raise self._failed(host, f"not moved by {method}", done)
        job = self._ask(host, "domjobinfo", "--completed", self.domain)
        downtime = re.search(r"^Total downtime: +(\d+) +ms", job.stdout, re.MULTILINE)
        return MovedAway(
            now=f"{self.name} at {uri}",
            total=total,
            downtime=int(downtime[1]) / 1e3 if downtime else None,
            sent=None,
        )

    def _failed(self, host: Host, what: str, done: Completed) -> RunError:
        state = self._ask(host, "domstate", self.domain).stdout.strip()
        words = (
            "it continues" if state == "running" else f"it does not run: {state or 'its state is unknown'}"
        )
        return RunError(f"domain {self.domain} was {what}, {words}: {done.failure(find_virsh_message)}")

    def _ask(self, host: Host, *words: str) -> Completed:
        return ask_libvirt(host, self._uri(host), *words, timeout=SECONDS)

    @staticmethod
    def _uri(host: Host) -> str:
        return os.environ.get("LIBVIRT_DEFAULT_URI") or usual_uri(host)


@dataclass(frozen=True, kw_only=True)
class XenDomain:
    """A domain of Xen, by xl. It runs only in dom0."""

    domain: str

    @property
    def name(self) -> str:
        return f"xl:{self.domain}"

    checkpoints_by = (Method.OFFLINE,)

    @property
    def moves_by(self) -> Mapping[Way, tuple[Method, ...]]:
        return {Way.HOST: (Method.STREAM,)}

    def refuses(self, way: Way) -> Unavailable:
        del way
        return Unavailable(
            reason="xl moves a domain to another host only", remedy="--to HOST, which runs Xen"
        )

    def require_programs(self, host: Host, work: Work) -> None:
        del work
        if host.which("xl") is None:
            raise UnavailableError(
                f"xl is not installed on {host.name}", remedy="boot Xen, and apt-get install xen-utils"
            )

    def inspect(self, host: Host) -> Facts:
        if host.which("xl") is None:
            raise UnavailableError("xl is not installed", remedy="boot Xen, and apt-get install xen-utils")
        done = host.run(["xl", "list", self.domain], timeout=ASK_SECONDS)
        lines = done.stdout.splitlines()
        if not done.ok or len(lines) < 2:
            raise UsageError(f"Xen has no domain {self.domain}", remedy="xl list")
        return Facts(memory=int(lines[1].split()[2]) << 20)

    def costs(self, method: Method) -> Costs:
        del method
        return _DOMAIN_COSTS

    def checkpoint(self, host: Host, work: Work, images: Path) -> Mapping[str, str]:
        more = ["-c"] if work.keep_running else []
        done = host.run(["xl", "save", *more, self.domain, str(images / STATE)], timeout=SECONDS)
        if not done.ok:
            raise self._failed(host, "not saved", done)
        return {}

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        del work, saved
        done = host.run(["xl", "restore", str(images / STATE)], timeout=SECONDS)
        if not done.ok:
            raise RunError(
                f"domain {self.domain} is not restored: {done.failure()}",
                remedy=f"the image is whole; mend the reason, then: nearmetal restore {images}",
            )
        return self.name

    def require_target(self, target: Target) -> None:
        """The program itself asks the other host."""

    def migrate(self, host: Host, work: Work, target: Target, method: Method) -> MovedAway:
        del method
        begin = time.monotonic()
        done = host.run(["xl", "migrate", self.domain, target.text], timeout=work.time_limit)
        total = time.monotonic() - begin
        if not done.ok:
            raise self._failed(host, "not moved", done)
        return MovedAway(now=f"{self.name} at {target.text}", total=total, downtime=None, sent=None)

    def _failed(self, host: Host, what: str, done: Completed) -> RunError:
        runs = host.run(["xl", "domid", self.domain], timeout=ASK_SECONDS).ok
        words = "it continues" if runs else "it does not run here any more"
        return RunError(f"domain {self.domain} was {what}, {words}: {done.failure()}")


def script_on(host: Host, work: Work, images: Path) -> str:
    """Write a program on a host that runs CRIU, and return its path.

    An installed CRIU needs none.
    """
    criu = work.criu(host)
    return criu.argv[0] if len(criu.argv) == 1 else str(script(criu.argv, images))


def _restored(host: Host, done: Completed, name: str, images: Path) -> str:
    if not done.ok:
        log = images / RESTORE_LOG
        raise RunError(
            f"{name} is not restored on {host.name}: {first_error(log) or done.failure()}",
            where=str(log),
            remedy=f"the images are whole; mend the reason, then: nearmetal restore {images}",
        )
    return name
