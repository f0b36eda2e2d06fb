"""Backend qemu: virtual machines by QEMU, run by the processor (KVM) where that works, else translated
(TCG)."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..errors import RunError, UnavailableError
from ..host import REPORT_FD, Host, Process, processes, runtime
from ..host.guest_line import Clocks, GuestLine, Hello
from ..model.guest import Accelerator, GuestSettings, MachineType, Nic, StartFrom
from ..model.network import Seat
from ..model.study import Attachment
from . import qmp
from .contract import KERNEL, OWN_ALL, Available, GuestBase, InstanceRequest, Tools, Unavailable
from .guest import (
    CONSOLE,
    DYING_SECONDS,
    FRESH,
    HYPERVISOR_LOG,
    GuestInstance,
    Place,
    boot_phases,
    command_line,
    console_words,
    ended_words,
    entered_guest,
    host_cpus_of,
    how_far,
    read_text,
    require_attachment,
    require_base,
)
from .instance import CONTROLLERS, START_TIMEOUT, control_groups, group_notes, missing_tools
from .kvm import kvm_answer
from .program import in_groups, last_words
from .qemu_argv import AGENT, CONSOLES, GuestPlan, Sockets, qemu_argv
from .qemu_disks import own_disks
from .qemu_restore import TEMPLATE, TEMPLATE_PLACE, checkpoint, restore, restored_phases, save, woken
from .qmp import Monitor

PROGRAM = "qemu-system-x86_64"
REMEDY = "apt-get install qemu-system-x86 qemu-utils"
VIRTIOFSD = ("/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/lib/virtiofsd")
"""Where the distributions put it, beside $PATH."""
PROBE_SECONDS = 10.0
WITHOUT_SEAT = (Attachment.NONE, Attachment.LOOPBACK)


class Qemu:
    """Attachment none or loopback, or a seat on a network."""

    name = "qemu"
    own = OWN_ALL | {KERNEL}
    uses_kvm = True
    needs_user_namespace = False

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        """Starts QEMU, without a guest: what that boots, an image has to bring."""
        missing = missing_tools(host, tools)
        if missing is not None:
            return missing
        program = host.which(PROGRAM)
        if program is None:
            return Unavailable(reason=f"{PROGRAM} is not installed", remedy=REMEDY)
        if not host.is_root():
            return Unavailable(reason="guests need root for taps and control groups", remedy="run as root")
        said = host.run([program, "-machine", "help"], timeout=PROBE_SECONDS)
        version = host.run([program, "--version"], timeout=PROBE_SECONDS)
        number = re.search(r"version (\S+)", version.stdout)
        if not said.ok or number is None:
            return Unavailable(
                reason=f"{PROGRAM}: {(said if not said.ok else version).last_words()}", remedy=REMEDY
            )
        kvm = kvm_answer(host, tools)
        notes = () if kvm.works else (f"TCG, no KVM: {kvm.reason}; every figure of it is of an emulator",)
        if not re.search(r"^microvm\b", said.stdout, re.MULTILINE):
            notes = (*notes, "this QEMU has no machine microvm")
        return Available(version=f"QEMU {number[1]}", notes=(*notes, *group_notes()))

    def start(
        self, host: Host, tools: Tools, request: InstanceRequest
    ) -> AbstractContextManager[GuestInstance]:
        return _start(host, tools, request)


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


@contextmanager
def _start(host: Host, tools: Tools, request: InstanceRequest) -> Iterator[GuestInstance]:
    base = require_base(request)
    require_attachment(request, WITHOUT_SEAT)
    program = host.which(PROGRAM)
    if program is None:
        raise UnavailableError(f"{PROGRAM} is not installed", remedy=REMEDY)
    settings = settings_of(request)
    accelerator = accelerator_of(host, tools, settings)
    saved = None
    if settings.start is StartFrom.RESTORED:
        make = partial(_prepare, host, tools, replace(request, binds=()))
        saved = checkpoint(base, request, tools, settings, accelerator, make)
    qmp.loaded()
    begin = time.monotonic_ns()
    with ExitStack() as stack:
        groups = stack.enter_context(control_groups(request, CONTROLLERS))
        state = stack.enter_context(runtime.scratch_directory(f"{request.label}-state"))
        place = taken_place(host, tools, request.seat) if request.seat is not None else None
        seats = (request.seat,) if request.seat is not None else ()
        vm = stack.enter_context(
            _launched(host, tools, request, groups, state, accelerator, place, seats, saved)
        )
        spawned = time.monotonic_ns()
        if saved is None:
            hello, ahead = _booted(vm.process, vm.plan.sockets, state, settings)
            phases = boot_phases(begin, vm.begun, hello, ahead)
        else:
            restore(vm.plan.sockets.qmp, saved)
            restored = time.monotonic_ns()
            ahead = woken(vm.plan.sockets.agent, request, place, partial(_gone, vm.process, state))
            phases = restored_phases(begin, vm.begun, spawned, restored)
        with Monitor(vm.plan.sockets.qmp) as monitor:
            threads = monitor.threads()
            if settings.pin and request.cpus:
                monitor.pin(host_cpus_of(request, vm.plan.vcpus))
        instance = GuestInstance(
            label=request.label,
            hostname=request.hostname,
            pid=vm.process.pid,
            phases=phases,
            cgroups=groups,
            enter=entered_guest(tools, vm.plan.sockets.agent),
            host=host,
            tools=tools,
            socket=vm.plan.sockets.agent,
            scratch=state,
            process=vm.process,
            ahead=ahead,
            threads=threads,
        )
        binds = [b for b in request.binds if _is_hidden(b, tools, base)]
        if binds:
            instance.copy_in(binds)
        yield instance


@dataclass(frozen=True, kw_only=True)
class _Machine:
    """QEMU that runs. begun: when its process was asked for (CLOCK_MONOTONIC, ns)."""

    plan: GuestPlan
    process: Process
    begun: int


@contextmanager
def _launched(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    groups: Mapping[str, Path],
    state: Path,
    accelerator: Accelerator,
    place: Place | None,
    seats: Sequence[Seat],
    saved: Path | None,
) -> Iterator[_Machine]:
    """QEMU, the multiplexer of its agent, the server of its files where it has no disk of its own. seats: of
    its tap, empty for a template, whose card leads nowhere; saved: a checkpoint that it waits for."""
    base, settings = require_base(request), settings_of(request)
    program = host.which(PROGRAM) or PROGRAM
    with ExitStack() as stack:
        sockets = Sockets(directory=state)
        if base.root is None:
            stack.enter_context(_file_server(host, tools, request, groups, sockets))
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
                more=("quiet", "loglevel=4", "reboot=t", *_clock_words(host, tools, settings, accelerator)),
            ),
            disks=disks.files,
            sockets=sockets,
            shared_root=base.root is None,
            place=place,
            unconnected=not seats,
            incoming=saved is not None,
        )
        stack.enter_context(_multiplexer(host, tools, request, sockets))
        begun = time.monotonic_ns()
        argv = qemu_argv(program, plan)
        process = stack.enter_context(_running(host, tools, request, groups, argv, state, seats, settings))
        yield _Machine(plan=plan, process=process, begun=begun)


def _prepare(
    host: Host, tools: Tools, request: InstanceRequest, accelerator: Accelerator, into: Path
) -> None:
    """Boot a guest without a name and without a network, and save it as it stands."""
    label = f"{request.label}-template"
    asked = replace(request, label=label)
    settings = settings_of(request)
    place = TEMPLATE_PLACE if request.seat is not None else None
    with (
        runtime.scratch_directory(f"{label}-state") as state,
        _launched(host, tools, asked, {}, state, accelerator, place, (), None) as vm,
    ):
        _booted(vm.process, vm.plan.sockets, state, settings)
        save(vm.plan.sockets.qmp, into)


def _is_hidden(bind: Path, tools: Tools, base: GuestBase) -> bool:
    """Whether a bind has to be copied: the tools come with the initramfs, and of the machine's own root,
    which is shared, all is there but what is fresh."""
    if bind.resolve() == tools.directory.resolve():
        return False
    return base.root is not None or any(bind.resolve().is_relative_to(d) for d in FRESH)


def _clock_words(
    host: Host, tools: Tools, settings: GuestSettings, accelerator: Accelerator
) -> tuple[str, ...]:
    """How fast the time stamp counter of a translated microvm is: it has no other timer to count it
    against."""
    if settings.machine is not MachineType.MICROVM or accelerator is Accelerator.KVM:
        return ()
    return (f"tsc_early_khz={kvm_answer(host, tools).tsc_khz}",)


def taken_place(host: Host, tools: Tools, seat: Seat) -> Place:
    """The interface of a seat, joined to a bridge for the guest's tap. Raises RunError."""
    argv = [tools / "nm-box", "tap", "--netns", seat.netns, "--interface", seat.interface]
    done = host.run(argv, timeout=START_TIMEOUT)
    if not done.ok:
        raise RunError(f"the guest cannot take {seat.interface}: {done.last_words()}")
    return place_of(done.stdout)


