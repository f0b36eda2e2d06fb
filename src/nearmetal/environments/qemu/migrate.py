"""Moves a running guest of QEMU to a second QEMU process at another seat."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host, Process, runtime
from ...host.guest_line import GuestLine, answers
from ...host.pages import sample_pages
from ...host.processes.foreign import process_of_thread
from ...host.processes.running import await_true
from ...lifecycle import Method, NotConvergedError, PageSample
from ...model.environments.guest import DiskFormat, GuestSettings, MachineType
from ...model.environments.image import HOST
from ...model.study import Environment
from ..contract import Instance, Tools, Unavailable
from ..guests.guest import console_words, ended_words, how_far
from ..guests.moves import first_answer, moved_as, not_carried, not_moved, phases_of
from ..instance import CONTROLLERS, START_TIMEOUT, control_groups
from ..moving import Moved, MoveRequest
from ..program import read_log
from .argv import Sockets
from .boot import running
from .guest import FORGETS_WRITES, QemuGuest, pin
from .moving import CAPABILITIES, MoveProgress, give_up, move
from .qmp import Monitor, registers

METHODS = tuple(CAPABILITIES)
_DYING = 0.2
"""Seconds that a QEMU process is given to end after its monitor has closed the connection."""


def sampled(instance: Instance) -> PageSample:
    """Sample the memory of a guest; see moving.Predictable.sample_memory."""
    if not isinstance(instance, QemuGuest) or not instance.threads:
        raise UnavailableError(f"the memory of {instance.label} cannot be seen", remedy="backend: qemu")
    process = process_of_thread(instance.threads[0])
    return sample_pages([process], guest=instance.plan.settings.memory)


def unmovable(environment: Environment, method: Method) -> Unavailable | None:
    """Return why guests of an environment cannot be moved by a method; None if they can."""
    settings = environment.guest or GuestSettings()
    if method not in METHODS:
        return Unavailable(
            reason=f"QEMU has no method {method}", remedy=f"one of {', '.join(m.value for m in METHODS)}"
        )
    if environment.image == HOST and settings.disk is None:
        return Unavailable(
            reason="image host reaches a guest by virtiofs, and nearmetal starts no virtiofsd at the"
            " destination (it would need virtiofsd 1.11, and QEMU 8.2, on both sides)",
            remedy="image: debian-kernel, or another that was built (nearmetal image list)",
        )
    if settings.vfio is not None:
        return Unavailable(
            reason=f"device {settings.vfio} is passed through and stays where it is",
            remedy="take vfio out of guest",
        )
    if settings.machine is MachineType.MICROVM:
        return Unavailable(reason="machine microvm has no version to agree on", remedy="machine: q35")
    if settings.writable is not None or settings.swap is not None or settings.format is DiskFormat.QCOW2:
        return Unavailable(
            reason="a disk that it writes to is not shared between both sides",
            remedy="take writable, swap and format: qcow2 out of guest, so that it writes to its memory",
        )
    if settings.snapshot:
        return Unavailable(
            reason="what snapshot keeps stays in a file of the first QEMU", remedy="snapshot: false"
        )
    return not_carried(environment)


@contextmanager
def migrated(host: Host, tools: Tools, guest: QemuGuest, to: MoveRequest) -> Iterator[Moved]:
    """Move a guest to a second QEMU, which runs until exit; see moving.Migrates.migrate."""
    environment = guest.request.environment
    if (why := unmovable(environment, to.method)) is not None:
        raise why.error(f"environment {environment.name}: ")
    began, there = time.monotonic(), replace(to.destination, environment=environment)
    realtime = time.time() - began
    with ExitStack() as stack:
        groups = stack.enter_context(control_groups(there, CONTROLLERS))
        state = stack.enter_context(runtime.scratch_directory(f"{there.label}-state"))
        sockets = Sockets(directory=state)
        with ExitStack() as until_moved:
            source = _source(guest, until_moved)
            machine = str(source.ask("qom-get", {"path": "/machine", "property": "type"}))
            plan = replace(
                guest.plan, incoming=True, sockets=sockets, machine=machine.removesuffix("-machine")
            )
            line = until_moved.enter_context(GuestLine(guest.socket, partial(_lost, guest)))
            line.begin_move(sockets.port)
            progress = MoveProgress()
            try:
                with ExitStack() as if_it_fails:
                    process = if_it_fails.enter_context(running(host, tools, there, groups, plan))
                    with _monitor(sockets.qmp, process, state) as target:
                        connected = time.monotonic()
                        figures = move(
                            source,
                            target,
                            method=to.method,
                            uri=f"unix:{state / 'move'}",
                            bandwidth=to.bandwidth,
                            downtime_limit=to.downtime_limit,
                            time_limit=to.time_limit,
                            progress=progress,
                            resumed=line.switch,
                            together=to.together,
                        )
                        threads = target.threads()
                    stack.push(if_it_fails.pop_all())
            except RunError as e:
                raise _failed(e, guest, source, line, to.method, committed=progress.committed) from e
        done = time.monotonic()
        guest.process.kill()
        removed = time.monotonic()
        pin(threads, there)
        try:
            with GuestLine(guest.socket, partial(ended, process, state)) as agent:
                ahead, answered = first_answer(agent, to.time_limit)
        except RunError as e:
            raise _silent(e, to.method, process, sockets) from e
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
        )
        phases = phases_of(
            to.method, figures, began + realtime, connected + realtime, done, removed, answered
        )
        yield moved_as(moved, figures, phases, began=began, ended=answered, realtime=realtime)


def _source(guest: QemuGuest, stack: ExitStack) -> Monitor:
    """Connect to the monitor of a guest that will be moved. The connection is closed with the stack.

    Raises RunError if there is no connection. If the guest has ended, its message says why.
    """
    try:
        return stack.enter_context(Monitor(guest.plan.sockets.qmp))
    except RunError as e:
        raise RunError(guest.trouble() or f"the guest continues, and is not moved: {e.what}") from e


def _lost(guest: QemuGuest) -> str:
    return ended(guest.process, guest.scratch)


def ended(process: Process, state: Path) -> str:
    """Return why the QEMU of a guest has ended; empty while it runs."""
    status = process.poll()
    return "" if status is None else f"the guest has ended: {ended_words(state, status)}"


def _silent(error: RunError, method: Method, process: Process, sockets: Sockets) -> RunError:
    """Return the error that a moved guest does not answer at its destination.

    error: the error of the connection to its agent.
    process, sockets: of the second QEMU.
    """
    why = ended(process, sockets.directory)
    if not why:
        at = how_far("", registers(sockets.qmp))
        why = f"{error.what}; {at}: {console_words(read_log(sockets.console))}"
    return RunError(
        f"the guest was moved by {method}, and is lost: it does not answer at its destination: {why}",
        remedy=f"method offline or postcopy: {FORGETS_WRITES}" if method.copies_first else "",
    )


@contextmanager
def _monitor(qmp: Path, process: Process, state: Path) -> Iterator[Monitor]:
    """Wait until the second QEMU has started, and connect to its monitor until exit.

    An error in the body, or of the start, becomes a RunError that says why this QEMU has ended.
    """
    if not await_true(partial(answers, qmp), START_TIMEOUT, process, every=0.002):
        raise RunError(f"the second QEMU does not start: {ended_words(state, process.poll())}")
    with Monitor(qmp) as monitor:
        try:
            yield monitor
        except NotConvergedError:  # the move was cancelled, which ends the second QEMU
            raise
        except RunError as e:
            with contextlib.suppress(TimeoutError):
                process.wait(_DYING)
            if process.poll() is None:
                raise
            why = ended_words(state, process.poll())
            raise RunError(f"{e.what}; the second QEMU has ended: {why}", remedy=e.remedy) from e


def _failed(
    error: RunError,
    guest: QemuGuest,
    source: Monitor,
    line: GuestLine,
    method: Method,
    *,
    committed: bool,
) -> RunError:
    """Let a guest continue at its source after a failed move, and return the error to raise.

    The second QEMU must have ended. If the guest may have run there (committed), it does not continue at its
    source, because that would undo what it did at the destination.
    """
    runs = not committed and guest.process.poll() is None and give_up(source)
    lost = "" if runs else _lost(guest) or ("" if committed else "its hypervisor no longer answers")
    return not_moved(error, line, method, runs=runs, lost=lost)
