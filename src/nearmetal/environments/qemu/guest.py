"""Code shared by all guests of QEMU, whether nearmetal or libvirt starts QEMU: the plan of the guest, the
servers of its files and its agent, and the instance after the boot."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import REPORT_FD, Host, Process
from ...host.guest_line import Clocks
from ...host.processes.running import running_helper
from ...model.environments.guest import Accelerator, GuestSettings, MachineType, StartFrom
from ...model.study import Attachment
from ..contract import Available, GuestBase, InstanceRequest, Tools, Unavailable
from ..guests.guest import (
    FRESH,
    GuestInstance,
    GuestInterface,
    command_line,
    entered_guest,
    first_command,
    host_cpus_of,
    require_base,
)
from ..guests.kvm import kvm_answer
from ..guests.tap import USER_PLACE, taken_place
from ..instance import START_TIMEOUT, group_notes, missing_tools
from .argv import AGENT, CONSOLES, GuestPlan, Sockets, Wire
from .disks import own_disks
from .files import file_server
from .restore import TEMPLATE

PROGRAM = "qemu-system-x86_64"
REMEDY = "apt-get install qemu-system-x86 qemu-utils"
NO_CMPXCHG16B = "clearcpuid=141"
"""Kernel parameter that keeps the guest's kernel from using the instruction cmpxchg16b.

QEMU 7.2 delivers an interrupt directly after this instruction with wrong flags: one boot in ten of Linux 6.12
ends in a double fault in the kernel's memory allocator. The CPU feature is given by its number, which older
kernels accept too, while its name needs a newer one. Programs in the guest can still use the instruction.
"""
REMEMBERS_WRITES = 9
FORGETS_WRITES = (
    f"QEMU before {REMEMBERS_WRITES}.0 forgets some writes of an emulated guest while it is moved by precopy "
    "or multifd: its kernel may panic afterwards"
)
"""QEMU's commit 03bfc2188f, "physmem: Fix migration dirty bitmap coherency with TCG memory access": bits of
the dirty bitmap are cleared, and the emulator goes on to write to these pages without setting them.

Seen: after 2 of 48 moves by multifd the guest's kernel panicked, once in its memory allocator; 1 of 16 guests
ended after precopy, although it wrote only 16 MiB/s. If the size of the memory is no multiple of 64 pages,
QEMU goes through it page by page, and none of 45 guests was lost. But moves of a guest that writes 16 MiB/s
then take 1.5 times as long, and it stands still three times as long in moves by offline; one that writes 100
MiB at full speed is held for 2 to 14 s.
"""
PROBE_SECONDS = 60.0


def qemu_answer(host: Host, tools: Tools) -> Available | Unavailable:
    """Return QEMU's version with notes about this machine, or why QEMU is not available. No guest is
    started."""
    missing = missing_tools(host, tools)
    if missing is not None:
        return missing
    program = host.which(PROGRAM)
    if program is None:
        return Unavailable(reason=f"{PROGRAM} is not installed", remedy=REMEDY)
    version = host.run([program, "--version"], timeout=PROBE_SECONDS)
    number = re.search(r"version (\S+)", version.stdout)
    if number is None:
        return Unavailable(reason=version.failure(), remedy=REMEDY)
    kvm = kvm_answer(host, tools)
    notes: tuple[str, ...] = (
        () if kvm.works else (f"TCG, no KVM: {kvm.reason}; every figure of it is of an emulator",)
    )
    forgets = not kvm.works and int(number[1].split(".")[0]) < REMEMBERS_WRITES
    return Available(
        version=f"QEMU {number[1]}",
        notes=(*notes, *group_notes()),
        of_moves=(FORGETS_WRITES,) if forgets else (),
        loses_writes=FORGETS_WRITES if forgets else "",
    )


def require_program(host: Host) -> str:
    """Return QEMU's path.

    Raises UnavailableError if QEMU is not installed.
    """
    program = host.which(PROGRAM)
    if program is None:
        raise UnavailableError(f"{PROGRAM} is not installed", remedy=REMEDY)
    return program


def settings_of(request: InstanceRequest) -> GuestSettings:
    """Return the guest settings of the request's environment, or the defaults."""
    return request.environment.guest or GuestSettings()


def accelerator_of(host: Host, tools: Tools, settings: GuestSettings) -> Accelerator:
    """Return the accelerator that is used, KVM or TCG.

    Raises UnavailableError if the settings require KVM and it does not work.
    """
    if settings.accelerator is Accelerator.TCG:
        return Accelerator.TCG
    answer = kvm_answer(host, tools)
    if answer.works:
        return Accelerator.KVM
    if settings.accelerator is Accelerator.KVM:
        raise UnavailableError(f"KVM runs no guest here: {answer.reason}", remedy=answer.remedy)
    return Accelerator.TCG


def cpu_of(settings: GuestSettings, accelerator: Accelerator) -> str:
    """Return the CPU model. The default is the host's own model under KVM, and all features that TCG supports
    under TCG.

    Raises UnavailableError if the settings request the host's model under TCG.
    """
    if settings.cpu == "host" and accelerator is Accelerator.TCG:
        raise UnavailableError("cpu: host needs KVM", remedy="cpu: max, or a model such as Haswell")
    if settings.cpu is not None:
        return settings.cpu
    return "host" if accelerator is Accelerator.KVM else "max"


def place_of_request(host: Host, tools: Tools, request: InstanceRequest) -> GuestInterface | None:
    """Return the network interface inside the guest; None for a guest without a network.

    Raises RunError if the guest cannot be connected to its network.
    """
    attachment = request.environment.attachment
    if request.seat is not None:
        return taken_place(host, tools, request.seat, attachment)
    return USER_PLACE if attachment is Attachment.USER else None


