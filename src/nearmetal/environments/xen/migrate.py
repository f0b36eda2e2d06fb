"""Move a guest of Xen to another seat of the same dom0: by xl save and xl restore, or live by xl migrate."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host, Process, runtime
from ...host.guest_line import GuestLine
from ...host.processes.running import NOTED, running_program
from ...lifecycle import Method, NotConvergedError
from ...model.study import Environment
from ..contract import Tools, Unavailable
from ..guests.moves import MoveFigures, first_answer, moved_as, not_carried, not_moved, phases_of
from ..guests.tap import taken_place
from ..moving import Moved, MoveRequest
from ..program import read_log
from .config import DomainConfig, at_seat, config_text
from .disk import FILES, SAVED
from .guest import XenInstance, set_cpu_use
from .line import console_read
from .settings import XenDiskKind, XenType, settings_for
from .xl import AWAY, INCOMING, XenFacts, find_xl_message

METHODS = (Method.OFFLINE, Method.STREAM, Method.PRECOPY)
LAST_SECONDS = 90.0
"""Seconds for the last steps of a move that was ended at its time limit. xl waits 60 s for a guest to
suspend."""
_SHORT = 60.0
_LAST_WORDS = 2.0
_LOOK_AGAIN = 0.005
_LOG = "move.txt"
_STOPPED, _TOOK, _GO = "guest has suspended", "Target has acknowledged transfer", "Giving target permission"
_STARTED = "Domain started"
_MESSAGES = (_STOPPED, _TOOK, _GO, _STARTED)
_BYTES = re.compile(r"^(\d+) bytes ", re.MULTILINE)
"""Output of dd. All data that are sent pass through it, because xl does not report how much it sends."""
_STATUS = re.compile(r"^nm-(saved|read) (\d+)$", re.MULTILINE)
_DETAIL = re.compile(r"^(?:[\w:-]+: (?:debug|detail|progress): |nm-)[^\n]*\n?", re.MULTILINE)
SAVE = """\
trap '' PIPE
umask 077
name=$1 config=$2 gate=$3
{
    xl -vvv save -p "$name" /proc/self/fd/3 "$config" 3>&1 >&2
    echo "nm-saved $?" >&2
} | {
    while [ -e "$gate" ]; do sleep 0.02; done
    [ ! -e "$gate.stop" ] || exit 1
    sh -c "$4" >&2
    echo "nm-read $?" >&2
}
"""
"""Shell commands that save a guest into a command, which begins as soon as the file `gate` does not exist.
The guest is paused afterwards. If the command ends before, xl cannot write and lets the guest go on."""
AWAIT = 'read -r pid <"$1" || exit 0; while [ -e "/proc/$pid" ]; do sleep 0.1; done'
"""Shell commands that wait for the end of the process whose PID is in a file, if the file exists."""
RECEIVE = """\
exec 3<&0
dd bs=1M <&3 >{pipe} &
exec timeout --foreground {limit} xl migrate-receive <{pipe} 3<&-
"""
"""Shell commands that receive a running guest. Only the last one answers xl. If it ends too early, the guest
goes on at its source."""


def unmovable(environment: Environment, method: Method) -> Unavailable | None:
    """Return why guests of an environment cannot be moved by a method; None if they can."""
    if method not in METHODS:
        return Unavailable(
            reason=f"xl has no method {method}", remedy=f"one of {', '.join(m.value for m in METHODS)}"
        )
    if method is Method.PRECOPY and settings_for(environment).type is XenType.PV:
        return Unavailable(
            reason="Xen without shadow paging, as Debian builds it, does not log the pages that a pv guest"
            " writes to",
            remedy="xen: {type: pvh}, or method stream",
        )
    return not_carried(environment)


@contextmanager
def migrated(host: Host, tools: Tools, guest: XenInstance, to: MoveRequest) -> Iterator[Moved]:
    """Move a guest, which runs at its destination until exit. See moving.Migrates.migrate."""
    environment, xl, at = guest.request.environment, guest.xl, guest.at
    if (why := unmovable(environment, to.method)) is not None:
        raise why.error(f"environment {environment.name}: ")
    if to.bandwidth is not None:
        raise UnavailableError("xl does not limit the bandwidth of a move", remedy="take bandwidth out")
    if trouble := guest.trouble():
        raise RunError(trouble)
    began, there = time.monotonic(), replace(to.destination, environment=environment)
    realtime = time.time() - began
    facts = xl.facts()
    if isinstance(facts, Unavailable):
        raise facts.error()
    _require_memory(facts, guest.domain)
    with ExitStack() as stack:
        state = stack.enter_context(runtime.scratch_directory(f"{there.label}-state"))
        domain = replace(guest.domain, name=there.label)
        if there.seat is not None:
            taken_place(host, tools, there.seat, environment.attachment)
            first, *others = domain.interfaces
            domain = replace(domain, interfaces=(replace(first, bridge=at_seat(there.seat)), *others))
        settle = partial(set_cpu_use, xl, facts.scheduler, there, domain)
        move = _Move(guest=guest, to=to, domain=domain, state=state, settle=settle)
        config = at.write(f"{there.label}.cfg", config_text(domain))
        stack.callback(at.host.run, ["rm", "-f", config], timeout=_SHORT)
        stack.callback(xl.destroy, f"{guest.domain.name}{AWAY}")
        stack.callback(move.end)
        stack.callback(move.remove_files)
        try:
            figures = move.made(config)
        except RunError as e:
            runs, lost = move.continue_source()
            raise not_moved(e, None, to.method, runs=runs, lost=lost) from e
        move.remove_files()
        done = figures.resumed - realtime
        try:
            xl.destroy(guest.domain.name)
            removed = time.monotonic()
            stack.enter_context(console_read(xl, there.label, state))
            with GuestLine(guest.socket, lambda: _closed(guest.process)) as agent:
                ahead, answered = first_answer(agent, to.time_limit)
        except RunError as e:
            what = f"the guest was moved by {to.method}, and is lost: {e.what}"
            raise RunError(what, remedy=e.remedy) from e
        moved = replace(guest, scratch=state, ahead=ahead, domain=domain, request=there)
        marks = (began + realtime, figures.requested, done, removed, answered)
        phases = phases_of(to.method, figures, *marks)
        yield moved_as(moved, figures, phases, began=began, ended=answered, realtime=realtime)


@dataclass(kw_only=True)
class _Move:
    """A move while it happens.

    domain: its configuration at the destination.
    state: directory of the instance on this machine.
    settle: pins the guest at its destination and sets its share of the CPUs.
    committed: whether the guest may have run at its destination. From then on it must not continue at its
        source.
    """

    guest: XenInstance
    to: MoveRequest
    domain: DomainConfig
    state: Path
    settle: Callable[[], None]
    committed: bool = field(default=False, init=False)
    _seen: dict[str, float] = field(default_factory=dict, init=False)
    _late: float = field(default=0.0, init=False)

    def made(self, config: str) -> MoveFigures:
        """Move the guest, and return when it runs at its destination. The source still exists, paused, unless
        xl has removed it.

        config: path on dom0 of its configuration at the destination.
        Raises RunError; NotConvergedError if pre-copy took too long.
        """
        self._late = time.monotonic() + self.to.time_limit
        requested = time.time()
        by = self._live if self.to.method.copies_first else self._saved
        return by(config, requested)

    def _live(self, config: str, requested: float) -> MoveFigures:
        run, pipe = self.guest.at.host.run, self._path("pipe")
        receiver = RECEIVE.format(pipe=shlex.quote(pipe), limit=f"{self.to.time_limit:g}")
        words = ["-s", "", "-C", config, self.guest.domain.name, receiver]
        run(["mkfifo", pipe], timeout=_SHORT).require("the move cannot begin")
        with self._running(["xl", "-vvv", "migrate", *words]) as program:
            self._follow(program)
            if program.poll() != 0:
                raise self._failure()
        now = time.time()
        self.settle()
        return self._figures(requested, self._seen.get(_TOOK, now), self._seen.get(_STARTED, now))

    def _saved(self, config: str, requested: float) -> MoveFigures:
        to, xl, run = self.to, self.guest.xl, self.guest.at.host.run
        gate, file = self._path("gate"), self._file
        offline = to.method is Method.OFFLINE
        limited = f"timeout --foreground {to.time_limit:g}"
        restore = f"dd bs=1M | {limited} xl restore -p /proc/self/fd/0"
        reader = f"exec {limited} dd bs=1M of={shlex.quote(file)}" if offline else restore
        words = [self.guest.domain.name, config, gate, reader]
        if to.together is not None:
            run(["touch", gate], timeout=_SHORT).require("the move cannot begin")
        with self._running(["sh", "-c", SAVE, "sh", *words]) as program:
            if to.together is not None:
                self._open_together(program, gate)
            self._follow(program)
            if sorted(_STATUS.findall(self._said)) != [("read", "0"), ("saved", "0")]:
                raise self._failure()
            completed = time.time()
            if offline:
                self._restored(file)
            self.settle()
            if to.together is not None:
                to.together.meet(to.time_limit)
            self.committed = True
            xl.unpause(self.domain.name)
            resumed = time.time()
        return self._figures(requested, completed, resumed)

    def _restored(self, file: str) -> None:
        """Restore the guest, paused, from a file on dom0. Raises RunError."""
        argv = ["sh", "-c", NOTED, self._path("pid"), "xl", "restore", "-p", file]
        done = self.guest.at.host.run(argv, timeout=max(1.0, self._late - time.monotonic()))
        done.require("the guest cannot be restored", find=find_xl_message)

    def _open_together(self, program: Process, gate: str) -> None:
        """Save the guest once all guests of its job are stopped; let it continue if one of them is not."""
        assert self.to.together is not None
        run = self.guest.at.host.run
        try:
            self._follow(program, until=_STOPPED)
            self.to.together.meet(self.to.time_limit)
        except RunError:
            run(["touch", f"{gate}.stop"], timeout=_SHORT)
            run(["rm", "-f", gate], timeout=_SHORT)
            self._follow(program)
            raise
        run(["rm", "-f", gate], timeout=_SHORT)

    def end(self) -> None:
        """End what exists at the destination."""
        incoming = (INCOMING,) if self.to.method.copies_first else ()
        for part in ("", *incoming):
            self.guest.xl.destroy(f"{self.domain.name}{part}")

    def continue_source(self) -> tuple[bool, str]:
        """Let the guest continue at its source after its move has failed, with nothing left at the
        destination.

        If the connection to dom0 was lost, xl goes on there without it; its end is awaited before.
        Return whether it does, and else why it is lost; empty if it had left its source.
        """
        xl, name = self.guest.xl, self.guest.domain.name
        try:
            most = max(self._late - time.monotonic(), 0.0) + LAST_SECONDS
            self.guest.at.host.run(["sh", "-c", AWAIT, "sh", self._path("pid")], timeout=most).require(
                "it may still be moving"
            )
            self.end()
            found = xl.find(name)
            if found is not None and "p" in found.state and not self.committed:
                xl.unpause(name)
                found = xl.find(name)
            if found is not None and not set(found.state) & set("pscd"):
                return True, ""
            for part in ("", AWAY):
                xl.destroy(f"{name}{part}")
        except RunError as e:
            return False, f"xl does not report its state: {e.what}"
        if self.committed:
            return False, ""
        return False, "it has ended" if found is None else "xl did not resume it"

    def remove_files(self) -> None:
        """Remove all files of the move on dom0."""
        gate = self._path("gate")
        files = (self._path("pid"), self._path("pipe"), gate, f"{gate}.stop", self._file)
        self.guest.at.host.run(["rm", "-f", *files], timeout=_SHORT)

    def _path(self, suffix: str) -> str:
        return f"{self.guest.at.directory}/{self.domain.name}.{suffix}"

    @property
    def _file(self) -> str:
        """Path on dom0 of the file with the state of the guest."""
        disk = settings_for(self.guest.request.environment).disk
        directory = disk.path if disk.kind is XenDiskKind.FILE else None
        return f"{directory or FILES}/{self.domain.name}{SAVED}"

    @property
    def _said(self) -> str:
        return read_log(self.state / _LOG)

    def _running(self, argv: list[str]) -> AbstractContextManager[Process]:
        log = self.state / _LOG
        noted = ["sh", "-c", NOTED, self._path("pid"), *argv]
        return running_program(self.guest.at.host, noted, self.domain.name, log, env={"LC_ALL": "C"})

    def _follow(self, program: Process, until: str = "") -> None:
        """Note when the messages of xl come, until the program has ended, or xl has printed `until`.

        Raises RunError if the program ends without that, or does not end.
        """
        while True:
            ended, said, now = program.poll() is not None, self._said, time.time()
            for message in _MESSAGES:
                if message in said:
                    self._seen.setdefault(message, now)
            self.committed |= _GO in self._seen
            if until and until in self._seen:
                return
            if ended and until:
                raise self._failure()
            if ended:
                return
            if time.monotonic() > self._late + LAST_SECONDS:
                raise RunError(f"xl does not end {LAST_SECONDS:g} s after the time limit of the move")
            time.sleep(_LOOK_AGAIN)

    def _failure(self) -> RunError:
        """Return why xl has not moved the guest."""
        ssh = self.guest.at.ssh
        if ssh is not None and not ssh.connected():
            return RunError(f"the connection to {ssh.name} was lost")
        if time.monotonic() < self._late:
            return RunError(find_xl_message(_DETAIL.sub("", self._said)) or "xl printed no message")
        what = f"the move by {self.to.method} was not done after {self.to.time_limit:g} s"
        if self.to.method.copies_first:
            return NotConvergedError(what, remedy="a lower dirty rate, or method stream", copied=())
        return RunError(what, remedy="less memory for the guest")

    def _figures(self, requested: float, completed: float, resumed: float) -> MoveFigures:
        end = time.monotonic() + _LAST_WORDS
        while not (sent := _BYTES.findall(self._said)) and time.monotonic() < end:
            time.sleep(_LOOK_AGAIN)  # dd ends after xl
        return MoveFigures(
            requested=requested,
            stopped=self._seen.get(_STOPPED, requested),
            completed=completed,
            resumed=resumed,
            downtime=None,
            sent=int(sent[-1]) if sent else 0,
            rounds=0 if self.to.method.copies_first else 1,  # xl does not tell those of pre-copy
        )


def _require_memory(facts: XenFacts, domain: DomainConfig) -> None:
    """Check that the guest can exist twice for a moment.

    Raises UnavailableError.
    """
    if facts.free_memory is not None and domain.memory > facts.free_memory:
        raise UnavailableError(
            f"a guest exists twice while it is moved: it has {domain.memory >> 20} MiB, the hypervisor has"
            f" {facts.free_memory >> 20} MiB that no domain has",
            remedy="less memory for the guest, or for dom0 (dom0_mem= on Xen's command line)",
        )


def _closed(multiplexer: Process) -> str:
    return "" if multiplexer.poll() is None else "the line to the guest is closed"