def place_of(text: str) -> Place:
    """What nm-box tap tells."""
    import json

    facts = json.loads(text)
    return Place(
        interface="eth0",
        mac=facts["mac"],
        address=facts["address"],
        mask=facts["mask"],
        mtu=facts["mtu"],
        routes=tuple(facts["routes"]),
    )


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


def find_virtiofsd(host: Host) -> str | None:
    """Its path; None where it is not installed."""
    found = host.which("virtiofsd")
    return found or next((p for p in VIRTIOFSD if host.which(p) is not None), None)


@contextmanager
def _file_server(
    host: Host, tools: Tools, request: InstanceRequest, groups: Mapping[str, Path], sockets: Sockets
) -> Iterator[None]:
    """The machine's own root for a guest that mounts it read-only."""
    program = find_virtiofsd(host)
    if program is None:
        raise UnavailableError(
            f"environment {request.environment.name}: image host needs virtiofsd",
            remedy="apt-get install qemu-system-common (Debian 12) or virtiofsd, or name an image: "
            "nearmetal image build debian-mpi",
        )
    said = sockets.directory / "virtiofsd.txt"
    old = "/qemu/" in program
    how = ["-o", "source=/,cache=auto,sandbox=chroot"] if old else ["--shared-dir=/", "--sandbox=chroot"]
    server = host.start(
        in_groups(
            tools,
            groups,
            request.label,
            [program, f"--socket-path={sockets.files}", *how, "--rlimit-nofile=20000"],
        ),
        stdout=said,
        stderr=said,
        env={processes.LABEL_VARIABLE: request.label},
        cwd=Path("/"),
    )
    try:
        end = time.monotonic() + START_TIMEOUT
        while not sockets.files.exists():
            if server.poll() is not None or time.monotonic() > end:
                raise RunError(f"virtiofsd does not start: {last_words(said)}")
            time.sleep(0.002)
        yield
    finally:
        server.kill()


