"""Backend libvirt: runs the same guests as backend qemu, but as transient domains of libvirt, for sites that
use libvirt."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

from ...errors import RunError, UnavailableError
from ...host import Host, cgroups, runtime
from ...lifecycle import Method
from ...model.capabilities import GUEST_ATTACHMENTS, KERNEL, OWN_ALL, Capabilities
from ...model.environments.guest import GuestSettings
from ...model.study import Environment
from ..contract import Available, Instance, InstanceRequest, Tools, Unavailable
from ..guests.guest import GuestInstance, boot_phases, host_cpus_of, require_attachment, require_base
from ..guests.needs import require_memory
from ..instance import CONTROLLERS, VERSION_TIMEOUT, control_groups
from ..moving import Moved, MoveRequest
from ..qemu.boot import booted
from ..qemu.guest import (
    accelerator_of,
    pin,
    place_of_request,
    planned,
    qemu_answer,
    ready_instance,
    require_program,
    settings_of,
)
from ..qemu.migrate import sampled
from ..qemu.moving import EVERY_CAPABILITY
from .daemon import (
    NOTE,
    REMEDY,
    Daemon,
    ask,
    destroy_domain,
    domain_names,
    find_virsh_message,
    missing_programs,
    not_searched,
    reached,
)
from .domain import made
from .migrate import (
    COSTS,
    MOVE_OPTIONS,
    LibvirtGuest,
    libvirt_guest,
    migrated,
    refuses_postcopy,
    unmovable,
)
from .settings import NOT_ATTACHED, LibvirtSettings, misfits, not_by_libvirt, settings_for
from .tap import joined, tap
from .xml import DomainPlan, domain_xml

LIBVIRT_STEP = "libvirt"
"""Key of Instance.phases: seconds from the request for the domain until its vCPUs run."""


class Libvirt:
    """Backend libvirt. It supports the attachments none, loopback and user and, as root, networks built by
    nearmetal except macvtap."""

    name = "libvirt"
    uses_kvm = True
    capabilities = Capabilities(
        own=OWN_ALL | {KERNEL},
        attachments=GUEST_ATTACHMENTS - NOT_ATTACHED.keys(),
        settings=LibvirtSettings,
        not_attached=NOT_ATTACHED,
        steps={LIBVIRT_STEP: "libvirt, until it runs"},
        misfits=misfits,
    )
    moves_by = tuple(MOVE_OPTIONS)
    costs = COSTS

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        """Check that a daemon of libvirt answers; if none does, start one for the check. No guest is started,
        because that needs the kernel of an image."""
        found = qemu_answer(host, tools)
        if isinstance(found, Unavailable):
            return found
        missing = missing_programs(host)
        if missing is not None:
            return missing
        version = host.run(["virsh", "--version"], timeout=VERSION_TIMEOUT).stdout.strip()
        label = f"nearmetal-check-{os.getpid()}-libvirt"
        try:
            with (
                runtime.scratch_directory(f"{label}-state") as state,
                reached(host, tools, None, label, state, None) as daemon,
            ):
                answer = ask(host, daemon.uri, "uri")
                if not answer.ok:
                    return Unavailable(reason=answer.failure(find_virsh_message), remedy=REMEDY)
                notes = (f"by {daemon.words}", *found.notes)
        except (RunError, UnavailableError) as e:
            return Unavailable(reason=e.what, remedy=e.remedy or "read what the daemon says")
        refused = refuses_postcopy()
        of_moves = (*found.of_moves, *((f"postcopy: {refused.reason}; {refused.remedy}",) if refused else ()))
        return replace(found, version=f"libvirt {version}, {found.version}", notes=notes, of_moves=of_moves)

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[GuestInstance]:
        base = require_base(request)
        require_attachment(request, self.capabilities)
        program, settings = require_program(host), settings_of(request)
        _require_expressible(host, request)
        require_memory(host, f"guest {request.hostname}", settings.memory, huge=settings.huge_pages)
        accelerator = accelerator_of(host, tools, settings)
        begin = time.monotonic_ns()
        with ExitStack() as stack:
            groups = stack.enter_context(control_groups(request, CONTROLLERS))
            state = stack.enter_context(runtime.scratch_directory(f"{request.label}-state"))
            place = place_of_request(host, tools, request)
            plan = stack.enter_context(
                planned(
                    host,
                    tools,
                    request,
                    groups=groups,
                    state=state,
                    accelerator=accelerator,
                    place=place,
                )
            )
            card = stack.enter_context(tap(host, request.label)) if request.seat is not None else ""
            # As late as possible: making disks takes long, and a daemon started by nearmetal ends when idle.
            uri = settings_for(request.environment).uri
            daemon = stack.enter_context(reached(host, tools, uri, request.label, state, base.cache))
            require_rights(daemon, settings, request.environment.name)
            xml = domain_xml(
                DomainPlan(
                    name=request.label,
                    guest=plan,
                    emulator=program,
                    cpus=host_cpus_of(request, plan.vcpus) if settings.pin else (),
                    tap=card,
                    security=daemon.security,
                    owner=(os.geteuid(), os.getegid()),
                )
            )
            requested = time.monotonic_ns()
            domain = stack.enter_context(made(host, daemon, request.label, xml, state))
            cgroups.take(groups, domain.process.pid)
            pin(domain.threads, request)  # entering a control group has put the threads on all of its CPUs
            seat = stack.enter_context(ExitStack())
            if request.seat is not None and place is not None:
                seat.enter_context(joined(host, card, request.seat, place))
            domain.resume()
            resumed = time.monotonic_ns()
            hello, ahead = booted(domain.process, plan.sockets.agent, state, settings, domain.registers)
            phases = boot_phases(begin, resumed, hello, ahead)
            phases = {"prepare": (requested - begin) / 1e9, LIBVIRT_STEP: (resumed - requested) / 1e9} | {
                k: v for k, v in phases.items() if k != "prepare"
            }
            guest = ready_instance(
                host, tools, request, groups, plan, domain.process, domain.threads, phases, ahead
            )
            yield libvirt_guest(guest, daemon, request.label, seat)

    def unmovable(self, environment: Environment, method: Method) -> Unavailable | None:
        return unmovable(environment, method)

    def migrate(
        self, host: Host, tools: Tools, instance: Instance, request: MoveRequest
    ) -> AbstractContextManager[Moved]:
        if not isinstance(instance, LibvirtGuest):
            raise UnavailableError(f"{instance.label} is not a guest of libvirt", remedy="backend: libvirt")
        return migrated(host, tools, instance, request)

    def enable_moves(self, instance: Instance) -> None:
        """See moving.EnablesMoves. This changes QEMU only for the time before a move: libvirt sets the
        capabilities that a move needs itself."""
        assert isinstance(instance, LibvirtGuest)
        wanted = [{"capability": name, "state": True} for name in sorted(EVERY_CAPABILITY)]
        words = {"execute": "migrate-set-capabilities", "arguments": {"capabilities": wanted}}
        uri, name = instance.daemon.uri, instance.domain
        done = ask(instance.host, uri, "qemu-monitor-command", name, json.dumps(words))
        if not done.ok or '"error"' in done.stdout:
            why = done.stdout.strip() if done.ok else done.failure(find_virsh_message)
            raise RunError(f"guest {name} cannot be made movable: {why}")

    sample_memory = staticmethod(sampled)

    def instance_names(self, host: Host) -> tuple[str, ...]:
        return domain_names(host)

    def recorded_instances(self, host: Host) -> tuple[str, ...]:
        return domain_names(host, noted=True)

    note = NOTE
    not_searched = staticmethod(not_searched)
    remove_instance = staticmethod(destroy_domain)


def _require_expressible(host: Host, request: InstanceRequest) -> None:
    """Check that libvirt supports the settings of the guest, and that nearmetal runs as root if a tap is
    needed.

    Raises UnavailableError if one of these checks fails.
    """
    name = request.environment.name
    for key, why in not_by_libvirt(settings_of(request), request.environment.attachment):
        raise UnavailableError(f"environment {name}: {key}: {why}")
    if request.seat is not None and not host.is_root():
        raise UnavailableError(
            f"environment {name}: a guest needs root for a tap", remedy="run as root, or attachment: user"
        )


def require_rights(daemon: Daemon, settings: GuestSettings, name: str) -> None:
    """Check that the daemon has the privileges that the settings need. A daemon started by nearmetal cannot
    use huge pages, nor lock the memory that a passed-through device needs.

    name: name of the environment, for the message.
    Raises UnavailableError if the daemon lacks a privilege.
    """
    needed = "huge_pages" if settings.huge_pages else "vfio" if settings.vfio is not None else ""
    if daemon.own and needed:
        raise UnavailableError(
            f"environment {name}: guest: {needed}: only the machine's own daemon of libvirt may give that, "
            "and none answers",
            remedy="systemctl start virtqemud.socket, or libvirtd; or backend: qemu",
        )
