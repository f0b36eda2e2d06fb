"""Common parts of the TCP and UDP ping-pong kernels.

They use sockets and not MPI, so that MPI can be compared with the layer below it.
"""

from __future__ import annotations

from ..parameter import Kind, Parameter
from .contract import WorkKind
from .messages import pingpong_kernel

WAIT = Parameter(
    "wait",
    Kind.WORD,
    "block",
    "how a message is waited for: in the kernel, or by asking again and again as MPI libraries do",
    words=("block", "spin"),
)


KERNELS = (
    pingpong_kernel(
        "tcp",
        kind=WorkKind.SOCKETS,
        doc="TCP socket, the layer below MPI over TCP: latency and bandwidth",
        least_bytes=1,
        more=(WAIT,),
    ),
    pingpong_kernel(
        "udp",
        kind=WorkKind.SOCKETS,
        doc="UDP socket: latency and bandwidth; a lost datagram fails its time share",
        most_bytes=65507,  # 65535 less the headers of IPv4 and UDP
        more=(WAIT,),
        unusable="lost a datagram",
    ),
)
