"""Runs QEMU, and waits until its guest has booted, or reports why it did not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from ...errors import RunError
from ...host import Host, Process
from ...host.guest_line import Clocks, GuestLine, Hello
from ...host.processes.running import running_program
from ...model.environments.guest import GuestSettings, Nic
from ..contract import InstanceRequest, Tools
from ..guests.guest import CONSOLE, DYING_SECONDS, HYPERVISOR_LOG, console_words, ended_words, how_far
from ..guests.tap import tap_argv
from ..program import in_groups, read_log
from .argv import GuestPlan, qemu_argv
from .guest import require_program


def running(
    host: Host, tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], plan: GuestPlan
) -> AbstractContextManager[Process]:
    """Run QEMU, and kill it on exit. If the request has a seat, `nm-box tap` connects QEMU to the seat's
    network."""
    argv = qemu_argv(require_program(host), plan)
    if request.seat is not None:
        vhost = plan.settings.nic is Nic.VHOST
        tap = tap_argv(tools, request.seat, request.environment.attachment, vhost=vhost)
        argv = [*tap, "--", *argv]
    argv = in_groups(tools, groups, request.label, argv)
    return running_program(host, argv, request.label, plan.sockets.directory / HYPERVISOR_LOG)


def booted(
    process: Process, agent: Path, state: Path, settings: GuestSettings, registers: Callable[[], str]
) -> tuple[Hello, Clocks]:
    """Wait until the guest's agent answers. Return its first message and the offsets of its clocks.

    process: process of QEMU.
    agent: socket of the agent.
    state: directory of the instance.
    registers: returns the registers of the guest's first CPU, as QEMU prints them.
    Raises RunError if the guest does not boot within settings.boot_timeout. Its message contains the cause,
    from the output of QEMU or of the guest's console.
    """
    try:
        with GuestLine(agent, partial(gone, process, state)) as line:
            return line.hello(settings.boot_timeout), line.clocks()
    except RunError as e:
        text = read_log(state / CONSOLE)
        where = how_far(text, registers())
        with contextlib.suppress(TimeoutError):
            process.wait(DYING_SECONDS)  # the connection is closed shortly before the process ends
        if ended := gone(process, state):
            raise RunError(ended) from e
        raise RunError(
            f"the guest was silent for {settings.boot_timeout:g} s, {where}: {console_words(text)}",
            remedy="raise boot_timeout, or give it more memory",
        ) from e


def gone(process: Process, state: Path) -> str:
    """Return why the QEMU of a booting guest has ended; empty while it runs."""
    status = process.poll()
    return "" if status is None else f"the guest ended while it booted: {ended_words(state, status)}"