def wire_of(request: InstanceRequest) -> Wire:
    """Return what the guest's network card is connected to."""
    user = request.environment.attachment is Attachment.USER
    return Wire.TAP if request.seat is not None else Wire.USER if user else Wire.NOTHING


@contextmanager
def planned(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    *,
    groups: Mapping[str, Path],
    state: Path,
    accelerator: Accelerator,
    place: GuestInterface | None,
    wire: Wire,
    incoming: bool = False,
) -> Iterator[GuestPlan]:
    """Yield the plan for a guest, and run the processes that it needs until exit.

    These are the multiplexer of its agent and, if its root is not on a disk, the server of its files.
    state: directory of the instance for sockets and logs.
    incoming: whether QEMU waits for a checkpoint instead of booting.

    Raises UnavailableError if this machine lacks something that the guest needs.
    Raises RunError if a process does not start or a disk cannot be created.
    """
    base, settings = require_base(request), settings_of(request)
    with ExitStack() as stack:
        sockets = Sockets(directory=state)
        if base.root is None:
            stack.enter_context(file_server(host, tools, request, groups, sockets))
        disks = stack.enter_context(own_disks(host, request, base, settings, state))
        restorable = settings.start is StartFrom.RESTORED
        plan = GuestPlan(
            settings=settings,
            accelerator=accelerator,
            vcpus=settings.vcpus or len(request.cpus) or 1,
            cpu=cpu_of(settings, accelerator),
            kernel=base.kernel,
            initramfs=base.initramfs,
            command_line=command_line(
                replace(request, hostname=TEMPLATE) if restorable else request,
                tools,
                root=disks.root or "root:virtiofs",
                upper=disks.upper,
                swap=disks.swap,
                port=f"virtio:{AGENT}",
                consoles=(CONSOLES[settings.machine],),
                place=None if restorable else place,
                more=(
                    "quiet",
                    "loglevel=4",
                    "reboot=t",
                    *_emulator_words(host, tools, settings, accelerator),
                ),
            ),
            disks=disks.files,
            sockets=sockets,
            shared_root=base.root is None,
            place=place,
            wire=wire,
            incoming=incoming,
        )
        stack.enter_context(_multiplexer(host, tools, request, sockets))
        yield plan


def _emulator_words(
    host: Host, tools: Tools, settings: GuestSettings, accelerator: Accelerator
) -> tuple[str, ...]:
    """Return the kernel parameters that a guest under TCG needs; empty under KVM.

    They disable one instruction. For a microvm they also give the frequency of the time stamp counter, since
    a microvm has no other timer to measure it with.
    """
    if accelerator is Accelerator.KVM:
        return ()
    if settings.machine is not MachineType.MICROVM:
        return (NO_CMPXCHG16B,)
    return (NO_CMPXCHG16B, f"tsc_early_khz={kvm_answer(host, tools).tsc_khz}")


@contextmanager
def _multiplexer(host: Host, tools: Tools, request: InstanceRequest, sockets: Sockets) -> Iterator[None]:
    argv = [tools / "nm-box", "multiplex", "--port", str(sockets.port), "--listen", str(sockets.agent)]
    argv += ["--report-fd", str(REPORT_FD)]
    with running_helper(host, argv, request.label, expect={"listening"}, timeout=START_TIMEOUT):
        yield


def pin(threads: Sequence[int], request: InstanceRequest) -> None:
    """Pin each vCPU to one of the instance's CPUs, if the settings ask for it.

    threads: thread IDs of the vCPUs on the host, by number of the vCPU.
    Raises RunError if a vCPU cannot be pinned.
    """
    if not settings_of(request).pin or not request.cpus:
        return
    for thread, cpu in zip(threads, host_cpus_of(request, len(threads)), strict=True):
        try:
            os.sched_setaffinity(thread, {cpu})
        except OSError as e:
            raise RunError(f"a vCPU cannot be pinned to CPU {cpu}: {e.strerror}") from e


@dataclass(frozen=True, kw_only=True)
class Booted:
    """A guest whose agent answers.

    threads: thread IDs of its vCPUs on the host, by number of the vCPU.
    phases: seconds by step of its start.
    ahead: offsets of its clocks from those of the host.
    """

    plan: GuestPlan
    process: Process
    threads: tuple[int, ...]
    phases: Mapping[str, float]
    ahead: Clocks


def ready_instance(
    host: Host, tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], guest: Booted
) -> GuestInstance:
    """Run the first command in a booted guest, copy its binds into it, and return it as an instance.

    Raises RunError if one of these steps fails.
    """
    sockets = guest.plan.sockets
    instance = GuestInstance(
        label=request.label,
        hostname=request.hostname,
        pid=guest.process.pid,
        phases={**guest.phases, **first_command(sockets.agent)},
        cgroups=groups,
        enter=entered_guest(tools, sockets.agent),
        host=host,
        tools=tools,
        socket=sockets.agent,
        scratch=sockets.directory,
        process=guest.process,
        ahead=guest.ahead,
        threads=guest.threads,
    )
    binds = [b for b in request.binds if _is_hidden(b, tools, require_base(request))]
    if binds:
        instance.copy_in(binds)
    return instance


def _is_hidden(bind: Path, tools: Tools, base: GuestBase) -> bool:
    """Return whether a bind must be copied into the guest.

    The tools are in the initramfs already. A guest that shares the machine's own root sees all directories
    except those that are mounted anew in it (FRESH).
    """
    if bind.resolve() == tools.directory.resolve():
        return False
    return base.root is not None or any(bind.resolve().is_relative_to(d) for d in FRESH)
