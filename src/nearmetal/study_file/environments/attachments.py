"""Check that the attachment of an environment fits its backend, and that its network settings fit the
attachment. Mistakes are added to problems."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.capabilities import NOT_OF_GUESTS, Capabilities
from ...model.keys import did_you_mean
from ...model.study import Attachment, Environment
from ..problems import Path
from ..tree import Located
from .backends import backends_that, capabilities_of

#: What to write instead of an attachment that few backends support.
_INSTEAD = {
    Attachment.MACVTAP: Attachment.MACVLAN,
    Attachment.USER: f"{Attachment.NONE}, or {Attachment.VETH_BRIDGE}",
}


def check_attachment(section: Environment, found: Located) -> None:
    """Check the attachment of an environment against its backend, and the section `network` against the
    attachment."""
    attachment, can = section.attachment, capabilities_of(section.backend)
    if can is not None and attachment not in can.attachments:
        found.mistake(("attachment",), _refusal(section.backend, can, attachment))
        return
    if found.unread("network"):
        return
    own = found.get("network")
    for at, what in _misfits(section, given=own is not None and bool(own.entries)):
        found.mistake(at, what, key=at == ("network",))


def _misfits(section: Environment, *, given: bool) -> Iterator[tuple[Path, str]]:
    """Yield the network settings that do not fit the attachment, as pairs (path of the key, message).

    given: whether the section `network` has keys.
    """
    attachment, network = section.attachment, section.network
    if not attachment.seated:
        if given:
            yield (
                ("network",),
                f"attachment {attachment} has no network that is built for it; "
                f"write attachment: {Attachment.VETH_BRIDGE}, or take this out",
            )
        return
    if network.mode is not None and network.mode not in attachment.modes:
        yield ("network", "mode"), _mode_mistake(attachment, network.mode)
    if attachment.on_device and not network.devices:
        yield ("attachment",), f"attachment {attachment} needs devices; write network: {{devices: [eth1]}}"
    if network.devices and not attachment.on_device:
        yield (
            ("network", "devices"),
            f"attachment {attachment} takes no device of the machine; phys and sriov do",
        )
    for number, device in enumerate(network.devices):
        if device in network.devices[:number]:
            yield ("network", "devices", number), f'"{device}" given twice'


def _refusal(backend: str, can: Capabilities, attachment: Attachment) -> str:
    """Return why a backend cannot have an attachment, and what to write instead."""
    if attachment in can.not_attached:
        return can.not_attached[attachment]
    if can.bare:
        return f"{backend} is the machine itself; write attachment: host, or loopback for TCP"
    if can.virtual and attachment in NOT_OF_GUESTS:
        return NOT_OF_GUESTS[attachment]
    if attachment in _INSTEAD:
        takers = " and ".join(backends_that(lambda c: attachment in c.attachments))
        return f"only {takers} can have it; write attachment: {_INSTEAD[attachment]}"
    return (
        f"{backend} cannot have it; write one of {', '.join(a for a in Attachment if a in can.attachments)}"
    )


def _mode_mistake(attachment: Attachment, mode: str) -> str:
    if attachment.modes:
        return f'attachment {attachment} has no mode "{mode[:40]}"{did_you_mean(mode, attachment.modes)}'
    *others, last = (a for a in Attachment if a.modes)
    return f"attachment {attachment} has no modes; {', '.join(others)} and {last} have"
