"""Settings of QEMU guests that libvirt does not support."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...model.capabilities import KeyPath, Misfits
from ...model.environments.environment import Attachment, Environment
from ...model.environments.guest import GuestSettings, MachineType, StartFrom

NOT_ATTACHED = {
    Attachment.MACVTAP: "libvirt takes no macvtap from another network namespace; "
    "write attachment: macvlan, or backend: qemu"
}


def not_by_libvirt(settings: GuestSettings, attachment: Attachment) -> Iterator[tuple[str, str]]:
    """Yield (key, reason and what to write instead)."""
    if attachment in NOT_ATTACHED:
        yield "attachment", NOT_ATTACHED[attachment]
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


def misfits(environment: Environment, _given: Collection[KeyPath]) -> Misfits:
    """Yield the same for an environment of a study file, without its attachment."""
    for key, why in not_by_libvirt(environment.guest or GuestSettings(), environment.attachment):
        if key != "attachment":
            yield ("guest", key), why
