"""What of a guest of QEMU libvirt cannot be told, and which daemons of libvirt may be asked."""

from __future__ import annotations

from collections.abc import Iterator

from .guest import GuestSettings, MachineType, StartFrom
from .study import Attachment

LIBVIRT_URI = r"^qemu(\+unix)?:///(system|session)(\?socket=/[^?#&;\s]+)?$"
"""Of this machine alone: any other transport would run a command, or leave it. libvirt parts parameters at
";" too."""

ATTACHMENT = "attachment"
"""The one key that is not of the guest."""


def not_by_libvirt(settings: GuestSettings, attachment: Attachment) -> Iterator[tuple[str, str]]:
    """(key, why and what to write instead)."""
    if attachment is Attachment.MACVTAP:
        yield (
            ATTACHMENT,
            "libvirt takes no macvtap that stands in another network namespace; write attachment: macvlan, "
            "or backend: qemu",
        )
    if settings.machine is MachineType.MICROVM:
        yield "machine", "libvirt knows no microvm; write machine: q35, or backend: qemu"
    if settings.snapshot:
        what = "libvirt would write it beside the image; write format: qcow2 or writable, or backend: qemu"
        yield "snapshot", what
    if settings.start is StartFrom.RESTORED:
        what = "libvirt restores a guest under its old name alone; write start: cold, or backend: qemu"
        yield "start", what
    if settings.cpu is not None and "," in settings.cpu:
        yield "cpu", "libvirt takes the name of a model, without features; write that, or backend: qemu"
