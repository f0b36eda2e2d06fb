"""Domains (virtual machines) that the user has started, controlled by virsh and xl."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...errors import RunError, UnavailableError, UsageError
from ...host import Completed, Host
from ...host.processes.failure import TIMED_OUT, find_message
from ...host.processes.running import NOTED
from ...host.runtime import scratch_directory
from ...lifecycle import Costs, Estimate, Method
from ..contract import Unavailable
from ..libvirt.daemon import ask as ask_libvirt
from ..libvirt.daemon import find_virsh_message, is_gone, usual_uri
from ..libvirt.migrate import MOVE_OPTIONS
from ..xen.migrate import LAST_SECONDS
from ..xen.xl import find_xl_message
from .containers import require_program
from .contract import (
    ASK_SECONDS,
    SECONDS,
    DestinationKind,
    Facts,
    MovedAway,
    RestoredError,
    Saved,
    Target,
    Work,
    WrittenError,
    restore_line,
)
from .disk import make_synchronous, sync_images
from .dumping import ended_if_interrupted, free_name
from .saved import STATE
from .surroundings import HostCheck

_MEMORY, _STATE = 2, 4
"""Columns of `xl list`."""
_ENDED = ("shut off", "crashed")
"""States of domains of libvirt that have ended."""
_NO_DOMAIN = ("invalid domain identifier", "does not exist")
"""Parts of xl's messages about a domain that it does not know."""
_CPU_MODE = re.compile(r"<cpu mode='(?:host-passthrough|maximum)'")
"""Part of a domain's XML if its vCPUs have the features of the machine's processor."""
_AUTO = "/etc/xen/auto"
_AUTOSTART = "autostart"
_DOMAIN_COSTS = Costs(fixed=Estimate(0.02, 0.2, 3.0), setup=Estimate(0.05, 0.5, 5.0))


@dataclass(frozen=True, kw_only=True)
class _Domain:
    """A domain whose hypervisor can write its state to a file, and move it to another host.

    kind: prefix of the names of such instances.
    domain: name of the domain.
    """

    kind: ClassVar[str]

    domain: str
    keeps_name = True
    checkpoints_by = (Method.OFFLINE,)

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.domain}"

    def costs(self, method: Method) -> Costs:
        return _DOMAIN_COSTS

    def require_target(self, host: Host, target: Target) -> None:
        """Do nothing: the program that moves the domain checks the other host itself."""

    def _restored(self, done: Completed, images: Path, find: Callable[[str], str] = find_message) -> str:
        """Return the name of the restored domain.

        done: the command that has restored it from this directory.
        find: as in Completed.failure().
        Raises RunError if it has failed.
        """
        remedy = f"the image is whole; mend the reason, then: {restore_line(images)}"
        done.require(f"domain {self.domain} is not restored", remedy=remedy, find=find)
        return self.name

    def _said(self, what: str, why: str, *, runs: bool, state: str, to: str) -> RunError:
        """Return the error of a checkpoint or a move.

        what, why, to: as in _failed().
        runs: whether the domain runs here.
        state: its state here in words; '' if it is unknown.
        """
        words = "it continues" if runs else f"it does not run here: {state or 'its state is unknown'}"
        there = f"find out whether it runs at {to}" if to and not runs else ""
        return RunError(f"domain {self.domain} was {what}, {words}: {why}", remedy=there)


