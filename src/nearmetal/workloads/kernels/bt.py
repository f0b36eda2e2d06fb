"""BT: implicit flow solver, dense arithmetic and few large messages (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from .contract import Ranks
from .nas import nas_kernel

KERNEL = nas_kernel(
    "bt",
    doc="block-tridiagonal flow solver: NPB BT",
    count="iterations",
    count_doc="time steps",
    ranks=Ranks.SQUARES,
)
