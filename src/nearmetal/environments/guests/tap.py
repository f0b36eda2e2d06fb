"""Connects a guest to the network of a seat: a tap is connected to the seat's interface in its network
namespace (kernels/box/tap.c), and the guest takes over the addresses of this interface."""

from __future__ import annotations

import msgspec

from ...host import Host
from ...model.environments.network import Seat
from ...model.study import Attachment
from ..contract import Tools
from ..instance import START_TIMEOUT
from .guest import GuestInterface

BRIDGE = "nmbridge"
"""Name of the bridge that nm-box makes in the network namespace of a seat."""
USER_PLACE = GuestInterface(
    mac="02:6e:6d:00:00:02",
    address="10.0.2.15",
    mask="255.255.255.0",
    mtu=1500,
    routes=("0.0.0.0/0:10.0.2.2",),
)
"""The interface of a guest with the attachment `user`, behind the router that QEMU emulates for each guest
(QEMU's manual, -netdev user)."""


def tap_argv(tools: Tools, seat: Seat, attachment: Attachment, *, vhost: bool = False) -> list[str]:
    """Return the `nm-box tap` command line that prints the addresses of a seat's interface.

    If a command is appended, nm-box runs this command instead, with the tap as an open file descriptor.
    """
    argv = [tools / "nm-box", "tap", "--netns", seat.netns, "--interface", seat.interface]
    argv += ["--macvtap"] if attachment is Attachment.MACVTAP else []
    return [*argv, *(["--vhost"] if vhost else [])]


def taken_place(host: Host, tools: Tools, seat: Seat, attachment: Attachment) -> GuestInterface:
    """Prepare the interface of a seat for the tap of a guest, and return the settings for the interface
    inside the guest.

    Raises RunError.
    """
    done = host.run(tap_argv(tools, seat, attachment), timeout=START_TIMEOUT).require(
        f"the guest cannot take {seat.interface}"
    )
    return place_of(done.stdout)


def place_of(text: str) -> GuestInterface:
    """Parse the JSON output of `nm-box tap`."""
    return msgspec.json.decode(text, type=GuestInterface)
