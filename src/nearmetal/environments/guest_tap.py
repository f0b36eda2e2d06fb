"""The seat of a guest: its interface handed over by a tap (kernels/box/tap.c), and what the guest has to know
of it."""

from __future__ import annotations

import json

from ..errors import RunError
from ..host import Host
from ..model.environments.network import Seat
from ..model.study import Attachment
from .contract import Tools
from .guest import GuestInterface
from .instance import START_TIMEOUT

USER_PLACE = GuestInterface(
    interface="eth0",
    mac="02:6e:6d:00:00:02",
    address="10.0.2.15",
    mask="255.255.255.0",
    mtu=1500,
    routes=("0.0.0.0/0:10.0.2.2",),
)
"""Behind the router that QEMU plays in user mode, one for each guest (QEMU's manual, -netdev user)."""


def tap_argv(tools: Tools, seat: Seat, attachment: Attachment, *, vhost: bool = False) -> list[str]:
    """Tokens that tell of the place of a seat; before a command, that hand it the tap."""
    argv = [tools / "nm-box", "tap", "--netns", seat.netns, "--interface", seat.interface]
    argv += ["--macvtap"] if attachment is Attachment.MACVTAP else []
    return [*argv, *(["--vhost"] if vhost else [])]


def taken_place(host: Host, tools: Tools, seat: Seat, attachment: Attachment) -> GuestInterface:
    """The interface of a seat, ready for the guest's tap. Raises RunError."""
    done = host.run(tap_argv(tools, seat, attachment), timeout=START_TIMEOUT)
    if not done.ok:
        raise RunError(f"the guest cannot take {seat.interface}: {done.failure()}")
    return place_of(done.stdout)


def place_of(text: str) -> GuestInterface:
    """What nm-box tap tells."""
    facts = json.loads(text)
    return GuestInterface(
        interface="eth0",
        mac=facts["mac"],
        address=facts["address"],
        mask=facts["mask"],
        mtu=facts["mtu"],
        routes=tuple(facts["routes"]),
    )
