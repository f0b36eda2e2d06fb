"""MG: multigrid, memory bandwidth and messages of all lengths (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from .kernel import Ranks
from .nas import nas_kernel

AUTO_ITERATIONS = {"S": 24}  # larger classes: one V-cycle is a slice

KERNEL = nas_kernel(
    "mg",
    doc="multigrid with halo exchange: NPB MG",
    count="iterations",
    count_doc="V-cycles",
    auto=lambda size, _setting: AUTO_ITERATIONS.get(size, 1),
    ranks=Ranks.POWERS,
)
