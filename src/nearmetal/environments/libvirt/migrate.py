"""Moves a guest of libvirt by `virsh migrate` to a second daemon, which nearmetal starts at another seat."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host, Process, cgroups, runtime
from ...host.guest_line import GuestLine
from ...host.processes import labelled as processes
from ...host.processes.foreign import ForeignProcess, process_of_thread
from ...host.processes.running import await_true
from ...lifecycle import CopyRound, Costs, Estimate, Method, NotConvergedError
from ...model.study import Environment
from ..contract import InstanceRequest, Tools, Unavailable
from ..guests.guest import host_cpus_of
from ..guests.moves import MoveFigures, first_answer, moved_as, not_moved, note_round, phases_of
from ..guests.tap import taken_place
from ..instance import CONTROLLERS, START_TIMEOUT, control_groups
from ..moving import Moved, MoveRequest
from ..program import in_groups, read_log, read_pid
from ..qemu.argv import GuestPlan, Sockets
from ..qemu.guest import QemuGuest, pin, require_program
from ..qemu.migrate import ended
from ..qemu.migrate import unmovable as unmovable_by_qemu
from ..qemu.moving import CHANNELS, LAST_SECONDS, MoveProgress
from .daemon import QUIET, Daemon, ask, destroy, elsewhere, find_virsh_message, virsh_argv
from .domain import guarded, threads_of
from .tap import tap_at
from .xml import DomainPlan, domain_xml, identity

MOVE_OPTIONS: Mapping[Method, tuple[str, ...]] = {
    Method.PRECOPY: ("--live", "--auto-converge"),
    Method.OFFLINE: (),
    Method.POSTCOPY: ("--live", "--postcopy", "--postcopy-after-precopy"),
    Method.MULTIFD: ("--live", "--auto-converge", "--parallel", "--parallel-connections", str(CHANNELS)),
}
"""Options of `virsh migrate`, by method."""
COSTS = Costs(
    fixed=Estimate(0.01, 0.1, 0.6),
    setup=Estimate(0.2, 0.7, 3.0),
    bandwidth=Estimate(1.2e8, 5e8, 4e9),
)
"""Costs of a move on one machine, including the start of a daemon and of a second QEMU."""
MIB = 1 << 20
_LOOK_AGAIN = 0.005
_LOOK_AT_ROUNDS = 1.0
"""Seconds between two queries of a move's progress. virsh uses 12 ms of CPU time for each query."""
USERFAULTFD = Path("/proc/sys/vm/unprivileged_userfaultfd")
_EVENT = re.compile(r"event (\w+) at (\d+\.\d+) for domain '([^']*)': (.*)$", re.MULTILINE)
_READY = "listening"
_XML, _SAID, _ERRORS = "move.xml", "move.txt", "move-errors.txt"
_FROM, _TO = "source-events.txt", "target-events.txt"


@dataclass(frozen=True, kw_only=True)
class LibvirtGuest(QemuGuest):
    """A running guest of libvirt that can be moved.

    daemon: the daemon that runs it.
    domain: name of its domain at this daemon.
    seat: clean-up of its connection to the network; must be closed after the guest has left this place.
    """

    daemon: Daemon
    domain: str
    seat: ExitStack


def libvirt_guest(guest: QemuGuest, daemon: Daemon, domain: str, seat: ExitStack) -> LibvirtGuest:
    own = {f.name: getattr(guest, f.name) for f in fields(QemuGuest)}
    return LibvirtGuest(**own, daemon=daemon, domain=domain, seat=seat)


def refuses_postcopy() -> Unavailable | None:
    """Return why no guest can be moved by postcopy on this machine; None if the kernel allows it."""
    if not USERFAULTFD.exists() or USERFAULTFD.read_text().strip() != "0":
        return None
    return Unavailable(
        reason="the kernel does not allow userfaultfd to the daemon at the destination, which does not run as"
        " root",
        remedy="sysctl -w vm.unprivileged_userfaultfd=1",
    )


def unmovable(environment: Environment, method: Method) -> Unavailable | None:
    """Return why guests of an environment cannot be moved by a method; None if they can."""
    if environment.guest is not None and environment.guest.huge_pages:
        return Unavailable(
            reason="the daemon at the destination cannot allocate huge pages",
            remedy="huge_pages: false, or backend: qemu",
        )
    if method is Method.POSTCOPY and (refused := refuses_postcopy()) is not None:
        return refused
    return unmovable_by_qemu(environment, method)


