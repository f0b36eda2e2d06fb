"""Writes the configuration of a guest in the format of xl (xl.cfg(5)). No I/O.

Values are numbers or texts. A text that contains quotes, backslashes or control characters is rejected
instead of escaped, since the versions of xl do not agree on escapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import UnavailableError
from ...model.environments.network import Seat
from ..guests.tap import BRIDGE
from .settings import XenType

Value = int | str | Sequence[str]

_UNSAFE = re.compile(r"""["'\\\x00-\x1f\x7f]""")
_IN_PAIR = re.compile(r"""[,\s"'\\\x00-\x1f\x7f]""")
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class DomainDisk:
    """A disk of a virtual machine of Xen.

    target: path on dom0 of a block device or a raw file.
    vdev: name of the disk in the guest ('xvda').
    script: path on dom0 of the script that attaches the disk.
    """

    target: str
    vdev: str
    writable: bool
    script: str


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface of a virtual machine of Xen.

    bridge: argument of the script; for xl's own script, this is the name of a bridge on dom0.
    script: path on dom0 of the script that connects the interface; None for xl's own script.
    """

    mac: str
    bridge: str
    script: str | None = None


@dataclass(frozen=True, kw_only=True)
class DomainConfig:
    """The configuration of a guest.

    kernel, ramdisk: paths on dom0.
    command_line: command line of the guest's kernel.
    memory: bytes.
    """

    name: str
    type: XenType
    kernel: str
    ramdisk: str
    command_line: str
    memory: int
    vcpus: int
    disks: tuple[DomainDisk, ...] = ()
    interfaces: tuple[Interface, ...] = ()


def at_seat(seat: Seat) -> str:
    """Return the argument of nearmetal's script for an interface at a seat (xen-vif)."""
    return f"seat:{Path(seat.netns).name}:{BRIDGE}"


def config_text(domain: DomainConfig) -> str:
    """Return the content of the configuration file of a guest.

    Raises UnavailableError if a text cannot be written in this format.
    """
    values: dict[str, Value] = {
        "name": domain.name,
        "type": domain.type.value,
        "kernel": domain.kernel,
        "ramdisk": domain.ramdisk,
        "cmdline": domain.command_line,
        "memory": -(-domain.memory // _MIB),
        "vcpus": domain.vcpus,
        "on_poweroff": "destroy",
        "on_reboot": "destroy",
        # A crashed guest is kept, so that its console can be read and the crash is noticed. nearmetal
        # destroys it.
        "on_crash": "preserve",
    }
    if domain.type is XenType.HVM:
        # By default, xl adds a VGA card and a VNC server. The guest needs neither.
        values |= {"vnc": 0, "vga": "none", "usb": 0, "serial": "pty"}
    if domain.disks:
        values["disk"] = [_disk(d) for d in domain.disks]
    if domain.interfaces:
        values["vif"] = [_interface(i) for i in domain.interfaces]
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def _disk(disk: DomainDisk) -> str:
    # target= must be last: everything after it is part of its value (xl-disk-configuration(5)).
    access = "rw" if disk.writable else "ro"
    script, target = _plain(disk.script), _plain(disk.target)
    return f"format=raw,vdev={_plain(disk.vdev)},access={access},script={script},target={target}"


def _interface(interface: Interface) -> str:
    parts = [f"mac={_plain(interface.mac)}", f"bridge={_plain(interface.bridge)}"]
    if interface.script is not None:
        parts.append(f"script={_plain(interface.script)}")
    return ",".join(parts)


def _plain(text: str) -> str:
    """Return a text unchanged if it can be used in a comma-separated list of xl.

    Raises UnavailableError if it is empty or contains a comma, a space, a quote, a backslash or a control
    character.
    """
    if not text or _IN_PAIR.search(text):
        raise UnavailableError(
            f"xl does not accept {text[:60]!r}", remedy="a name without commas, spaces and quotes"
        )
    return text


def _value(value: Value) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        if _UNSAFE.search(value):
            raise UnavailableError(
                f"xl does not accept {value[:60]!r}", remedy="a text without quotes and backslashes"
            )
        return f'"{value}"'
    return "[" + ", ".join(_value(entry) for entry in value) + "]"
