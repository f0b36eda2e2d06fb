"""Checks before the start of a guest: drivers of its kernel, architecture of its image, files that belong to
one machine only, free memory, and devices of the machine that it uses."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import Path

from ...errors import UnavailableError
from ...host import Host, cgroups, text_of
from ...host.untrusted import UntrustedDirectory
from ...model.environments.environment import Environment
from ...model.environments.guest import GuestSettings, Nic
from ...model.environments.network import NetworkSettings
from ..contract import Unavailable
from .initramfs import module_name

_CARDS = {Nic.VIRTIO: "virtio_net", Nic.VHOST: "virtio_net", Nic.E1000: "e1000", Nic.RTL8139: "8139cp"}
_NO_IOMMU = Unavailable(
    reason="the machine has no IOMMU, or it is switched off",
    remedy="intel_iommu=on or amd_iommu=on on the machine's kernel command line, and in its firmware",
)
VHOST = Path("/dev/vhost-net")
_MEMINFO = re.compile(r"^(\w+): +(\d+)", re.MULTILINE)
_X86_64 = 62
"""Value of the ELF header field e_machine for x86-64 (System V ABI, AMD64 supplement)."""
_PROGRAMS = ("bin/sh", "usr/bin/env", "sbin/init")
_OF_ONE_MACHINE = ("etc/hostname", "etc/machine-id", "etc/udev/rules.d/70-persistent-net.rules")
VIRTIOFSD_REMEDY = "apt-get install qemu-system-common (Debian 12) or virtiofsd"
VIRTIOFSD = ("/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/lib/virtiofsd")
"""Paths outside $PATH where distributions install virtiofsd."""


def find_virtiofsd(host: Host) -> str | None:
    """Return the path of virtiofsd; None if it is not installed."""
    found = host.which("virtiofsd")
    return found or next((p for p in VIRTIOFSD if host.which(p) is not None), None)


def missing_drivers(modules: Path, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of the wanted drivers a kernel has neither as a module nor built in.

    Returns an empty tuple if the kernel has no list of its drivers.
    modules: lib/modules/<version> of the kernel.
    """
    known: set[str] = set()
    for name in ("modules.dep", "modules.builtin"):
        try:
            lines = UntrustedDirectory(modules).read_bytes(name).decode(errors="replace").splitlines()
        except OSError:
            continue
        known |= {module_name(line.partition(":")[0]) for line in lines}
    return tuple(w for w in wanted if w not in known) if known else ()


def network_drivers(own: NetworkSettings, inside: Sequence[Environment]) -> tuple[str, ...]:
    """Return the names of the kernel modules for the TCP congestion controls of a guest and of the instances
    inside it, and for a network between these instances. reno is built into every kernel.

    own: settings of the guest's own network.
    inside: environments of the instances inside the guest.
    """
    joined = any(e.attachment.seated for e in inside)
    controls = (n.congestion_control for n in (own, *(e.network for e in inside)))
    tcp = dict.fromkeys(f"tcp_{name}" for name in controls if name not in (None, "reno"))
    return (*tcp, *(("veth", "bridge") if joined else ()))


def require_drivers(
    modules: Path | None,
    settings: GuestSettings,
    *,
    shared_root: bool,
    network: bool,
    further: Sequence[str] = (),
) -> None:
    """Check that a kernel has the drivers that a guest needs.

    modules: lib/modules/<version> of the kernel; None if its drivers are unknown, which are then not checked.
    shared_root: whether the guest uses the root directory of the machine.
    network: whether the guest has a network card.
    further: names from network_drivers().

    Raises UnavailableError if the kernel lacks one.
    """
    if modules is None:
        return
    root = ("virtiofs",) if shared_root else () if settings.disk is not None else ("virtio_blk", "erofs")
    card = (_CARDS[settings.nic],) if network else ()
    missing = missing_drivers(modules, ("virtio_console", "overlay", *root, *card, *further))
    if missing:
        raise UnavailableError(
            f"kernel {modules.name} has no driver {', '.join(missing)}",
            remedy="nearmetal image build debian-kernel-generic, and guest: kernel: debian-kernel-generic",
        )


