"""Code shared by the backends qemu and libvirt: the plan from which QEMU's configuration is built, the helper
processes of a guest, and the instance object after the boot."""

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
from ..contract import Available, InstanceRequest, Tools, Unavailable
from ..guests.guest import (
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
from ..instance import START_TIMEOUT, all_binds, group_notes, missing_tools
from .argv import AGENT, GuestPlan, Sockets, Wire
from .disks import own_disks
from .files import file_server, served_binds
from .restore import TEMPLATE

PROGRAM = "qemu-system-x86_64"
REMEDY = "apt-get install qemu-system-x86 qemu-utils"
NOT_INSTALLED = Unavailable(reason=f"{PROGRAM} is not installed", remedy=REMEDY)
NO_CMPXCHG16B = "clearcpuid=141"
"""Kernel parameter by which the guest's kernel does not use the instruction cmpxchg16b.

QEMU 7.2 delivers an interrupt directly after this instruction with wrong flags: one boot in ten of Linux 6.12
ends in a double fault in the kernel's memory allocator. The CPU feature is given by its number, because older
kernels do not accept its name. Programs in the guest can still use the instruction.
"""
REMEMBERS_WRITES = 9
FORGETS_WRITES = (
    f"QEMU before {REMEMBERS_WRITES}.0 forgets some writes of an emulated guest while it is moved by precopy "
    "or multifd: its kernel may panic afterwards"
)
"""Note about a bug of QEMU, which its commit 03bfc2188f, "physmem: Fix migration dirty bitmap coherency with
TCG memory access", has fixed: after QEMU has cleared bits of the dirty bitmap, the emulator continues to
write to these pages without setting the bits again, so the move loses these writes.

Observed: after 2 of 48 moves by multifd the guest's kernel panicked, once in its memory allocator. 1 of 16
guests ended after precopy, although it wrote only 16 MiB/s. If the size of the memory is not a multiple of 64
pages, QEMU copies it page by page, and none of 45 guests was lost. This is not used, because it makes moves
slower: a guest that writes 16 MiB/s takes 1.5 times as long, and its standstill by method offline is three
    times as
long; a guest that writes 100 MiB at full speed stands still for 2 to 14 s.
"""
PROBE_SECONDS = 60.0


def qemu_answer(host: Host, tools: Tools) -> Available | Unavailable:
    """Return the version of QEMU and notes about this machine, or why QEMU is not available.

    No guest of QEMU is started. Whether KVM works is checked by kvm_answer().
    """
    missing = missing_tools(host, tools)
    if missing is not None:
        return missing
    program = host.which(PROGRAM)
    if program is None:
        return NOT_INSTALLED
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
        raise NOT_INSTALLED.error()
    return program


def settings_of(request: InstanceRequest) -> GuestSettings:
    """Return the guest settings of the request's environment, or the defaults."""
    return request.environment.guest or GuestSettings()


def accelerator_of(host: Host, tools: Tools, settings: GuestSettings) -> Accelerator:
    """Return the accelerator for a guest: TCG if the settings require it or KVM does not work, otherwise KVM.

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
    """Return the CPU model for QEMU's option -cpu.

    The default is 'host' with KVM, and 'max' with TCG: all features that TCG supports.

    Raises UnavailableError if the settings request 'host' with TCG.
    """
    if settings.cpu == "host" and accelerator is Accelerator.TCG:
        raise UnavailableError("cpu: host needs KVM", remedy="cpu: max, or a model such as Haswell")
    if settings.cpu is not None:
        return settings.cpu
    return "host" if accelerator is Accelerator.KVM else "max"


def place_of_request(host: Host, tools: Tools, request: InstanceRequest) -> GuestInterface | None:
    """Return the settings of the network interface inside the guest; None for a guest without a network.

    Raises RunError if the guest cannot be connected to its network.
    """
    attachment = request.environment.attachment
    if request.seat is not None:
        return taken_place(host, tools, request.seat, attachment)
    return USER_PLACE if attachment is Attachment.USER else None


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
    incoming: bool = False,
) -> Iterator[GuestPlan]:
    """Run the helper processes of a guest until exit, and yield the plan for its QEMU.

    The helpers are the multiplexer of its agent's connection and, if its root directory is not on a disk,
    virtiofsd.
    state: directory of the instance for sockets and logs.
    place: network interface of the guest; None for a guest without one.
    incoming: whether QEMU waits for the state of a guest instead of booting.

    Raises UnavailableError if this machine lacks something that the guest needs.
    Raises RunError if a process does not start or a disk cannot be created.
    """
    base, settings = require_base(request), settings_of(request)
    user = request.environment.attachment is Attachment.USER
    with ExitStack() as stack:
        sockets = Sockets(directory=state)
        if base.root is None:
            stack.enter_context(file_server(host, tools, request, groups, sockets))
        disks = stack.enter_context(own_disks(host, request, base, settings))
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
                console="ttyS0",
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
            wire=Wire.TAP if request.seat is not None else Wire.USER if user else Wire.NOTHING,
            incoming=incoming,
        )
        stack.enter_context(_multiplexer(host, tools, request, sockets))
        yield plan


def _emulator_words(
    host: Host, tools: Tools, settings: GuestSettings, accelerator: Accelerator
) -> tuple[str, ...]:
    """Return the kernel parameters that a guest needs with TCG; empty with KVM.

    NO_CMPXCHG16B disables one instruction. A microvm also gets the frequency of the time stamp counter,
    because it has no other timer by which its kernel could measure this frequency.
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
    """Pin each vCPU to one of the instance's CPUs, if the settings request it.

    threads: thread IDs of the vCPUs on the machine, in the order of the vCPUs.
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
class QemuGuest(GuestInstance):
    """A running guest that can be moved.

    plan: the plan of its QEMU, from which a second QEMU can be started.
    request: the request for the place at which it runs now.
    """

    plan: GuestPlan
    request: InstanceRequest


def ready_instance(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    groups: Mapping[str, Path],
    plan: GuestPlan,
    process: Process,
    threads: tuple[int, ...],
    phases: Mapping[str, float],
    ahead: Clocks,
) -> QemuGuest:
    """Return the instance object for a booted guest, whose agent answers. Before, run a first command in it,
    whose duration becomes a phase, and copy the binds into it that it does not see otherwise.

    process: process of QEMU.
    threads: thread IDs of its vCPUs on the machine, in the order of the vCPUs.
    phases: seconds by step of its start.
    ahead: offsets of its clocks from those of the machine.

    Raises RunError if one of these steps fails.
    """
    sockets = plan.sockets
    instance = QemuGuest(
        label=request.label,
        hostname=request.hostname,
        pid=process.pid,
        phases={**phases, **first_command(sockets.agent)},
        cgroups=groups,
        enter=entered_guest(tools, sockets.agent),
        host=host,
        tools=tools,
        socket=sockets.agent,
        scratch=sockets.directory,
        process=process,
        ahead=ahead,
        threads=threads,
        plan=plan,
        request=request,
    )
    served = served_binds(tools, request)
    instance.copy_binds([b for b in all_binds(tools, request) if b.writable and b not in served])
    return instance
