"""Alltoall: every rank sends a block to every rank."""

from __future__ import annotations

from .collective import collective_kernel
from .messages import bytes_parameter

KERNEL = collective_kernel(
    "alltoall",
    doc="MPI collective: the time of one alltoall",
    size=bytes_parameter("from each rank to each rank", least=1, most=1 << 26),
)
