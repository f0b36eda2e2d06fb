"""Ping-pong: one message to and fro between ranks 0 and 1, latency or bandwidth."""

from __future__ import annotations

from .messages import MPI_COST, pingpong_kernel

KERNEL = pingpong_kernel(
    "pingpong",
    doc="MPI point to point: latency of short messages, bandwidth of long ones",
    cost=lambda _, setting: MPI_COST[setting.transport],
)
