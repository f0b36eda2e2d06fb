"""Backend xen: guests of Xen, started with xl on this machine if it is a dom0, or on another dom0 by ssh."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host import Host, runtime
from ...lifecycle import Method
from ...model.capabilities import CONTAINER_ATTACHMENTS, GUEST_ATTACHMENTS, KERNEL, OWN_ALL, Capabilities
from ...model.study import Attachment, Environment
from ..contract import Available, GuestBase, Instance, InstanceRequest, Tools, Unavailable
from ..guests.guest import (
    GuestInterface,
    boot_phases,
    command_line,
    entered_guest,
    first_command,
    require_attachment,
    require_base,
)
from ..guests.tap import taken_place
from ..instance import all_binds, missing_tools
from ..moving import Moved, MoveRequest
from . import config as xen_config
from .disk import FILES, disks_made
from .dom0 import NOTE, Dom0Access, reached, visited
from .guest import XenInstance, set_cpu_use, settings_of
from .leftovers import domain_names, not_searched, remove_named
from .line import PORT, Line, choose_agent_network, connect_agent, console_read, random_mac
from .migrate import METHODS, migrated, unmovable
from .nested import nested
from .settings import NOT_OF_GUEST, XenSettings, XenType, misfits, settings_for
from .xl import CREATE_SECONDS, XenFacts, Xl

DISKS = ("xvda", "xvdb", "xvdc")
HVM_DISKS = ("xvde", "xvdf", "xvdg")
"""Names of the disks in an hvm guest. xvda to xvdd are not used, because Xen emulates disks with these names
as IDE disks too, and IDE disks cannot be read-only (libxl_dm.c)."""
LEAST_MEMORY = 64 << 20
"""Minimum memory of a guest, in bytes. With less, current kernels cannot unpack their initramfs."""


class Xen:
    """Backend xen. It supports the attachments none and loopback, networks built by nearmetal if this machine
    is the dom0, and an existing bridge of dom0 (xen: bridge)."""

    name = "xen"
    capabilities = Capabilities(
        title="Xen",
        own=OWN_ALL | {KERNEL},
        attachments=GUEST_ATTACHMENTS & CONTAINER_ATTACHMENTS,
        settings=XenSettings,
        not_of_guest=NOT_OF_GUEST,
        misfits=misfits,
    )
    moves_by = METHODS

    def check(self, host: Host, tools: Tools) -> Available | Unavailable:
        """Check that this machine is the dom0 of a Xen hypervisor. No guest is started, because that needs an
        image."""
        missing = missing_tools(host, tools)
        if missing is not None:
            return missing
        return _available(Xl(host).facts())

    def quick_check(self, host: Host) -> str:
        return "" if host.which("xl") else "no xl: this machine is not a dom0"

    def check_environment(
        self, host: Host, tools: Tools, environment: Environment
    ) -> Available | Unavailable | None:
        """See contract.RemoteBackend. Checks the hypervisor of the dom0 that the environment names; None if
        it names none."""
        dom0_named = settings_for(environment).dom0
        if dom0_named is None:
            return None
        missing = missing_tools(host, tools)
        if missing is not None:
            return missing
        try:
            with visited(dom0_named, f"nearmetal-check-{os.getpid()}-xen") as dom0:
                there = _available(Xl(dom0).facts())
        except UnavailableError as e:
            return Unavailable(reason=e.what, remedy=e.remedy)
        if isinstance(there, Unavailable):
            return there
        note = f"guests on {dom0_named.destination}, compared with what runs here"
        return replace(there, notes=(note, *there.notes))

    def nested(self, host: Host, tools: Tools, environment: Environment) -> str:
        """See contract.Nested. The hypervisor is that of the dom0 that the environment names, or else of this
        machine."""
        label, dom0 = f"nearmetal-check-{os.getpid()}-xen", settings_for(environment).dom0
        try:
            with visited(dom0, label) as there:
                facts = Xl(there).facts()
                return nested(there, tools, label) if isinstance(facts, XenFacts) and facts.virtual else ""
        except (RunError, UnavailableError):
            return ""  # guests cannot be started there either

    def settings_here(self, host: Host) -> XenSettings | None:
        """See contract.Tuned. Returns settings for pv guests, which need no virtualisation support of the
        processor, if this hypervisor cannot start guests of the default type; otherwise None."""
        facts = Xl(host).facts()
        plain = isinstance(facts, XenFacts) and lacks(facts, XenSettings().type) is not None
        return XenSettings(type=XenType.PV) if plain else None

    @contextmanager
    def start(self, host: Host, tools: Tools, request: InstanceRequest) -> Iterator[XenInstance]:
        begin = time.monotonic_ns()
        base = require_fitting_request(request)
        guest, xen = settings_of(request)
        with ExitStack() as stack:
            state = stack.enter_context(runtime.scratch_directory(f"{request.label}-state"))
            files = xen.disk.path or FILES
            at = stack.enter_context(reached(host, xen.dom0, files, request.label, state))
            xl = Xl(at.host)
            facts = xl.facts()
            if isinstance(facts, Unavailable):
                raise facts.error()
            require_fitting_hypervisor(facts, request)
            upper, swap = stack.enter_context(
                disks_made(at.host, xen.disk, request.label, writable=guest.writable, swap=guest.swap)
            )
            place = None
            if request.seat is not None:
                place = taken_place(host, tools, request.seat, request.environment.attachment)
            line = choose_agent_network(at.host, secrets.token_hex(32))
            domain = _domain(tools, request, base, at, place=place, line=line, upper=upper, swap=swap)
            config = at.write("guest.cfg", xen_config.config_text(domain))
            # Registered before the guest exists, because xl may fail half-way.
            stack.callback(xl.destroy, request.label)
            spawned = time.monotonic_ns()
            xl.create(config, max(CREATE_SECONDS, guest.boot_timeout))
            set_cpu_use(xl, facts.scheduler, request, domain)
            console = stack.enter_context(console_read(xl, request.label, state))
            xl.unpause(request.label)
            there = stack.enter_context(
                connect_agent(
                    host,
                    tools,
                    at,
                    line,
                    console,
                    name=request.label,
                    state=state,
                    timeout=guest.boot_timeout,
                )
            )
            instance = XenInstance(
                label=request.label,
                hostname=request.hostname,
                pid=there.process.pid,
                phases={
                    **boot_phases(begin, spawned, there.hello, there.ahead),
                    **first_command(there.socket),
                },
                cgroups={},
                enter=entered_guest(tools, there.socket),
                host=host,
                tools=tools,
                socket=there.socket,
                scratch=state,
                process=there.process,
                ahead=there.ahead,
                xl=xl,
                at=at,
                domain=domain,
                request=request,
            )
            # The tools are in the initramfs. Nothing else of this machine is visible in the guest.
            instance.copy_binds([b for b in all_binds(tools, request) if b.writable])
            yield instance

    def unmovable(self, environment: Environment, method: Method) -> Unavailable | None:
        return unmovable(environment, method)

    def migrate(
        self, host: Host, tools: Tools, instance: Instance, request: MoveRequest
    ) -> AbstractContextManager[Moved]:
        if not isinstance(instance, XenInstance):
            raise UnavailableError(f"{instance.label} is not a guest of Xen", remedy="backend: xen")
        return migrated(host, tools, instance, request)

    def instance_names(self, host: Host) -> tuple[str, ...]:
        """See leftovers.ManagedByDaemon. Searches this machine if it is a dom0, and all dom0s that are named
        in notes of runs."""
        return domain_names(host)

    note = NOTE
    not_searched = staticmethod(not_searched)
    remove_instance = staticmethod(remove_named)


def _available(facts: XenFacts | Unavailable) -> Available | Unavailable:
    if isinstance(facts, Unavailable):
        return facts
    lacking = {kind: why for kind in XenType if (why := lacks(facts, kind)) is not None}
    logs = "hap" in facts.capabilities or XenType.PVH in lacking
    return Available(
        version=f"Xen {facts.version}",
        notes=tuple(f"no {kind} guests: {why}" for kind, why in lacking.items()),
        of_moves=() if logs else ("precopy: the processor has no nested paging (hap); method stream",),
    )


def lacks(facts: XenFacts, kind: XenType) -> str | None:
    """Return why the hypervisor cannot start a guest of this type; None if it can."""
    if kind is XenType.PV:
        return None if "xen-3.0-x86_64" in facts.capabilities else "it was built, or started, without them"
    if "hvm-3.0-x86_64" not in facts.capabilities:
        return "the processor has no virtualisation, or the firmware has switched it off"
    return None


def require_fitting_hypervisor(facts: XenFacts, request: InstanceRequest) -> None:
    """Check that the hypervisor can start the requested guest.

    Raises UnavailableError if it cannot.
    """
    guest, xen = settings_of(request)
    why = lacks(facts, xen.type)
    if why is not None:
        raise request.refused(f"no {xen.type} guests here: {why}", "type: pv or pvh")
    if xen.scheduler is not None and xen.scheduler is not facts.scheduler:
        raise request.refused(
            f"the hypervisor runs the scheduler {facts.scheduler or 'of another kind'}",
            f"boot Xen with sched={xen.scheduler} on its command line, or take scheduler out",
        )
    if (xen.weight, xen.cap) != (None, None) and facts.scheduler is None:
        raise request.refused("only credit and credit2 have weights and caps", "boot with sched=credit2")
    if guest.memory < LEAST_MEMORY:
        raise request.refused(f"{guest.memory >> 20} MiB is too little to boot in", "memory: 256 MiB")
    if facts.free_memory is not None and guest.memory > facts.free_memory:
        raise request.refused(
            f"the guest wants {guest.memory >> 20} MiB, the hypervisor has "
            f"{facts.free_memory >> 20} MiB that no domain has",
            "less memory for the guest, or for dom0 (dom0_mem= on Xen's command line)",
        )
    if request.cpus and max(request.cpus) >= facts.cpus > 0:
        raise request.refused(
            f"CPU {max(request.cpus)} is requested, and there are {facts.cpus}", "cpus: [0]"
        )


def require_fitting_request(request: InstanceRequest) -> GuestBase:
    """Check that guests of Xen support everything that is requested, and return request.base.

    Raises UnavailableError if they do not.
    """
    _, xen = settings_of(request)
    base = require_base(request)
    if base.root is None:
        raise request.refused(
            "xen gives a guest no directory of the machine, so it has no image host",
            "image: debian-mpi, or another that is built",
        )
    if xen.bridge is None or request.seat is not None:
        require_attachment(request, Xen.capabilities)
    if request.environment.attachment.of_guests:
        raise request.refused(
            f"xl joins a guest to a bridge, not by {request.environment.attachment}",
            "attachment: macvlan, or none",
        )
    if request.seat is not None and xen.dom0 is not None:
        raise request.refused(
            f"a network built here reaches no guest on {xen.dom0.destination}",
            f"run nearmetal there; or attachment: {Attachment.NONE}, or a bridge of that machine",
        )
    if any(limit is not None for limit in vars(request.environment.limits).values()):
        raise request.refused(
            "the hypervisor holds a guest, no control group does",
            "guest: memory and vcpus, xen: weight and cap, instead of limits",
        )
    if len(request.label) > 60:
        raise UnavailableError(
            f"{request.label} is too long for the name of a guest", remedy="a shorter name"
        )
    return base


def _domain(
    tools: Tools,
    request: InstanceRequest,
    base: GuestBase,
    at: Dom0Access,
    *,
    place: GuestInterface | None,
    line: Line,
    upper: str,
    swap: str,
) -> xen_config.DomainConfig:
    guest, xen = settings_of(request)
    script = at.write("vif", _script("xen-vif"), executable=True)
    interfaces = [xen_config.Interface(mac=line.mac, bridge=f"line:{line.dom0}/30", script=script)]
    more = ["quiet", "loglevel=4", f"nm.line={line.mac},{line.guest}/30", f"nm.key={line.key}"]
    if place is not None and request.seat is not None:
        where = xen_config.at_seat(request.seat)
        interfaces.insert(0, xen_config.Interface(mac=place.mac, bridge=where, script=script))
        more.append(f"nm.mac={place.mac}")
    elif xen.bridge is not None:
        interfaces.insert(0, xen_config.Interface(mac=random_mac(), bridge=xen.bridge))
    assert base.root is not None
    attach = at.write("disk", _script("xen-disk"), executable=True)
    image = at.keep(base.root, fingerprint(base.root))
    root_name, upper_name, swap_name = HVM_DISKS if xen.type is XenType.HVM else DISKS
    disks = [xen_config.DomainDisk(target=image, vdev=root_name, writable=False, script=attach)]
    for target, vdev in ((upper, upper_name), (swap, swap_name)):
        disks += (
            [xen_config.DomainDisk(target=target, vdev=vdev, writable=True, script=attach)] if target else []
        )
    # For a disk of the user's own, root_device is its name in a guest of QEMU, such as /dev/vda1.
    root = f"/dev/{root_name}"
    device = guest.root_device.replace("/dev/vda", root, 1) if base.disk else root
    return xen_config.DomainConfig(
        name=request.label,
        type=xen.type,
        kernel=at.take(base.kernel, "kernel"),
        ramdisk=at.take(base.initramfs, "initramfs"),
        command_line=command_line(
            request,
            tools,
            root=f"{device}:{'auto' if base.disk else 'erofs'}",
            upper=f"/dev/{upper_name}" if upper else "",
            swap=f"/dev/{swap_name}" if swap else "",
            port=f"tcp:{PORT}",
            console="hvc0",
            place=place,
            more=more,
        ),
        memory=guest.memory,
        vcpus=guest.vcpus or len(request.cpus) or 1,
        disks=tuple(disks),
        interfaces=tuple(interfaces),
    )


def fingerprint(file: Path) -> str:
    """Return a digest of a file's path, size and modification time. It identifies the content of a file that
    is never changed in place."""
    found = file.stat()
    text = f"{file}\0{found.st_size}\0{found.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _script(name: str) -> str:
    """Return the text of a script that xl runs on dom0 for a guest's devices."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