class LibvirtDomain(_Domain):
    """A domain of libvirt, at the daemon of LIBVIRT_DEFAULT_URI or else at the user's default daemon."""

    kind = "libvirt"
    own_fields: ClassVar = {_AUTOSTART: "yes"}
    moves_by: ClassVar = {DestinationKind.HOST: tuple(MOVE_OPTIONS)}

    def refuses(self, way: DestinationKind) -> Unavailable:
        return Unavailable(
            reason="libvirt moves a domain to another host only",
            remedy="--to HOST, or qemu+ssh://HOST/system",
        )

    def exceeds(self, way: DestinationKind, method: Method, bandwidth: float) -> Unavailable | None:
        if bandwidth >= 1 << 20:
            return None
        return Unavailable(
            reason="libvirt limits a move by whole MiB/s", remedy="--bandwidth with at least '1 MiB/s'"
        )

    def require_programs(self, host: Host, work: Work) -> None:
        require_program(host, "virsh", "libvirt-clients")

    def inspect(self, host: Host) -> Facts:
        facts = self._information(host)
        if facts.get("State") != "running":
            raise UsageError(
                f"domain {self.domain} does not run: {facts.get('State', 'in no state')}", remedy="virsh list"
            )
        memory = int(facts["Used memory"].split()[0]) << 10
        pid = host.read(f"/run/libvirt/qemu/{self.domain}.pid")
        processes = (int(pid),) if isinstance(pid, bytes) and pid.strip().isdigit() else ()
        return Facts(memory=memory, processes=processes, guest=memory)

    def _information(self, host: Host) -> Mapping[str, str]:
        """Return the lines of `virsh dominfo`. Raises UsageError if libvirt has no such domain."""
        require_program(host, "virsh", "libvirt-clients")
        done = self._ask(host, "dominfo", self.domain)
        if not done.ok:
            raise UsageError(
                f"libvirt at {self._uri(host)}: {done.failure(find_virsh_message)}", remedy="virsh list --all"
            )
        return dict(re.findall(r"^([^:\n]+): +(.*)$", done.stdout, re.MULTILINE))

    def needs(self, host: Host) -> Mapping[str, str]:
        return {_AUTOSTART: "yes"} if self._information(host).get("Autostart") == "enable" else {}

    def remaining_state(self, host: Host) -> str:
        require_program(host, "virsh", "libvirt-clients")
        done = self._ask(host, "domstate", self.domain)
        if not done.ok and not is_gone(done.stderr):
            why = done.failure(find_virsh_message)
            raise RunError(f"the state of {self.name} is not known: {why}", remedy="virsh list --all")
        state = done.stdout.strip()
        return "" if not done.ok or state in _ENDED else f"is {state}"

    def require_target(self, host: Host, target: Target) -> None:
        """See contract.Moves. If the vCPUs of the domain have the features of this machine's processor, check
        that the processor of the destination has them too. libvirt does not check this.

        Raises UsageError if it lacks one.
        """
        mode = _CPU_MODE.search(self._ask(host, "dumpxml", self.domain).stdout)
        if mode is None:
            return
        here = self._ask(host, "capabilities").stdout
        words = ("cpu-compare", "/dev/stdin", "--error")
        done = ask_libvirt(host, uri_of(target), *words, timeout=SECONDS, stdin=here)
        if not done.ok and "incompatible" in done.stdout + done.stderr:
            raise UsageError(
                f"domain {self.domain} has {mode[0]}, and the processor of {target.text} lacks features of"
                " the one here",
                remedy="virsh edit: <cpu mode='custom'> with a model that both have, and start it again",
            )

    def checkpoint(self, host: Host, work: Work, images: Path, method: Method) -> None:
        if work.keep_running:
            raise UsageError("virsh save ends the domain", remedy="without --keep-running, then restore it")
        # libvirt ends the domain as the last step of a save, and then completes the file by a write that it does
        # not flush.
        make_synchronous(images / STATE)
        words = ("save", self.domain, str(images / STATE))
        # Else libvirt would boot the domain anew, beside its images, when the machine starts.
        starts = bool(self.needs(host))
        if starts:
            self._ask(host, "autostart", "--disable", self.domain).require(
                f"domain {self.domain} is not saved, it continues", find=find_virsh_message
            )
        try:
            done = ask_libvirt(host, self._uri(host), *words, timeout=work.time_limit)
        except BaseException:
            self._ask(host, "domjobabort", self.domain)  # without virsh, the daemon continues to save
            self._start_again(host, starts=starts)
            raise
        if not done.ok:
            if done.returncode == TIMED_OUT:
                self._ask(host, "domjobabort", self.domain)
            self._start_again(host, starts=starts)
            raise self._failed(host, "not saved", done.failure(find_virsh_message))

    def _start_again(self, host: Host, *, starts: bool) -> None:
        """Let libvirt start the domain with the machine again, if it did so before a failed save."""
        if starts:
            self._ask(host, "autostart", self.domain)

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        done = self._ask(host, "restore", str(images / STATE))
        if done.returncode == TIMED_OUT:  # the daemon goes on without virsh
            answer = ask_libvirt(host, self._uri(host), "domstate", self.domain, timeout=ASK_SECONDS)
            state = answer.stdout.strip()
            if state != "running":
                raise RunError(
                    f"domain {self.domain} does not run {SECONDS:g} s after its restore began; libvirt may "
                    f"still restore it, and says: {state or answer.failure(find_virsh_message)}",
                    where=str(images),
                    remedy=f"virsh domstate {self.domain}; if it is shut off: {restore_line(images)}",
                )
        else:
            self._restored(done, images, find_virsh_message)
        if _AUTOSTART in saved.own and not (done := self._ask(host, "autostart", self.domain)).ok:
            raise RestoredError(
                f"domain {self.domain} is restored, but libvirt will not start it with the machine: "
                f"{done.failure(find_virsh_message)}",
                remedy=f"virsh autostart {self.domain}",
            )
        return self.name

    def look(self, host: Host, images: Path, saved: Saved) -> Iterator[HostCheck]:
        taken = self._ask(host, "domstate", self.domain).stdout.strip() in ("running", "paused")
        yield free_name(f"domain {self.domain}", taken, f"virsh shutdown {self.domain}")

    def migrate(self, host: Host, work: Work, target: Target, method: Method) -> MovedAway:
        bandwidth = (
            [] if work.bandwidth is None else ["--bandwidth", str(max(round(work.bandwidth / (1 << 20)), 1))]
        )
        uri, information = uri_of(target), self._information(host)
        # Else the definition stays here, and libvirt may start the domain a second time.
        persistent = ["--persistent", "--undefinesource"] if information.get("Persistent") == "yes" else []
        self._ask(host, "migrate-setmaxdowntime", self.domain, str(round(work.downtime_limit * 1e3)))
        begin = time.monotonic()
        words = ["migrate", *MOVE_OPTIONS[method], *persistent, *bandwidth, self.domain, uri]
        what = f"not moved by {method}"
        try:
            done = ask_libvirt(host, self._uri(host), *words, timeout=work.time_limit)
        except KeyboardInterrupt as e:
            self._ask(host, "domjobabort", self.domain)
            raise self._failed(host, what, "interrupted", uri) from e
        total = time.monotonic() - begin
        if not done.ok:
            if done.returncode == TIMED_OUT:
                self._ask(host, "domjobabort", self.domain)
            raise self._failed(host, what, done.failure(find_virsh_message), uri)
        job = self._ask(host, "domjobinfo", "--completed", self.domain)
        downtime = re.search(r"^Total downtime: +(\d+) +ms", job.stdout, re.MULTILINE)
        return MovedAway(
            now=f"{self.name} at {uri}",
            total=total,
            downtime=int(downtime[1]) / 1e3 if downtime else None,
            sent=None,
            warning=self._carry_autostart(host, uri) if information.get("Autostart") == "enable" else "",
        )

    def _carry_autostart(self, host: Host, uri: str) -> str:
        """Let the other host start the moved domain when it boots, as this one did. Returns a warning if it does
        not."""
        done = ask_libvirt(host, uri, "autostart", self.domain, timeout=SECONDS)
        if done.ok:
            return ""
        why = done.failure(find_virsh_message)
        return (
            f"{uri} will not start domain {self.domain} at boot, as this host did: {why}; next: virsh "
            f"--connect {shlex.quote(uri)} autostart {shlex.quote(self.domain)}"
        )

    def _failed(self, host: Host, what: str, why: str, to: str = "") -> RunError:
        """Return the error of a checkpoint or a move, which says where the domain runs.

        what: what was not done, such as 'not saved'.
        why: the reason.
        to: destination of a move.
        """
        state = self._ask(host, "domstate", self.domain).stdout.strip()
        return self._said(what, why, runs=state == "running", state=state, to=to)

    def _ask(self, host: Host, *words: str) -> Completed:
        return ask_libvirt(host, self._uri(host), *words, timeout=SECONDS)

    @staticmethod
    def _uri(host: Host) -> str:
        return os.environ.get("LIBVIRT_DEFAULT_URI") or usual_uri(host)


