"""Allreduce: the sum of a vector of doubles over all ranks, on all ranks."""

from __future__ import annotations

from .collective import collective_kernel
from .messages import bytes_parameter

KERNEL = collective_kernel(
    "allreduce",
    doc="MPI collective: the time of one allreduce, a sum of doubles",
    size=bytes_parameter("the vector's, 8 for each double", least=8, most=1 << 28, multiple=8),
)