@contextmanager
def migrated(host: Host, tools: Tools, guest: LibvirtGuest, to: MoveRequest) -> Iterator[Moved]:
    """Move a guest to a second daemon, where it runs until exit; see moving.Migrates.migrate."""
    environment = guest.request.environment
    if (why := unmovable(environment, to.method)) is not None:
        raise why.error(f"environment {environment.name}: ")
    if not host.is_root():
        raise UnavailableError("a second host name for libvirt needs root", remedy="run as root")
    if to.bandwidth is not None and to.bandwidth < MIB:
        raise UnavailableError("libvirt limits a move by whole MiB/s", remedy="bandwidth: 1 MiB/s or more")
    if trouble := guest.trouble():
        raise RunError(trouble)
    began, there = time.monotonic(), replace(to.destination, environment=environment)
    realtime = time.time() - began
    with ExitStack() as stack:
        groups = stack.enter_context(control_groups(there, CONTROLLERS))
        state = stack.enter_context(runtime.scratch_directory(f"{there.label}-state"))
        seat = stack.enter_context(ExitStack())
        progress = MoveProgress()

        def gone() -> str:
            # libvirt ends the first QEMU as soon as the second one runs.
            return "" if progress.committed else ended(guest.process, guest.scratch)

        with GuestLine(guest.socket, gone) as line:
            plan = replace(guest.plan, incoming=True, sockets=Sockets(directory=state))
            line.begin_move(plan.sockets.port)
            try:
                with ExitStack() as if_it_fails:
                    cache = there.base.cache if there.base is not None else None
                    netns = None if there.seat is None else there.seat.netns
                    arriving = elsewhere(host, tools, there.label, state, cache, netns)
                    daemon = if_it_fails.enter_context(arriving)
                    guard = if_it_fails.enter_context(guarded(host, daemon.uri, there.label, state, "uri"))
                    move = _Move(
                        host=host, tools=tools, guest=guest, to=to, daemon=daemon, state=state, groups=groups
                    )
                    if_it_fails.callback(move.end)
                    move.write_xml(plan, there, seat)
                    if (status := guard.poll()) is not None:
                        raise RunError(
                            f"the daemon at the destination refused virsh, which ended with {status}"
                        )
                    figures = move.follow(progress, line)
                    threads = threads_of(host, daemon.uri, there.label)
                    process = move.find(process_of_thread(threads[0]))
                    stack.push(if_it_fails.pop_all())
            except RunError as e:
                seat.close()
                raise _failed(e, host, guest, line, to, state, progress) from e
        done = time.monotonic()
        guest.process.kill()
        guest.seat.close()
        removed = time.monotonic()
        pin(threads, there)
        try:
            with GuestLine(guest.socket, partial(ended, process, state)) as agent:
                ahead, answered = first_answer(agent, to.time_limit)
        except RunError as e:
            what = f"the guest was moved by {to.method}, and is lost: it does not answer at its destination"
            raise RunError(f"{what}: {e.what}") from e
        moved = replace(
            guest,
            pid=process.pid,
            cgroups=groups,
            scratch=state,
            process=process,
            ahead=ahead,
            threads=threads,
            plan=plan,
            request=there,
            daemon=daemon,
            domain=there.label,
            seat=seat,
        )
        marks = (began + realtime, figures.requested, done, removed, answered)
        phases = phases_of(to.method, figures, *marks)
        yield moved_as(moved, figures, phases, began=began, ended=answered, realtime=realtime)


