"""What ping-pong over TCP and over UDP have in common: sockets beside MPI, so that a layer can be compared
with the layer below it."""

from __future__ import annotations

from ..parameter import Kind, Parameter

WAIT = Parameter(
    name="wait",
    kind=Kind.WORD,
    default="block",
    words=("block", "spin"),
    doc="how a message is waited for: in the kernel, or by asking again and again as MPI libraries do",
)
