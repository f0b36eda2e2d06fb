"""What ping-pong over TCP and over UDP have in common: sockets beside MPI, so that a layer can be compared
with the layer below it."""

from __future__ import annotations

from .kernel import Setting
from .messages import Cost
from .parameter import Choices, Kind, Parameter

WAIT = Parameter(
    name="wait",
    kind=Kind.WORD,
    default="block",
    words=("block", "spin"),
    doc="how a message is waited for: in the kernel, or by asking again and again as MPI libraries do",
)
_COST = {"block": Cost(latency=15e-6, bandwidth=2.5e9), "spin": Cost(latency=5e-6, bandwidth=2.5e9)}


def socket_cost(choices: Choices, _: Setting) -> Cost:
    """The same whatever carries MPI's own messages."""
    return _COST[choices.word("wait")]
