"""Ping-pong over a TCP socket between ranks 0 and 1."""

from __future__ import annotations

from .messages import pingpong_kernel
from .sockets import WAIT

KERNEL = pingpong_kernel(
    "tcp",
    doc="TCP socket, the layer below MPI over TCP: latency and bandwidth",
    least_bytes=1,
    more=(WAIT,),
)
