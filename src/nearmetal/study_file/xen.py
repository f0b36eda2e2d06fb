"""Guests of Xen: their keys, what goes together, what they stand for, how they are written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..model.image import HOST
from ..model.xen import Dom0, XenDisk, XenDiskKind, XenSettings
from .problems import Path, Problems
from .tree import MapNode, Node, mark_of
from .validate import broken

if TYPE_CHECKING:
    from .sections import EnvironmentSection, XenSection

XEN = "xen"
#: Keys of guest that are QEMU's alone, and what is said of them.
_QEMU_ONLY = {
    "accelerator": "the hypervisor runs every guest itself",
    "machine": "write xen: type",
    "cpu": "the hypervisor gives its own model",
    "huge_pages": "the hypervisor chooses pages by itself",
    "numa": "xl divides no guest into nodes",
    "format": "its disks are raw",
    "cache": "its disks are read and written by dom0's kernel, which has no such modes",
    "aio": "its disks are read and written by dom0's kernel, which has no such modes",
    "snapshot": "its image is never written to; write writable",
    "nic": "its card is paravirtual",
    "vfio": "no device is passed through",
    "start": "no start from a checkpoint is made for it",
}
PLAIN = frozenset({"type", "kind", "scheduler", "weight", "cap", "overwrite"})
"""Keys of xen_words() whose value needs no quotes."""

Found = Iterator[tuple[Path, str]]


def check_xen(section: EnvironmentSection, node: Node, path: Path, problems: Problems) -> None:
    """What a guest of Xen can have, and what only it has."""
    if section.backend != XEN:
        if section.xen is not None:
            at: Path = ("xen",)
            what = f"backend {section.backend} is not Xen; write backend: {XEN}, or take this out"
            problems.add(mark_of(node, at, key=True), path + at, what)
        return
    guest = node.get("guest") if isinstance(node, MapNode) else None
    given = frozenset(guest.entries) if isinstance(guest, MapNode) else frozenset[str]()
    found = list(_around(section, given))
    found += [(("xen", *at), what) for at, what in (_inside(section, section.xen) if section.xen else ())]
    for at, what in found:
        if not broken(section, node, str(at[0])):
            problems.add(mark_of(node, at, key=at[-1] in _QEMU_ONLY), path + at, what)


def _around(section: EnvironmentSection, given: frozenset[str]) -> Found:
    """Of the environment's other keys. given: those of guest that stand there."""
    for key in sorted(given & _QEMU_ONLY.keys()):
        yield ("guest", key), f"{key} is of backend qemu: {_QEMU_ONLY[key]}"
    if section.image == HOST and (section.guest is None or section.guest.disk is None):
        what = "a guest of Xen sees nothing of the machine, so it has no image host; write image: debian-mpi"
        yield ("image",), what
    for key in ("cpu", "cpu_shares"):
        if getattr(section.limits, key) is not None:
            yield ("limits", key), "the hypervisor holds a guest; write xen: cap, or weight"


def _inside(section: EnvironmentSection, x: XenSection) -> Found:
    """Of its own keys."""
    if x.bridge is not None and section.attachment.seated:
        what = f"attachment {section.attachment} gives it an interface already; write attachment: none"
        yield ("bridge",), what
    if x.dom0 is not None and section.attachment.seated:
        what = (
            f"a network built here for {section.attachment} does not reach a guest on {x.dom0.host}; "
            "write attachment: none, or run nearmetal there"
        )
        yield ("dom0",), what
    guest = section.guest
    if x.disk.model_fields_set and (guest is None or (guest.writable is None and guest.swap is None)):
        yield ("disk",), "it has no disk that this could be said of; write guest: {writable: 2 GiB}"
    if x.disk.kind is XenDiskKind.BLOCK and guest is not None and guest.swap is not None:
        yield ("disk", "kind"), "one device is one disk, and swap would be a second; write lvm or file"
    if x.disk.kind is not XenDiskKind.FILE and x.disk.path is None:
        what = "the device" if x.disk.kind is XenDiskKind.BLOCK else "the volume group"
        yield ("disk",), f"disk {x.disk.kind} needs its path: {what}"
    if x.disk.overwrite and x.disk.kind is not XenDiskKind.BLOCK:
        yield ("disk", "overwrite"), f"disk {x.disk.kind} is made anew and destroys nothing"
    if x.disk.path is not None and (mistake := _path_mistake(x.disk.kind, x.disk.path)):
        yield ("disk", "path"), mistake


def _path_mistake(kind: XenDiskKind, path: str) -> str:
    """xl's disks end at a comma; '' where nothing is wrong."""
    plain = all(c.isalnum() or c in "/_.+-" for c in path)
    if kind is XenDiskKind.LVM:
        wrong = not plain or "/" in path or path.startswith("-")
        return f'"{path[:60]}" is not the name of a volume group' if wrong else ""
    wrong = not plain or not path.startswith("/")
    return f'"{path[:60]}" is not an absolute path of letters, digits and /_.+-' if wrong else ""


def xen_of(section: XenSection | None) -> XenSettings | None:
    """What it stands for."""
    if section is None:
        return None
    dom0, disk = section.dom0, section.disk
    return XenSettings(
        type=section.type,
        dom0=Dom0(destination=dom0.host, config=dom0.ssh_config) if dom0 is not None else None,
        scheduler=section.scheduler,
        weight=section.weight,
        cap=section.cap,
        bridge=section.bridge,
        disk=XenDisk(kind=disk.kind, path=disk.path, overwrite=disk.overwrite),
    )


def xen_words(x: XenSettings) -> dict[str, str | dict[str, str]]:
    """Its keys as a file has them, without those that are as usual."""
    usual = XenSettings()
    dom0 = {"host": x.dom0.destination, "ssh_config": x.dom0.config} if x.dom0 is not None else {}
    disk = {"kind": str(x.disk.kind), "path": x.disk.path, "overwrite": "true" if x.disk.overwrite else None}
    plain = {
        "type": str(x.type) if x.type is not usual.type else None,
        "scheduler": str(x.scheduler) if x.scheduler is not None else None,
        "weight": str(x.weight) if x.weight is not None else None,
        "cap": str(x.cap) if x.cap is not None else None,
        "bridge": x.bridge,
    }
    out: dict[str, str | dict[str, str]] = {k: v for k, v in plain.items() if v is not None}
    if x.dom0 is not None:
        out["dom0"] = {k: v for k, v in dom0.items() if v is not None}
    if x.disk != usual.disk:
        out["disk"] = {k: v for k, v in disk.items() if v is not None}
    return out
