"""Makes the tap of a guest that libvirt starts.

The machine's daemon opens a tap by its name, which must be in the network namespace of the daemon. Afterwards
the tap is moved to the network namespace of the guest's seat. QEMU keeps it open and is not affected. (For
guests of backend qemu, nm-box makes the tap in that namespace: kernels/box/tap.c.)"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from zlib import crc32

from ...errors import RunError
from ...host import Host, namespaces
from ...model.environments.network import Seat
from ..guests.guest import GuestInterface
from ..guests.tap import BRIDGE

SECONDS = 60.0


def tap_name(label: str) -> str:
    """Return a name for the tap of an instance. It is shorter than the kernel's limit of 15 characters.

    label: label of the instance.
    """
    return f"nmlv{crc32(label.encode()):08x}"


@contextmanager
def tap(host: Host, label: str) -> Iterator[str]:
    """Make a tap in the current network namespace, and yield its name. On exit, it is removed if it is still
    in this namespace.

    Raises RunError.
    """
    name = tap_name(label)
    _ip(host, "tuntap", "add", "dev", name, "mode", "tap", "user", str(os.geteuid()))
    try:
        _ip(host, "link", "set", "dev", name, "alias", label)
        yield name
    finally:
        host.run(["ip", "link", "del", "dev", name], timeout=SECONDS)


@contextmanager
def joined(host: Host, name: str, seat: Seat, place: GuestInterface) -> Iterator[None]:
    """Move a tap to the network namespace of a seat and connect it to the bridge there. It is removed on
    exit.

    place: network interface inside the guest, whose MTU the tap gets.
    Raises RunError if this fails, or another guest uses the seat.
    """
    inside = ["nsenter", f"--net={seat.netns}", "--"]
    with _taken(seat):
        try:
            _ip(host, "link", "set", "dev", name, "netns", seat.netns)
            port = ("mtu", str(place.mtu), "master", BRIDGE, "up")
            _ip(host, "link", "set", "dev", name, *port, inside=inside)
            yield
        finally:
            host.run([*inside, "ip", "link", "del", "dev", name], timeout=SECONDS)


@contextmanager
def tap_at(host: Host, label: str, seat: Seat, place: GuestInterface) -> Iterator[str]:
    """Make a tap in the network namespace of a seat, in which a daemon runs, and connect it to the bridge
    there.
    Yields its name. It is removed on exit.

    place: network interface inside the guest, whose MTU the tap gets.
    Raises RunError if this fails, or another guest uses the seat.
    """
    inside = ["nsenter", f"--net={seat.netns}", "--"]
    name = tap_name(label)
    with _taken(seat):
        _ip(host, "tuntap", "add", "dev", name, "mode", "tap", "user", str(os.geteuid()), inside=inside)
        try:
            port = ("mtu", str(place.mtu), "master", BRIDGE, "up")
            _ip(host, "link", "set", "dev", name, "alias", label, *port, inside=inside)
            yield name
        finally:
            host.run([*inside, "ip", "link", "del", "dev", name], timeout=SECONDS)


@contextmanager
def _taken(seat: Seat) -> Iterator[None]:
    """Reserve the interface of a seat for one guest until exit. The reservation is an abstract Unix socket,
    which nm-box also binds for guests of backend qemu.

    Raises RunError if another guest has reserved it.
    """
    with ExitStack() as stack:
        try:
            with namespaces.entered(seat.netns):
                held = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            held.bind(f"\0nearmetal-guest-{seat.interface}")
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                raise RunError(f"another guest has this address already ({seat.interface})") from e
            raise RunError(f"address {seat.interface}: {e.strerror}") from e
        yield


def _ip(host: Host, *words: str, inside: Sequence[str] = ()) -> None:
    host.run([*inside, "ip", *words], timeout=SECONDS).require("the guest's tap")
