"""Offloads of an interface, by the ethtool ioctl. (linux/ethtool.h)"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
_GET = {"tx": 0x16, "tso": 0x1E, "gso": 0x23, "gro": 0x2B}
_SET = {"tx": 0x17, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}
_VALUE = struct.Struct("=II")  # struct ethtool_value
OFFLOADS = ("tso", "gso", "gro")


def switch(via: socket.socket, interface: str, offload: str, on: bool) -> None:
    """Switch an offload on or off.

    via: any socket that was opened in the interface's network namespace.
    offload: tso, gso, gro, or tx (transmit checksums).
    Raises OSError.
    """
    _call(via, interface, _SET[offload], int(on))


def switched(via: socket.socket, interface: str, offload: str) -> bool:
    """Return whether an offload is on.

    Raises OSError.
    """
    return bool(_call(via, interface, _GET[offload], 0))


def _call(via: socket.socket, interface: str, command: int, value: int) -> int:
    data = ctypes.create_string_buffer(_VALUE.pack(command, value))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(data))  # struct ifreq
    fcntl.ioctl(via.fileno(), _SIOCETHTOOL, request)
    return int(_VALUE.unpack(data.raw[: _VALUE.size])[1])
