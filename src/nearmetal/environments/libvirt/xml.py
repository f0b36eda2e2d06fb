"""Builds the domain XML of a guest (https://libvirt.org/formatdomain.html). No I/O.

The guest is the same as by qemu/argv.py, with the same devices on the root bus."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from ...errors import UnavailableError
from ...host.processes import labelled as processes
from ...model.environments.guest import MIB, Accelerator, GuestSettings, Nic
from ..qemu.argv import AGENT, TB_CACHE, GuestPlan, QemuDisk, Wire

QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
FIRST_SLOT = 2
"""First PCI slot used for a device. libvirt reserves slot 1 of machine q35 for a graphics card."""
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot contain, not even as a character reference (XML 1.0, production Char)."""
_CARDS = {Nic.VIRTIO: "virtio", Nic.VHOST: "virtio", Nic.E1000: "e1000", Nic.RTL8139: "rtl8139"}


@dataclass(frozen=True, kw_only=True)
class DomainPlan:
    """The input from which the XML of a domain is built.

    name: name of the domain.
    guest: plan of the guest.
    emulator: path of QEMU.
    uuid: UUID of a domain that is moved; empty for a new domain.
    label: label of the QEMU process; empty if it is the name of the domain.
    cpus: CPU of the machine for each vCPU; empty if the vCPUs are not pinned.
    tap: name of the tap for the network card; empty if there is none.
    security: security models of the daemon, which are switched off for the domain.
    owner: uid and gid of the QEMU process. They are set only if the daemon has the security model dac.
    """

    name: str
    guest: GuestPlan
    emulator: str
    uuid: str = ""
    label: str = ""
    cpus: Sequence[int] = ()
    tap: str = ""
    security: Sequence[str] = ()
    owner: tuple[int, int] = (0, 0)