@dataclass(kw_only=True)
class _Move:
    """A move in progress.

    daemon, state, groups: daemon, state directory and control groups of the destination.
    process: process of the second QEMU; None until it is found.
    """

    host: Host
    tools: Tools
    guest: LibvirtGuest
    to: MoveRequest
    daemon: Daemon
    state: Path
    groups: Mapping[str, Path]
    process: ForeignProcess | None = None
    _switched: bool = field(default=False, init=False)
    _copied: dict[int, CopyRound] = field(default_factory=dict, init=False)

    @property
    def there(self) -> str:
        """The name of the domain at the destination."""
        return self.to.destination.label

    def write_xml(self, plan: GuestPlan, there: InstanceRequest, seat: ExitStack) -> None:
        """Write the XML of the domain for its destination, and connect a tap to the network there if the
        guest has a network.

        there: request for the destination.
        seat: receives the clean-up of the tap.
        """
        guest, card = self.guest, ""
        if there.seat is not None and plan.place is not None:
            taken_place(self.host, self.tools, there.seat, there.environment.attachment)
            card = seat.enter_context(tap_at(self.host, there.label, there.seat, plan.place))
        found = ask(self.host, guest.daemon.uri, "dumpxml", guest.domain)
        if not found.ok:
            raise RunError(guest.trouble() or found.failure(find_virsh_message))
        uuid, machine = identity(found.stdout)
        cpus = host_cpus_of(there, plan.vcpus) if plan.settings.pin else ()
        wanted = DomainPlan(
            name=guest.domain,
            uuid=uuid,
            label=there.label,
            guest=replace(plan, machine=machine),
            emulator=require_program(self.host),
            cpus=cpus,
            tap=card,
        )
        (self.state / _XML).write_text(domain_xml(wanted))

    def follow(self, progress: MoveProgress, line: GuestLine) -> MoveFigures:
        """Move the domain, and return when it runs at its destination and the source is no longer needed.

        progress: is updated during the move, as in qemu.moving.move().
        line: connection to the guest's agent, which is switched to the destination when the guest runs there.
        Raises RunError; NotConvergedError if pre-copy took too long.
        """
        to, source = self.to, self.guest.daemon.uri
        with ExitStack() as stack:
            for uri, file in ((source, _FROM), (self.daemon.uri, _TO)):
                self._listen(stack, uri, file)
            self._ask(source, "migrate-setmaxdowntime", self.guest.domain, f"{to.downtime_limit * 1e3:.0f}")
            if to.together is not None:
                to.together.meet(to.time_limit)
                self._ask(source, "suspend", self.guest.domain)
                to.together.meet(to.time_limit)
            requested, end = time.time(), time.monotonic() + to.time_limit
            client = self._run(_SAID, _ERRORS, self._argv())
            stack.callback(client.kill)
            aborted, look = False, time.monotonic() + _LOOK_AT_ROUNDS
            while (status := client.poll()) is None:
                self._look(progress, line)
                if to.method.copies_first and time.monotonic() > look:
                    look += _LOOK_AT_ROUNDS
                    self._note_round()
                if time.monotonic() > end:
                    if aborted:
                        break
                    aborted, end = True, time.monotonic() + LAST_SECONDS
                    if not progress.committed:  # the move may complete before it is aborted
                        ask(self.host, source, "domjobabort", self.guest.domain)
                time.sleep(_LOOK_AGAIN)
            if status != 0:
                raise self._failure(status, aborted=aborted)
            if to.together is not None:
                progress.committed = True  # libvirt has ended the first QEMU
                to.together.meet(to.time_limit)
                self._ask(self.daemon.uri, "resume", self.there)
            if not await_true(partial(self._look, progress, line), LAST_SECONDS):
                raise RunError("the guest does not run at its destination")
        return self._figures(requested)

    def find(self, pid: int) -> ForeignProcess:
        """Return the process of the second QEMU. At the first call, put it into the control groups of the
        destination.

        pid: PID of this QEMU.
        """
        if self.process is None:
            self.process = ForeignProcess(pid)
            cgroups.take(self.groups, pid)
        return self.process

    def end(self) -> None:
        """End the second QEMU and its domain, if they exist."""
        if self.process is not None:
            with self.process:
                return
        with suppress(RunError):
            destroy(self.host, self.daemon.uri, self.there)

    def _look(self, progress: MoveProgress, line: GuestLine) -> bool:
        """Check the progress of the move once: find the second QEMU, and switch the agent's connection to it
        as soon as the guest runs there. Return whether it has been switched."""
        assert self.daemon.pids is not None
        if self.process is None and (pid := read_pid(self.daemon.pids / f"{self.there}.pid")) is not None:
            self.find(pid)
        if not self._switched and "RESUME" in events(read_log(self.state / _TO), self.there):
            self._switched = progress.committed = True
            line.switch()
        return self._switched

    def _note_round(self) -> None:
        """Query libvirt, and record the current pre-copy round."""
        report = self._report(self.guest.daemon.uri, self.guest.domain)
        number, left = report.get("memory_iteration", 0), report.get("memory_remaining", 0)
        note_round(self._copied, number, left, report.get("auto_converge_throttle", 0) / 100)

    def _report(self, *where: str) -> Mapping[str, int]:
        """Return the integer figures of a move from `virsh domjobinfo`, by name.

        where: options of domjobinfo, then the URI of a daemon and the name of the domain there.
        """
        *options, uri, name = where
        said = ask(self.host, uri, "domjobinfo", *options, "--rawstats", name).stdout
        return {key: int(value) for key, value in re.findall(r"^(\w+): (\d+)$", said, re.MULTILINE)}

    def _argv(self) -> list[str]:
        to, move = self.to, self.state / "move"
        speed = [] if to.bandwidth is None else [str(max(round(to.bandwidth / MIB), 1))]
        words = [word for s in speed for word in ("--bandwidth", s)]
        if to.method is Method.POSTCOPY:
            words += [word for s in speed for word in ("--postcopy-bandwidth", s)]
        words += ["--dname", self.there, "--xml", str(self.state / _XML), "--migrateuri", f"unix://{move}"]
        words += [self.guest.domain, self.daemon.uri]
        return virsh_argv(self.guest.daemon.uri, ["migrate", *MOVE_OPTIONS[to.method], *words])

    def _listen(self, stack: ExitStack, uri: str, file: str) -> None:
        """Write the events of all QEMU monitors of a daemon to a file, by `virsh qemu-monitor-event`, until
        the stack is closed.

        uri: URI of the daemon.
        file: name of the file in the state directory.
        """
        argv = virsh_argv(uri, [f"echo {_READY}; qemu-monitor-event --loop"])
        listener = self._run(file, file, argv)
        stack.callback(listener.kill)
        if not await_true(lambda: _READY in read_log(self.state / file), START_TIMEOUT, listener):
            raise RunError(find_virsh_message(read_log(self.state / file)) or "virsh reports no events")

    def _run(self, output: str, errors: str, argv: list[str]) -> Process:
        return self.host.start(
            in_groups(self.tools, {}, self.there, argv),
            stdout=self.state / output,
            stderr=self.state / errors,
            env={processes.LABEL_VARIABLE: self.there, **QUIET},
            cwd=Path("/"),
        )

    def _ask(self, uri: str, *words: str) -> None:
        done = ask(self.host, uri, *words)
        if not done.ok:
            raise RunError(f"virsh {words[0]}: {done.failure(find_virsh_message)}")

    def _failure(self, status: int | None, *, aborted: bool) -> RunError:
        why = find_virsh_message(read_log(self.state / _ERRORS)) or f"virsh ended with {status}"
        if not aborted:
            return RunError(why)
        what = f"the move by {self.to.method} was not done after {self.to.time_limit:g} s"
        remedy = "more bandwidth, a longer downtime limit, or method postcopy"
        if self.to.method.copies_first:
            return NotConvergedError(what, remedy=remedy, copied=tuple(self._copied.values()))
        return RunError(what, remedy=remedy)

    def _figures(self, requested: float) -> MoveFigures:
        left = events(read_log(self.state / _FROM), self.guest.domain)
        came = events(read_log(self.state / _TO), self.there)
        facts = self._report("--completed", self.daemon.uri, self.there)
        completed = left.get("MIGRATION completed", came.get("MIGRATION completed", time.time()))
        resumed = came.get("RESUME", completed)
        downtime = facts["downtime"] / 1e3 if "downtime" in facts else None
        stopped = left.get("STOP", resumed - (downtime or 0.0))
        return MoveFigures(
            requested=min(left.get("MIGRATION setup", requested), stopped),
            stopped=stopped,
            completed=completed,
            resumed=resumed,
            downtime=downtime,
            sent=facts.get("memory_processed", 0),
            rounds=facts.get("memory_iteration", 0),
            copied=tuple(self._copied.values()),
        )


