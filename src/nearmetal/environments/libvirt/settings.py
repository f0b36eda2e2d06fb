"""Settings that only a guest of libvirt has, and settings of QEMU guests that libvirt does not support."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ...model.capabilities import KeyPath, Misfits
from ...model.environments.environment import Attachment, BackendSettings, Environment
from ...model.environments.guest import GuestSettings, MachineType, StartFrom
from ...model.keys import key_or, matching
from ..qemu.settings import misfits as of_qemu

URI = r"^qemu(\+unix)?:///(system|session)(\?socket=/[^?#&;\s]+)?$"
"""Pattern of the allowed URIs: those of libvirt daemons on this machine. Other transports are rejected
because they run a command or connect to another machine. ";" is rejected because libvirt would take it as the
beginning of another parameter."""


@dataclass(frozen=True, kw_only=True)
class LibvirtSettings(BackendSettings):
    """Settings of a guest of libvirt, in addition to those of every guest.

    uri: URI of the daemon; None for the default.
    """

    section = "libvirt"
    title = "libvirt"
    doc = "of a guest of libvirt (backend libvirt): what only that has"
    example = {"uri": "qemu:///system"}  # noqa: RUF012  a ClassVar of the base
    earlier = {("guest", "uri"): "uri"}  # noqa: RUF012  a ClassVar of the base

    uri: str | None = key_or(
        None,
        matching(URI, "the URI of a libvirt of this machine such as qemu:///system"),
        "its daemon; if omitted qemu:///system for root and qemu:///session for others, where it answers,"
        " else one of nearmetal's own",
        "qemu:///system",
    )


NOT_ATTACHED = {
    Attachment.MACVTAP: "libvirt does not accept a macvtap from another network namespace; "
    "write attachment: macvlan, or backend: qemu"
}


def settings_for(environment: Environment) -> LibvirtSettings:
    own = environment.own
    return own if isinstance(own, LibvirtSettings) else LibvirtSettings()


def not_by_libvirt(settings: GuestSettings, attachment: Attachment) -> Iterator[tuple[str, str]]:
    """Yield the settings that libvirt does not support: (key, reason and what to write instead)."""
    if attachment in NOT_ATTACHED:
        yield "attachment", NOT_ATTACHED[attachment]
    if settings.machine is MachineType.MICROVM:
        yield "machine", "libvirt has no microvm; write machine: q35, or backend: qemu"
    if settings.snapshot:
        what = "libvirt would write the changes beside it; write format: qcow2 or writable, or backend: qemu"
        yield "snapshot", what
    if settings.start is StartFrom.RESTORED:
        what = "libvirt restores a guest under its old name alone; write start: cold, or backend: qemu"
        yield "start", what
    if settings.cpu is not None and "," in settings.cpu:
        yield "cpu", "libvirt takes the name of a model, without features; write that, or backend: qemu"


def misfits(environment: Environment, given: Collection[KeyPath]) -> Misfits:
    """Yield the settings of an environment in a study file that libvirt or QEMU does not support, except its
    attachment, each with the reason."""
    yield from of_qemu(environment, given)
    for name, why in not_by_libvirt(environment.guest or GuestSettings(), environment.attachment):
        if name != "attachment":
            yield ("guest", name), why
