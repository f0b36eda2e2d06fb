"""MG: multigrid, memory bandwidth and messages of all lengths (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from .contract import Ranks
from .nas import nas_kernel

KERNEL = nas_kernel(
    "mg",
    doc="multigrid with halo exchange: NPB MG",
    count="iterations",
    count_doc="V-cycles",
    ranks=Ranks.POWERS,
)