def domain_xml(plan: DomainPlan) -> str:
    """Return the XML of a domain.

    Raises UnavailableError for a text that XML cannot contain.
    """
    g, s = plan.guest, plan.guest.settings
    kvm = g.accelerator is Accelerator.KVM
    ElementTree.register_namespace("qemu", QEMU_NAMESPACE)
    domain = Element("domain", {"type": "kvm" if kvm else "qemu"})
    _text(domain, "name", plan.name)
    if plan.uuid:
        _text(domain, "uuid", plan.uuid)
    _text(domain, "memory", str(s.memory // MIB), unit="MiB")
    _memory(domain, g)
    _text(domain, "vcpu", str(g.vcpus), placement="static")
    if plan.cpus:
        tune = SubElement(domain, "cputune")
        for number, cpu in enumerate(plan.cpus):
            SubElement(tune, "vcpupin", {"vcpu": str(number), "cpuset": str(cpu)})
    _boot(domain, g)
    features = SubElement(domain, "features")
    SubElement(features, "acpi")
    SubElement(features, "apic")
    if not kvm:
        _text(SubElement(features, "tcg"), "tb-cache", str(TB_CACHE // MIB), unit="MiB")
    _cpu(domain, g)
    for event in ("on_poweroff", "on_reboot", "on_crash"):
        _text(domain, event, "destroy")
    _devices(SubElement(domain, "devices"), plan)
    for model in plan.security:
        _unlabelled(domain, model, plan.owner)
    # The label in its environment identifies the QEMU process, as it does every process of an instance.
    line = SubElement(domain, f"{{{QEMU_NAMESPACE}}}commandline")
    label = {"name": processes.LABEL_VARIABLE, "value": plan.label or plan.name}
    SubElement(line, f"{{{QEMU_NAMESPACE}}}env", label)
    ElementTree.indent(domain)
    text = ElementTree.tostring(domain, encoding="unicode")
    wrong = _NO_XML.search(text)
    if wrong is not None:
        raise UnavailableError(
            f"a path or a name of the guest has the character {wrong[0]!r}, which XML cannot hold",
            remedy="another path, or backend: qemu",
        )
    return text


def security_models(capabilities: str) -> tuple[str, ...]:
    """Return the names of the security models of a daemon, from the output of `virsh capabilities`.

    Raises ValueError if the text is not valid.
    """
    try:
        found = ElementTree.fromstring(capabilities).findall("host/secmodel/model")
    except ElementTree.ParseError as e:
        raise ValueError(str(e)) from e
    return tuple(m.text for m in found if m.text and m.text != "none")


def identity(xml: str) -> tuple[str, str]:
    """Return the UUID of a domain and its versioned machine type, from the output of `virsh dumpxml`.

    Raises ValueError if the text is not valid.
    """
    try:
        domain = ElementTree.fromstring(xml)
    except ElementTree.ParseError as e:
        raise ValueError(str(e)) from e
    kind = domain.find("os/type")
    return domain.findtext("uuid", ""), "" if kind is None else kind.get("machine", "")


def _text(parent: Element, tag: str, text: str, **attributes: str) -> Element:
    made = SubElement(parent, tag, attributes)
    made.text = text
    return made


def _memory(domain: Element, g: GuestPlan) -> None:
    """Add the <memoryBacking> element: shared memory for virtiofsd, and huge pages if requested."""
    s = g.settings
    if not g.shared_root and not s.huge_pages and s.numa == 1:
        return
    backing = SubElement(domain, "memoryBacking")
    if s.huge_pages:
        SubElement(backing, "hugepages")
    SubElement(backing, "source", {"type": "memfd"})
    SubElement(backing, "access", {"mode": "shared"})


def _boot(domain: Element, g: GuestPlan) -> None:
    system = SubElement(domain, "os")
    _text(system, "type", "hvm", arch="x86_64", machine=g.machine or g.settings.machine.value)
    _text(system, "kernel", str(g.kernel))
    _text(system, "initrd", str(g.initramfs))
    _text(system, "cmdline", g.command_line)


def _cpu(domain: Element, g: GuestPlan) -> None:
    whole: Mapping[str, Mapping[str, str]] = {
        "host": {"mode": "host-passthrough", "check": "none"},
        "max": {"mode": "maximum", "check": "none"},
    }
    named = {"mode": "custom", "match": "exact", "check": "none"}
    cpu = SubElement(domain, "cpu", dict(whole.get(g.cpu, named)))
    if g.cpu not in whole:
        _text(cpu, "model", g.cpu, fallback="forbid")
    if g.settings.numa > 1:
        numa = SubElement(cpu, "numa")
        size = g.settings.memory // g.settings.numa // MIB
        for node in range(g.settings.numa):
            own = ",".join(map(str, g.vcpus_of(node)))
            cell = {"id": str(node), "cpus": own, "memory": str(size), "unit": "MiB", "memAccess": "shared"}
            SubElement(numa, "cell", cell)


def _devices(devices: Element, plan: DomainPlan) -> None:
    g = plan.guest
    slots = iter(range(FIRST_SLOT, 0x1F))
    _text(devices, "emulator", plan.emulator)
    SubElement(devices, "controller", {"type": "usb", "model": "none"})
    SubElement(devices, "memballoon", {"model": "none"})
    console = SubElement(devices, "serial", {"type": "file"})
    SubElement(console, "source", {"path": str(g.sockets.console)})
    SubElement(console, "target", {"type": "isa-serial", "port": "0"})
    _at(SubElement(devices, "controller", {"type": "virtio-serial", "index": "0"}), next(slots))
    agent = SubElement(devices, "channel", {"type": "unix"})
    SubElement(agent, "source", {"mode": "connect", "path": str(g.sockets.port)})
    SubElement(agent, "target", {"type": "virtio", "name": AGENT})
    for number, disk in enumerate(g.disks):
        _disk(devices, disk, g.settings, number, next(slots))
    if g.shared_root:
        files = SubElement(devices, "filesystem", {"type": "mount"})
        SubElement(files, "driver", {"type": "virtiofs"})
        SubElement(files, "source", {"socket": str(g.sockets.files)})
        SubElement(files, "target", {"dir": "root"})
        _at(files, next(slots))
    if g.place is not None:
        _card(devices, plan, g.place.mac, next(slots))
    if g.settings.vfio is not None:
        _passed_through(devices, g.settings.vfio, next(slots))


def _at(device: Element, slot: int) -> None:
    """Give a device a slot on the root bus, where QEMU puts it by default. libvirt would give each device its
    own PCIe root port, and the guest's firmware and kernel would have to scan these ports one by one."""
    where = {"type": "pci", "domain": "0", "bus": "0", "slot": str(slot), "function": "0"}
    SubElement(device, "address", where)


def _disk(devices: Element, disk: QemuDisk, s: GuestSettings, number: int, slot: int) -> None:
    made = SubElement(devices, "disk", {"type": "file", "device": "disk"})
    SubElement(
        made, "driver", {"name": "qemu", "type": disk.format.value, "cache": s.cache.value, "io": s.aio.value}
    )
    SubElement(made, "source", {"file": str(disk.file)})
    SubElement(made, "target", {"dev": f"vd{chr(ord('a') + number)}", "bus": "virtio"})
    if disk.read_only:
        SubElement(made, "readonly")
    _text(made, "serial", disk.name)
    _at(made, slot)


def _card(devices: Element, plan: DomainPlan, mac: str, slot: int) -> None:
    user = plan.guest.wire is Wire.USER
    card = SubElement(devices, "interface", {"type": "user" if user else "ethernet"})
    SubElement(card, "mac", {"address": mac})
    if not user:
        SubElement(card, "target", {"dev": plan.tap, "managed": "no"})
    nic = plan.guest.settings.nic
    SubElement(card, "model", {"type": _CARDS[nic]})
    if _CARDS[nic] == "virtio" and not user:
        SubElement(card, "driver", {"name": "vhost" if nic is Nic.VHOST else "qemu"})
    # No guest boots over the network, so the firmware need not run the card's boot ROM.
    SubElement(card, "rom", {"enabled": "no"})
    _at(card, slot)


def _passed_through(devices: Element, address: str, slot: int) -> None:
    """Add a PCI device of the machine that is passed through to the guest.

    address: [DOMAIN:]BUS:SLOT.FUNCTION of the device, which must be bound to vfio-pci.
    """
    *domain, bus, rest = address.split(":")
    device, _, function = rest.partition(".")
    made = SubElement(devices, "hostdev", {"mode": "subsystem", "type": "pci", "managed": "no"})
    SubElement(made, "driver", {"name": "vfio"})
    where = {"domain": f"0x{(domain or ['0000'])[0]}", "bus": f"0x{bus}", "slot": f"0x{device}"}
    SubElement(SubElement(made, "source"), "address", {**where, "function": f"0x{function}"})
    _at(made, slot)


def _unlabelled(domain: Element, model: str, owner: tuple[int, int]) -> None:
    """Switch off a security model, so that libvirt does not relabel files: image files are shared by many
    guests, and belong to the user."""
    if model == "dac":
        label = SubElement(domain, "seclabel", {"type": "static", "model": model, "relabel": "no"})
        _text(label, "label", f"+{owner[0]}:+{owner[1]}")
    else:
        SubElement(domain, "seclabel", {"type": "none", "model": model})
