"""Network devices of the machine that a run may use exclusively: their state in /sys, virtual functions of
SR-IOV, and the mark on a device in use."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from ...errors import RunError
from ..base import Host, MissingValue, text_of
from ..counters.network_files import device_names
from ..notes import Functions, Note, undo_after
from ..processes.running import await_true

TAKEN = "-taken"
"""Suffix of the label in the alias of a device that belongs to the machine and must not be deleted."""

SYS = Path("/sys")
_UP, _LOOPBACK, _ETHERNET = 0x1, 0x8, 1
_APPEARS = 60.0
_SETTLES = 0.3  # udev gives a new device its final name


@dataclass(frozen=True, kw_only=True)
class DeviceState:
    """The settings of a device, which are restored when the device is given back.

    mtu: bytes.
    queue_length: packets.
    """

    name: str
    alias: str
    mtu: int
    queue_length: int
    up: bool


def device_state(host: Host, name: str) -> DeviceState | MissingValue:
    """Return the settings of a device; MissingValue with the reason if a run may not take the device.

    A run may not take a device that does not exist, carries routes or IPv6 addresses, or is part of a bridge
    or bond.
    """
    flags = _number(host, name, "flags")
    if flags is None:
        return MissingValue(f"there is no network device {name}")
    if flags & _LOOPBACK or _number(host, name, "type") != _ETHERNET:
        return MissingValue(f"{name} is not an Ethernet device")
    if not isinstance(host.read(_path(name, "master/ifindex")), MissingValue):
        return MissingValue(f"{name} is in use: it is part of a bridge or bond")
    used = [str(network) for device, network in ipv4_routes(host) if device == name]
    used += [address for device, address in _ipv6_addresses(host) if device == name]
    if used:
        return MissingValue(f"{name} is in use: {', '.join(used[:3])} by it")
    return DeviceState(
        name=name,
        alias=text_of(host, _path(name, "ifalias")).strip(),
        mtu=_number(host, name, "mtu") or 1500,
        queue_length=_number(host, name, "tx_queue_len") or 0,
        up=bool(flags & _UP),
    )


def names(host: Host) -> tuple[str, ...]:
    """Return the machine's network devices, sorted."""
    return tuple(sorted(device_names(text_of(host, "/proc/net/dev").encode())))


def free_hardware(host: Host) -> tuple[str, ...]:
    """Return the names of the hardware network devices that a run may take, because nothing uses them."""
    return tuple(
        name
        for name in names(host)
        if not isinstance(host.read(_path(name, "device/uevent")), MissingValue)
        and isinstance(device_state(host, name), DeviceState)
    )


def ipv4_routes(host: Host) -> Iterator[tuple[str, IPv4Network]]:
    """Yield (device, destination) of each IPv4 route of the machine."""
    for words in (line.split() for line in text_of(host, "/proc/net/route").splitlines()[1:]):
        if len(words) > 7:
            address, mask = (int.from_bytes(bytes.fromhex(w)[::-1], "big") for w in (words[1], words[7]))
            yield words[0], IPv4Network((address, mask.bit_count()), strict=False)


def _ipv6_addresses(host: Host) -> Iterator[tuple[str, str]]:
    """Yield (device, address) of the machine's global addresses, without link-local ones."""
    for line in text_of(host, "/proc/net/if_inet6").splitlines():
        address, _, _, scope, _, device = line.split()
        if scope == "00":  # global
            yield device, address


def _path(name: str, attribute: str) -> str:
    return str(SYS / "class/net" / name / attribute)


def _number(host: Host, name: str, attribute: str) -> int | None:
    try:
        return int(text_of(host, _path(name, attribute)).strip(), 0)
    except ValueError:
        return None


# --- SR-IOV ------------------------------------------------------------------------------------------------


def most_functions(host: Host, name: str) -> int:
    """Return the largest number of virtual functions of a device; 0 if it has no SR-IOV."""
    return _number(host, name, "device/sriov_totalvfs") or 0


def physical_functions(host: Host) -> tuple[str, ...]:
    """Return the machine's devices with SR-IOV."""
    return tuple(name for name in names(host) if most_functions(host, name))


def functions(host: Host, name: str) -> tuple[str, ...]:
    """Return the network devices of a device's virtual functions, in the order of the functions' numbers.

    Functions that belong to another namespace or to a virtual machine are missing.
    """
    every = names(host)
    out = []
    for number in range(_number(host, name, "device/sriov_numvfs") or 0):
        below = f"device/virtfn{number}/net"
        out += [
            other
            for other in every
            if not isinstance(host.read(_path(name, f"{below}/{other}/ifindex")), MissingValue)
        ]
    return tuple(out)


@contextmanager
def make_functions(host: Host, name: str, count: int, label: str) -> Iterator[tuple[str, ...]]:
    """Enable virtual functions of a device that has none, and yield the names of their network devices. The
    earlier number is restored on exit.

    label: label of the run.

    Raises RunError.
    """
    before = _number(host, name, "device/sriov_numvfs") or 0
    with undo_after(label, Functions(card=name, before=before, made=count), restore_functions):
        try:
            Path(_path(name, "device/sriov_numvfs")).write_text(f"{count}\n")
        except OSError as e:
            raise RunError(f"{name}: {count} virtual functions were refused: {e.strerror}") from e
        if not await_true(lambda: len(functions(host, name)) >= count, _APPEARS, every=0.05):
            raise RunError(
                f"{name}: its virtual functions have no network devices",
                remedy="load the driver of the virtual functions",
            )
        time.sleep(_SETTLES)
        yield functions(host, name)


def restore_functions(note: Note) -> None:
    """Restore the number of virtual functions before make_functions(). A number that somebody has changed
    since is kept.

    Raises RunError, OSError.
    """
    change = note.change
    assert isinstance(change, Functions)
    file = Path(_path(checked_device(change.card), "device/sriov_numvfs"))
    if int(file.read_text()) == change.made:
        file.write_text(f"{change.before}\n")
        if int(file.read_text()) != change.before:
            what = f"{change.card} still has {change.made} virtual functions"
            raise RunError(what, remedy=f"echo {change.before} >{file}")


def checked_device(name: str) -> str:
    """Return the name of a network device unchanged if it can be one, so that no path leads elsewhere.

    Raises RunError if it cannot.
    """
    if not re.fullmatch(r"[^/\s\x00]{1,15}", name) or name in (".", ".."):
        raise RunError(f"{name!r} is not the name of a network device")
    return name