@contextmanager
def _running(
    host: Host,
    tools: Tools,
    request: InstanceRequest,
    groups: Mapping[str, Path],
    argv: Sequence[str],
    state: Path,
    seats: Sequence[Seat],
    settings: GuestSettings,
) -> Iterator[Process]:
    """QEMU itself; with a seat, on a tap there."""
    for seat in seats:
        vhost = ["--vhost"] if settings.nic is Nic.VHOST else []
        tap = [tools / "nm-box", "tap", "--netns", seat.netns, "--interface", seat.interface]
        argv = [*tap, *vhost, "--", *argv]
    process = host.start(
        in_groups(tools, groups, request.label, argv),
        stdout=state / HYPERVISOR_LOG,
        stderr=state / HYPERVISOR_LOG,
        env={processes.LABEL_VARIABLE: request.label},
        cwd=Path("/"),
    )
    try:
        yield process
    finally:
        process.kill()


def _booted(process: Process, sockets: Sockets, state: Path, settings: GuestSettings) -> tuple[Hello, Clocks]:
    """Wait until the agent is there. Raises RunError with the words of QEMU or of the guest's console."""

    try:
        with GuestLine(sockets.agent, partial(_gone, process, state)) as line:
            return line.hello(settings.boot_timeout), line.clocks()
    except RunError as e:
        text = read_text(state / CONSOLE)
        with contextlib.suppress(TimeoutError):
            process.wait(DYING_SECONDS)  # its line to us goes before it has ended
        if said := _gone(process, state):
            raise RunError(said) from e
        raise RunError(
            f"the guest was silent for {settings.boot_timeout:g} s, {how_far(text)}: {console_words(text)}",
            remedy="raise boot_timeout, or give it more memory",
        ) from e


def _gone(process: Process, state: Path) -> str:
    return "" if process.poll() is None else f"the guest ended while it booted: {ended_words(state)}"
