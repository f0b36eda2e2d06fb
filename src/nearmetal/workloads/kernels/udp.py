"""Ping-pong over a UDP socket between ranks 0 and 1."""

from __future__ import annotations

from .messages import pingpong_kernel
from .sockets import WAIT

KERNEL = pingpong_kernel(
    "udp",
    doc="UDP socket: latency and bandwidth; a lost datagram fails its slice",
    most_bytes=65507,  # 65535 less the headers of IPv4 and UDP
    more=(WAIT,),
    unusable="lost a datagram",
)