def _columns(done: Completed) -> list[str]:
    """Return the columns of the first domain that `xl list` has printed; empty if there is none."""
    lines = done.stdout.splitlines()
    return lines[1].rsplit(None, 5) if done.ok and len(lines) > 1 else []


def require_xl(host: Host) -> None:
    """Raises UnavailableError if a host has no xl."""
    if host.which("xl") is None:
        raise UnavailableError(
            f"xl is not installed on {host.name}", remedy="boot Xen, and apt-get install xen-utils"
        )


def uri_of(target: Target) -> str:
    """Return the URI of libvirt's system daemon at a destination. A destination may already be a URI."""
    return target.text if "://" in target.text else f"qemu+ssh://{target.text}/system"


class XenDomain(_Domain):
    """A domain of Xen, controlled by xl. nearmetal must run in the dom0."""

    kind = "xl"
    own_fields: ClassVar = {}
    moves_by: ClassVar = {DestinationKind.HOST: (Method.STREAM,)}

    def refuses(self, way: DestinationKind) -> Unavailable:
        return Unavailable(
            reason="xl moves a domain to another host only", remedy="--to HOST, which runs Xen"
        )

    def exceeds(self, way: DestinationKind, method: Method, bandwidth: float) -> Unavailable | None:
        return Unavailable(reason="xl migrate has no limit on its bandwidth", remedy="leave --bandwidth out")

    def require_programs(self, host: Host, work: Work) -> None:
        require_xl(host)

    def inspect(self, host: Host) -> Facts:
        require_xl(host)
        found = self._listed(host, self.domain)
        if not found:
            raise UsageError(f"Xen has no domain {self.domain}", remedy="xl list")
        return Facts(memory=int(found[_MEMORY]) << 20, warning=self._started_at_boot(host))

    def needs(self, host: Host) -> Mapping[str, str]:
        return {}

    def _started_at_boot(self, host: Host) -> str:
        """Return a warning if dom0 starts the domain at boot."""
        pattern = rf"^ *name *= *[\"']{re.escape(self.domain)}[\"']"
        done = host.run(["grep", "-s", "-l", "-E", "-e", pattern, "-r", _AUTO], timeout=ASK_SECONDS)
        if not (file := done.stdout.partition("\n")[0]):
            return ""
        return f"dom0 starts a new {self.domain} at its next boot because of {file}: remove that file first"

    def remaining_state(self, host: Host) -> str:
        require_xl(host)
        done = host.run(["xl", "list", self.domain], timeout=ASK_SECONDS)
        found = _columns(done)
        if not done.ok and not any(words in done.stderr for words in _NO_DOMAIN):
            raise RunError(f"the state of {self.name} is not known: {done.failure()}", remedy="xl list")
        return f"exists: xl list shows {found[_STATE]}" if found else ""

    def checkpoint(self, host: Host, work: Work, images: Path, method: Method) -> None:
        more = ["-c"] if work.keep_running else ["-p"]
        part, whole = shlex.quote(str(images / f".{STATE}")), shlex.quote(str(images / STATE))

        def argv(receiver: list[str]) -> list[str]:
            save = shlex.join(["xl", "save", *more, self.domain, "/proc/self/fd/3"])
            line = f"trap '' PIPE; umask 077; {save} 3>&1 >&2 | {shlex.join(receiver)} dd bs=1M conv=fsync of={part}"
            return ["bash", "-o", "pipefail", "-c", f"{line} && mv {part} {whole}"]

        self._followed(host, work, argv, "not saved")
        if work.keep_running:
            return
        # `xl save` alone would end the domain before all of its state is on the disk.
        try:
            sync_images(host, images)
        except BaseException:
            host.run(["xl", "unpause", self.domain], timeout=ASK_SECONDS)
            raise
        done = host.run(["xl", "destroy", self.domain], timeout=ASK_SECONDS)
        if not done.ok:
            raise WrittenError(f"domain {self.domain} was saved, but is paused and still exists: {done.failure()}")

    def restore(self, host: Host, work: Work, images: Path, saved: Saved) -> str:
        if self.remaining_state(host):  # otherwise destroy() below would end a domain of the user's
            raise RunError(
                f"Xen has a domain {self.domain} already",
                remedy=f"xl shutdown {self.domain}, then: {restore_line(images)}",
            )

        def destroy() -> None:
            host.run(["xl", "destroy", self.domain], timeout=ASK_SECONDS)

        with ended_if_interrupted(host, destroy):
            done = host.run(["xl", "restore", str(images / STATE)], timeout=SECONDS)
        if not done.ok:
            destroy()  # a killed xl leaves a domain that is built only in part
        return self._restored(done, images, find_xl_message)

    def look(self, host: Host, images: Path, saved: Saved) -> Iterator[HostCheck]:
        taken = bool(self._listed(host, self.domain))
        yield free_name(f"domain {self.domain}", taken, f"xl shutdown {self.domain}")

    def migrate(self, host: Host, work: Work, target: Target, method: Method) -> MovedAway:
        def argv(receiver: list[str]) -> list[str]:
            return ["xl", "migrate", "-s", f"{shlex.join(receiver)} ssh", self.domain, target.text]

        begin = time.monotonic()
        self._followed(host, work, argv, "not moved", target.text)
        total = time.monotonic() - begin
        return MovedAway(now=f"{self.name} at {target.text}", total=total, downtime=None, sent=None)

    def _followed(
        self, host: Host, work: Work, argv: Callable[[list[str]], list[str]], what: str, to: str = ""
    ) -> None:
        """Run xl, which writes the state of the domain to another program.

        At the time limit and at Ctrl-C this program is ended. xl then lets the domain go on; a killed xl
        would leave it suspended.

        argv: returns the command line, given a command prefix for this program.
        what, to: as in _said().
        Raises RunError, which says where the domain runs.
        """
        with scratch_directory(f"nearmetal-check-{os.getpid()}-move") as place:
            pid, printed = place / "pid", place / "printed"
            limited = ["timeout", "--foreground", f"{work.time_limit:g}"]
            receiver = ["sh", "-c", NOTED, str(pid), *limited]
            process = host.start(argv(receiver), stdout=printed, stderr=printed, cwd=Path("/"))
            why, begin = "", time.monotonic()
            try:
                status = process.wait(work.time_limit + LAST_SECONDS)
                if time.monotonic() - begin > work.time_limit:
                    why = f"the time limit of {work.time_limit:g} s is over"
            except (KeyboardInterrupt, TimeoutError) as e:
                why = "interrupted" if isinstance(e, KeyboardInterrupt) else "xl does not end"
                end = 'until [ -s "$0" ]; do sleep 0.05; done; kill $(cat "$0")'  # it may just be starting
                host.run(["sh", "-c", end, str(pid)], timeout=ASK_SECONDS)
                with contextlib.suppress(TimeoutError):
                    process.wait(LAST_SECONDS)
                process.kill()
                status = process.wait(0)
            if status == 0:
                return
            why = why or find_xl_message(printed.read_text(errors="replace")) or f"xl ended with {status}"
        found = self._listed(host, self.domain)
        state = found[_STATE] if found else ""
        words = f"xl list shows {state}" if state else "it has left"
        raise self._said(what, why, runs=bool(state) and not set(state) & set("pscd"), state=words, to=to)

    @staticmethod
    def _listed(host: Host, domain: str) -> list[str]:
        """Return the columns of `xl list` for a domain, given by its name or ID; empty if there is none."""
        return _columns(host.run(["xl", "list", domain], timeout=ASK_SECONDS))
