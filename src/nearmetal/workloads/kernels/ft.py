"""FT: Fourier transforms in three dimensions, memory bandwidth and all-to-all exchange (NAS benchmarks,
RNR-94-007)."""

from __future__ import annotations

from .contract import Ranks
from .nas import nas_kernel

KERNEL = nas_kernel(
    "ft",
    doc="Fourier transforms in three dimensions with all-to-all messages: NPB FT",
    count="iterations",
    count_doc="steps, each of an inverse transform,",
    ranks=Ranks.POWERS,
)
