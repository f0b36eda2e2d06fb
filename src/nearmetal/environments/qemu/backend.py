"""Backend qemu: virtual machines run by QEMU, with KVM if that works, otherwise by emulation (TCG)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...errors import UnavailableError
from ...host import Host, Process, runtime
from ...host.facts.provenance import cpu_flags
from ...host.guest_line import Clocks, Hello
from ...lifecycle import Method
from ...model.capabilities import GUEST_ATTACHMENTS, KERNEL, OWN_ALL, Capabilities
from ...model.environments.guest import Accelerator, GuestSettings, StartFrom
from ...model.study import Attachment, Environment
from ...model.workloads.moves import DOWNTIME_LIMIT
from ..contract import Available, Instance, InstanceRequest, Tools, Unavailable
from ..guests.guest import (
    GuestInstance,
    GuestInterface,
    boot_phases,
    require_attachment,
    require_base,
)
from ..guests.needs import require_memory
from ..instance import CONTROLLERS, control_groups
from ..moving import Moved, MoveRequest
from . import qmp
from .argv import GuestPlan
from .boot import booted, gone, running
from .guest import (
    NOT_INSTALLED,
    PROBE_SECONDS,
    PROGRAM,
    REMEDY,
    QemuGuest,
    accelerator_of,
    pin,
    place_of_request,
    planned,
    qemu_answer,
    ready_instance,
    require_program,
    settings_of,
)
from .migrate import METHODS, migrated, sampled, unmovable
from .moving import EVERY_CAPABILITY, START_COSTS, configure
from .qmp import Monitor
from .restore import TEMPLATE_PLACE, checkpoint, restore, restored_phases, save, woken
from .settings import misfits


class Qemu:
    """Backend qemu. It supports the attachments none, loopback and user, and networks built by nearmetal."""

    name = "qemu"
    uses_kvm = True
    capabilities = Capabilities(
        title="QEMU",
        own=OWN_ALL | {KERNEL},
        attachments=GUEST_ATTACHMENTS,
        steps={"program": "QEMU"},
        misfits=misfits,
    )

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        """Check that QEMU is installed and starts. No guest is booted, because that needs the kernel of an
        image."""
        found = qemu_answer(host, tools)
        if isinstance(found, Unavailable):
            return found
        if not host.is_root():
            return Unavailable(reason="guests need root for taps and control groups", remedy="run as root")
        machines = host.run([require_program(host), "-machine", "help"], timeout=PROBE_SECONDS)
        if not machines.ok:
            return Unavailable(reason=machines.failure(), remedy=REMEDY)
        if not re.search(r"^microvm\b", machines.stdout, re.MULTILINE):
            return replace(found, notes=(*found.notes, "this QEMU has no machine microvm"))
        return found

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[GuestInstance]:
        base = require_base(request)
        require_attachment(request, self.capabilities)
        program, settings = Path(require_program(host)), settings_of(request)
        require_memory(host, f"guest {request.hostname}", settings.memory, huge=settings.huge_pages)
        accelerator = accelerator_of(host, tools, settings)
        saved = None
        if settings.start is StartFrom.RESTORED:
            make = partial(_prepare, host, tools, replace(request, binds=(), views=()))
            flags = cpu_flags(host)
            saved = checkpoint(base, request, tools, settings, accelerator, flags, make, program=program)
        qmp.loaded()
        begin = time.monotonic_ns()
        with ExitStack() as stack:
            groups = stack.enter_context(control_groups(request, CONTROLLERS))
            state = stack.enter_context(runtime.scratch_directory(f"{request.label}-state"))
            place = place_of_request(host, tools, request)
            vm = stack.enter_context(
                _launched(host, tools, request, groups, state, accelerator, place, saved)
            )
            spawned = time.monotonic_ns()
            sockets = vm.plan.sockets
            if saved is None:
                hello, ahead = _booted(vm, state, settings)
                phases = boot_phases(begin, vm.begun, hello, ahead)
            else:
                restore(sockets.qmp, saved)
                restored = time.monotonic_ns()
                ahead = woken(sockets.agent, request, place, partial(gone, vm.process, state))
                phases = restored_phases(begin, vm.begun, spawned, restored)
            with Monitor(sockets.qmp) as monitor:
                threads = monitor.threads()
            pin(threads, request)
            yield ready_instance(host, tools, request, groups, vm.plan, vm.process, threads, phases, ahead)

    moves_by = METHODS
    costs = START_COSTS

    def unmovable(self, environment: Environment, method: Method) -> Unavailable | None:
        return unmovable(environment, method)

    def migrate(
        self, host: Host, tools: Tools, instance: Instance, request: MoveRequest
    ) -> AbstractContextManager[Moved]:
        if not isinstance(instance, QemuGuest):
            raise UnavailableError(
                f"{instance.label} is not a guest of a QEMU that nearmetal has started",
                remedy="backend: qemu",
            )
        return migrated(host, tools, instance, request)

    def enable_moves(self, instance: Instance) -> None:
        """See moving.EnablesMoves."""
        assert isinstance(instance, QemuGuest)
        with Monitor(instance.plan.sockets.qmp) as monitor:
            configure(monitor, EVERY_CAPABILITY, None, DOWNTIME_LIMIT)

    sample_memory = staticmethod(sampled)

    def user_network(self, host: Host) -> Unavailable | None:
        """See contract.UserNetworked. QEMU needs libslirp for this attachment."""
        program = host.which(PROGRAM)
        if program is None:
            return NOT_INSTALLED
        known = host.run([program, "-netdev", "help"], timeout=PROBE_SECONDS).stdout.split()
        if "user" in known:
            return None
        return Unavailable(reason="this QEMU was built without libslirp", remedy="a QEMU with --enable-slirp")


@dataclass(frozen=True, kw_only=True)
class _Machine:
    """A running QEMU.

    begun: time at which the start of its process was requested (CLOCK_MONOTONIC, ns).
    """

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
    place: GuestInterface | None,
    saved: Path | None,
) -> Iterator[_Machine]:
    """Start QEMU for a request, and end it on exit.

    state: directory of the instance for sockets and logs.
    place: network interface of the guest; None for none.
    saved: file of a checkpoint. If it is given, QEMU waits for the caller to load it; None to boot.
    """
    how = planned(
        host,
        tools,
        request,
        groups=groups,
        state=state,
        accelerator=accelerator,
        place=place,
        incoming=saved is not None,
    )
    with how as plan:
        begun = time.monotonic_ns()
        with running(host, tools, request, groups, plan) as process:
            yield _Machine(plan=plan, process=process, begun=begun)


def _prepare(
    host: Host, tools: Tools, request: InstanceRequest, accelerator: Accelerator, into: Path
) -> None:
    """Boot a template guest, which has neither a host name of its own nor a network, and save its state to a
    file.

    into: path of the file.
    """
    label = f"{request.label}-template"
    alone = replace(request.environment, attachment=Attachment.NONE)
    alone_request = replace(request, label=label, environment=alone, seat=None)
    settings = settings_of(request)
    place = TEMPLATE_PLACE if request.environment.attachment.interfaced else None
    with (
        runtime.scratch_directory(f"{label}-state") as state,
        _launched(host, tools, alone_request, {}, state, accelerator, place, None) as vm,
    ):
        _booted(vm, state, settings)
        save(vm.plan.sockets.qmp, into)


def _booted(vm: _Machine, state: Path, settings: GuestSettings) -> tuple[Hello, Clocks]:
    sockets = vm.plan.sockets
    return booted(vm.process, sockets.agent, state, settings, partial(qmp.registers, sockets.qmp))
