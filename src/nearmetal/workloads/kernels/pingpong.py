"""Ping-pong: one message to and fro between ranks 0 and 1, latency or bandwidth."""

from __future__ import annotations

from .messages import pingpong_kernel

KERNEL = pingpong_kernel(
    "pingpong", doc="MPI point to point: latency of short messages, bandwidth of long ones"
)
