"""Domains of Xen that the user has started, controlled by xl."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from ...errors import RunError, UnavailableError, UsageError
from ...host import Completed, Host
from ...host.processes.running import NOTED
from ...host.runtime import scratch_directory
from ...lifecycle import Method
from ..contract import Unavailable
from ..xen.migrate import LAST_SECONDS
from ..xen.xl import find_xl_message
from .contract import (
    ASK_SECONDS,
    SECONDS,
    DestinationKind,
    Facts,
    MovedAway,
    Saved,
    Target,
    Work,
    WrittenError,
    restore_line,
)
from .disk import sync_images
from .domains import Domain
from .dumping import ended_if_interrupted, free_name
from .saved import STATE
from .surroundings import HostCheck

_MEMORY, _STATE = 2, 4
"""Columns of `xl list`."""
_NO_DOMAIN = ("invalid domain identifier", "does not exist")
"""Parts of xl's messages about a domain that it does not know."""
_AUTO = "/etc/xen/auto"
"""Directory of the domains that dom0 starts at boot."""


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


class XenDomain(Domain):
    """A domain of Xen, controlled by xl. nearmetal must run in the dom0."""

    kind = "xl"
    own_fields: ClassVar[Mapping[str, str]] = {}
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
        pattern = f"""^ *name *= *["']{re.escape(self.domain)}["']"""
        done = host.run(["grep", "-s", "-l", "-E", "-e", pattern, "-R", _AUTO], timeout=ASK_SECONDS)
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
            write = f"{shlex.join(receiver)} dd bs=1M conv=fsync of={part}"
            line = f"trap '' PIPE; umask 077; {save} 3>&1 >&2 | {write}"
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
            raise WrittenError(
                f"domain {self.domain} was saved, but is paused and still exists: {done.failure()}"
            )

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
            said = printed.read_text(errors="replace")  # trusted: of xl
            why = why or find_xl_message(said) or f"xl ended with {status}"
        found = self._listed(host, self.domain)
        state = found[_STATE] if found else ""
        words = f"xl list shows {state}" if state else "it has left"
        raise self._said(what, why, runs=bool(state) and not set(state) & set("pscd"), state=words, to=to)

    @staticmethod
    def _listed(host: Host, domain: str) -> list[str]:
        """Return the columns of `xl list` for a domain, given by its name or ID; empty if there is none."""
        return _columns(host.run(["xl", "list", domain], timeout=ASK_SECONDS))
