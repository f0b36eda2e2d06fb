"""Domains (virtual machines) that the user has started; those of libvirt, controlled by virsh."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...errors import RunError, UsageError
from ...host import Completed, Host
from ...host.processes.failure import TIMED_OUT, find_message
from ...lifecycle import Costs, Estimate, Method
from ..contract import Unavailable
from ..libvirt.daemon import ask as ask_libvirt
from ..libvirt.daemon import find_virsh_message, is_gone, usual_uri
from ..libvirt.migrate import MOVE_OPTIONS
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
    restore_line,
)
from .disk import make_synchronous
from .dumping import free_name
from .saved import STATE
from .surroundings import HostCheck

_ENDED = ("shut off", "crashed")
"""States of domains of libvirt that have ended."""
_CPU_MODE = re.compile(r"<cpu mode='(?:host-passthrough|maximum)'")
"""Part of a domain's XML if its vCPUs have the features of the machine's processor."""
_AUTOSTART = "autostart"
"""Name of the field of a description that says that libvirt started the domain with the machine."""
_DOMAIN_COSTS = Costs(fixed=Estimate(0.02, 0.2, 3.0), setup=Estimate(0.05, 0.5, 5.0))


@dataclass(frozen=True, kw_only=True)
class Domain:
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


class LibvirtDomain(Domain):
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
        # libvirt ends the domain as the last step of a save, and then completes the file by a write that it
        # does not flush.
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
        """Let the other host start the moved domain when it boots, as this one did. Returns a warning if it
        does not."""
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


def uri_of(target: Target) -> str:
    """Return the URI of libvirt's system daemon at a destination. A destination may already be a URI."""
    return target.text if "://" in target.text else f"qemu+ssh://{target.text}/system"
