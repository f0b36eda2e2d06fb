"""What a guest needs that can be known before it is started: drivers of its kernel, an image of its
architecture that is no particular machine's, a device that may be passed through."""

from __future__ import annotations

from pathlib import Path

from ..errors import UnavailableError
from ..model.guest import GuestSettings, Nic

_CARDS = {Nic.VIRTIO: "virtio_net", Nic.VHOST: "virtio_net", Nic.E1000: "e1000", Nic.RTL8139: "8139cp"}
_X86_64 = 62
"""e_machine of ELF (System V ABI, AMD64 supplement)."""
_PROGRAMS = ("bin/sh", "usr/bin/env", "sbin/init")
_OF_ONE_MACHINE = ("etc/hostname", "etc/machine-id", "etc/udev/rules.d/70-persistent-net.rules")


def missing_drivers(modules: Path, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Those that a kernel has neither as modules nor built in. modules: its lib/modules/<version>."""
    known: set[str] = set()
    for name in ("modules.dep", "modules.builtin"):
        try:
            lines = (modules / name).read_text().splitlines()
        except OSError:
            continue
        known |= {
            line.partition(":")[0].rpartition("/")[2].partition(".ko")[0].replace("-", "_") for line in lines
        }
    return tuple(w for w in wanted if w not in known) if known else ()


def drivers_of(settings: GuestSettings, *, shared_root: bool, network: bool) -> tuple[str, ...]:
    """What a guest cannot do without. shared_root: its root is the machine's; network: it has a card."""
    root = ("virtiofs",) if shared_root else () if settings.disk is not None else ("virtio_blk", "erofs")
    card = (_CARDS[settings.nic],) if network else ()
    return ("virtio_console", "overlay", *root, *card)


def require_drivers(
    modules: Path | None, settings: GuestSettings, *, shared_root: bool, network: bool
) -> None:
    """Raises UnavailableError for a kernel that could not boot such a guest; None: it tells of none."""
    missing = (
        missing_drivers(modules, drivers_of(settings, shared_root=shared_root, network=network))
        if modules
        else ()
    )
    if missing:
        raise UnavailableError(
            f"kernel {modules.name if modules else ''} has no driver {', '.join(missing)}",
            remedy="a kernel that has: guest: kernel, or an image with linux-image-amd64 among its packages",
        )


def require_tree(name: str, tree: Path) -> None:
    """Raises UnavailableError for an image of another architecture."""
    for program in _PROGRAMS:
        try:
            with (tree / program).resolve(strict=True).open("rb") as file:
                head = file.read(20)
        except OSError:
            continue
        if head[:4] == b"\x7fELF" and int.from_bytes(head[18:20], "little") != _X86_64:
            raise UnavailableError(
                f"image {name} is of another architecture ({program})", remedy="an image for x86-64"
            )


def of_one_machine(tree: Path) -> tuple[str, ...]:
    """Files by which a tree is a particular machine: guests of it would share a name, an identity or a
    MAC."""
    return tuple(f for f in _OF_ONE_MACHINE if (tree / f).is_file() and (tree / f).stat().st_size > 0)


def require_device(address: str, devices: Path = Path("/sys/bus/pci/devices")) -> None:
    """Raises UnavailableError for a PCI device that cannot be passed through
    (Documentation/driver-api/vfio.rst)."""
    device = devices / (address if address.count(":") == 2 else f"0000:{address}")
    what = f"device {address} cannot be passed through: "
    if not device.exists():
        raise UnavailableError(what + "there is none", remedy="lspci -D names those that there are")
    if not (device / "iommu_group").exists():
        raise UnavailableError(
            what + "the machine has no IOMMU, or it is switched off",
            remedy="intel_iommu=on or amd_iommu=on on the machine's kernel command line, and in its firmware",
        )
    driver = (device / "driver").resolve().name if (device / "driver").exists() else "none"
    if driver != "vfio-pci":
        raise UnavailableError(
            what + f"its driver is {driver}, not vfio-pci",
            remedy=f"driverctl set-override {device.name} vfio-pci",
        )