def require_tree(name: str, tree: Path) -> None:
    """Check that the programs of an image are for x86-64.

    name: name of the image, for the message.
    tree: root directory of the image.
    Raises UnavailableError if they are for another architecture.
    """
    for program in _PROGRAMS:
        try:
            with UntrustedDirectory(tree, as_root=True).open_file(program) as file:
                head = file.read(20)
        except OSError:
            continue
        if head[:4] == b"\x7fELF" and int.from_bytes(head[18:20], "little") != _X86_64:
            raise UnavailableError(
                f"image {name} is of another architecture ({program})", remedy="an image for x86-64"
            )


def of_one_machine(tree: Path) -> tuple[str, ...]:
    """Return the files in a tree that should exist on one machine only: all guests from this tree would have
    the same host name, machine ID or names of network interfaces by MAC address."""
    root = UntrustedDirectory(tree, as_root=True)
    found = ((name, root.stat(name)) for name in _OF_ONE_MACHINE)
    return tuple(f for f, status in found if status and stat.S_ISREG(status.st_mode) and status.st_size > 0)


def require_memory(host: Host, what: str, wanted: int, *, huge: bool) -> None:
    """Check that the machine has enough free memory.

    what: purpose of the memory, for the message.
    wanted: size of the memory in bytes.
    huge: whether the memory must be in huge pages.

    Raises UnavailableError if less is free.
    """
    found = {m[1]: int(m[2]) for m in _MEMINFO.finditer(text_of(host, "/proc/meminfo"))}
    if not found:
        return
    free = found.get("MemAvailable", wanted) << 10
    if huge:
        free = found.get("HugePages_Free", 0) * found.get("Hugepagesize", 0) << 10
    limit = cgroups.caller_limits().memory
    if limit is not None and wanted > limit:
        raise UnavailableError(
            f"{what}: {wanted >> 20} MiB of memory are needed, and a control group limits nearmetal to "
            f"{limit >> 20} MiB",
            remedy="guest: memory, or fewer instances",
        )
    if wanted > free:
        raise UnavailableError(
            f"{what}: {wanted >> 20} MiB of memory are needed, {free >> 20} MiB "
            f"{'in huge pages ' if huge else ''}are free",
            remedy="more huge pages: sysctl vm.nr_hugepages" if huge else "guest: memory, or fewer instances",
        )


def device_helps(
    vhost: Path = VHOST, groups: Path = Path("/sys/kernel/iommu_groups")
) -> dict[str, Unavailable | None]:
    """Return, by kind of device ('guest nic vhost', 'guest vfio'), why guests cannot use devices of the
    machine; None for a kind that they can use."""
    iommu = groups.is_dir() and any(groups.iterdir())
    return {"guest nic vhost": _no_vhost(vhost), "guest vfio": None if iommu else _NO_IOMMU}


def require_vhost(device: Path = VHOST) -> None:
    """Check that the kernel can transfer the network packets of guests itself (vhost-net).

    Raises UnavailableError if it cannot.
    """
    lacks = _no_vhost(device)
    if lacks is not None:
        raise lacks.error("nic vhost: ")


def _no_vhost(device: Path) -> Unavailable | None:
    if device.exists():
        return None
    remedy = "modprobe vhost_net (a kernel with CONFIG_VHOST_NET), or nic: virtio"
    return Unavailable(reason=f"there is no {device}", remedy=remedy)


def require_device(address: str, devices: Path = Path("/sys/bus/pci/devices")) -> None:
    """Check that a PCI device can be passed through to a guest (Documentation/driver-api/vfio.rst).

    address: PCI address, with or without the domain.
    Raises UnavailableError if it cannot.
    """
    device = devices / (address if address.count(":") == 2 else f"0000:{address}")
    what = f"device {address} cannot be passed through: "
    if not device.exists():
        raise UnavailableError(what + "there is none", remedy="lspci -D names those that there are")
    if not (device / "iommu_group").exists():
        raise _NO_IOMMU.error(what)
    driver = (device / "driver").resolve().name if (device / "driver").exists() else "none"
    if driver != "vfio-pci":
        raise UnavailableError(
            what + f"its driver is {driver}, not vfio-pci",
            remedy=f"driverctl set-override {device.name} vfio-pci",
        )
