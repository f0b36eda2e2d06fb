"""What every guest of QEMU has, whoever starts its QEMU: what is planned for it, the servers of its files and
of its agent, the instance once it has booted."""

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
from ...host.processes import labelled as processes
from ...model.environments.guest import Accelerator, GuestSettings, MachineType, StartFrom
from ...model.study import Attachment
from ..contract import Available, GuestBase, InstanceRequest, Tools, Unavailable
from ..guest import (
    FRESH,
    GuestInstance,
    GuestInterface,
    command_line,
    entered_guest,
    first_command,
    host_cpus_of,
    require_base,
)
from ..guest_tap import USER_PLACE, taken_place
from ..instance import START_TIMEOUT, group_notes, missing_tools
from ..kvm import kvm_answer
from .argv import AGENT, CONSOLES, GuestPlan, Sockets, Wire
from .disks import own_disks
from .files import file_server
from .restore import TEMPLATE

PROGRAM = "qemu-system-x86_64"
REMEDY = "apt-get install qemu-system-x86 qemu-utils"
NO_CMPXCHG16B = "clearcpuid=141"
"""QEMU 7.2 gives an interrupt right behind it wrong flags: one boot in ten of Linux 6.12 ends in a double
fault in its memory allocator. By number, which kernels took before they took names; programs keep it."""
PROBE_SECONDS = 60.0


def qemu_answer(host: Host, tools: Tools) -> Available | Unavailable:
    """Its version, with what is different here; no guest is started."""
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
    notes = () if kvm.works else (f"TCG, no KVM: {kvm.reason}; every figure of it is of an emulator",)
    return Available(version=f"QEMU {number[1]}", notes=(*notes, *group_notes()))


def require_program(host: Host) -> str:
    """QEMU's path. Raises UnavailableError where it is not installed."""
    program = host.which(PROGRAM)
    if program is None:
        raise UnavailableError(f"{PROGRAM} is not installed", remedy=REMEDY)
    return program


def settings_of(request: InstanceRequest) -> GuestSettings:
    """Those of the environment, or the usual ones."""
    return request.environment.guest or GuestSettings()


def accelerator_of(host: Host, tools: Tools, settings: GuestSettings) -> Accelerator:
    """Resolved. Raises UnavailableError where KVM is asked for and does not work."""
    if settings.accelerator is Accelerator.TCG:
        return Accelerator.TCG
    answer = kvm_answer(host, tools)
    if answer.works:
        return Accelerator.KVM
    if settings.accelerator is Accelerator.KVM:
        raise UnavailableError(f"KVM runs no guest here: {answer.reason}", remedy=answer.remedy)
    return Accelerator.TCG


def cpu_of(settings: GuestSettings, accelerator: Accelerator) -> str:
    """The model: the host's own by KVM, all that TCG can otherwise. Raises UnavailableError for host by
    TCG."""
    if settings.cpu == "host" and accelerator is Accelerator.TCG:
        raise UnavailableError("cpu: host needs KVM", remedy="cpu: max, or a model such as Haswell")
    if settings.cpu is not None:
        return settings.cpu
    return "host" if accelerator is Accelerator.KVM else "max"


def place_of_request(host: Host, tools: Tools, request: InstanceRequest) -> GuestInterface | None:
    """Of the guest's own interface; None where it has none. Raises RunError."""
    attachment = request.environment.attachment
    if request.seat is not None:
        return taken_place(host, tools, request.seat, attachment)
    return USER_PLACE if attachment is Attachment.USER else None


def wire_of(request: InstanceRequest) -> Wire:
    """What the card of its guest is joined to."""
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
    """What QEMU is to be told, with the multiplexer of its agent, and the server of its files where it has no
    disk of its own; these end on leaving. Raises UnavailableError, RunError."""
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
    """What a translated kernel has to be told: to do without an instruction; and of a microvm how fast its
    time stamp counter is, since it has no other timer to count it against."""
    if accelerator is Accelerator.KVM:
        return ()
    if settings.machine is not MachineType.MICROVM:
        return (NO_CMPXCHG16B,)
    return (NO_CMPXCHG16B, f"tsc_early_khz={kvm_answer(host, tools).tsc_khz}")


@contextmanager
def _multiplexer(host: Host, tools: Tools, request: InstanceRequest, sockets: Sockets) -> Iterator[None]:
    argv = [tools / "nm-box", "multiplex", "--port", str(sockets.port), "--listen", str(sockets.agent)]
    launched = host.launch(
        [*argv, "--report-fd", str(REPORT_FD)],
        expect={"listening"},
        timeout=START_TIMEOUT,
        env={processes.LABEL_VARIABLE: request.label},
    )
    try:
        yield
    finally:
        launched.process.kill()


def pin(threads: Sequence[int], request: InstanceRequest) -> None:
    """Each vCPU to one of the instance's CPUs, where that is asked for. threads: of the vCPUs, by number.
    Raises RunError."""
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

    process: QEMU.
    threads: of its vCPUs, by number.
    phases: seconds by step of its start.
    ahead: of its clocks.
    """

    plan: GuestPlan
    process: Process
    threads: tuple[int, ...]
    phases: Mapping[str, float]
    ahead: Clocks


def ready_instance(
    host: Host, tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], guest: Booted
) -> GuestInstance:
    """A booted guest after its first command, with its binds copied in. Raises RunError."""
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
    """Whether a bind has to be copied: the tools come with the initramfs, and of the machine's own root,
    which is shared, all is there but what is fresh."""
    if bind.resolve() == tools.directory.resolve():
        return False
    return base.root is not None or any(bind.resolve().is_relative_to(d) for d in FRESH)