def events(said: str, domain: str) -> dict[str, float]:
    """Parse the output of `virsh qemu-monitor-event`: name of an event of a domain -> its last time, in
    seconds of CLOCK_REALTIME. The name of a migration event includes the status, such as 'MIGRATION
    completed'. Other domains of the same daemon have events too, which are left out."""
    found = {}
    for name, at, whose, facts in _EVENT.findall(said):
        if whose != domain:
            continue
        status = re.search(r'"status":"([\w-]+)"', facts) if name == "MIGRATION" else None
        found[f"{name} {status[1]}" if status is not None else name] = float(at)
    return found


def _failed(
    error: RunError,
    host: Host,
    guest: LibvirtGuest,
    line: GuestLine,
    to: MoveRequest,
    state: Path,
    progress: MoveProgress,
) -> RunError:
    """Let a guest continue at its source after a failed move, and return the error to raise.

    The second QEMU must have ended. A guest that may have run there does not continue at its source.

    error: the cause.
    state: state directory of the destination, with the log of events.
    """
    committed = progress.committed or "RESUME" in events(read_log(state / _TO), to.destination.label)
    uri, name = guest.daemon.uri, guest.domain
    why = ""
    if not committed and ask(host, uri, "domstate", name).stdout.strip() == "paused":
        done = ask(host, uri, "resume", name)
        why = "" if done.ok else f"it is paused and cannot be resumed: {done.failure(find_virsh_message)}"
    runs = not committed and ask(host, uri, "domstate", name).stdout.strip() == "running"
    lost = "" if runs or committed else guest.trouble() or why or "its daemon no longer answers"
    return not_moved(error, line, to.method, runs=runs, lost=lost)
