"""BT: implicit flow solver, dense arithmetic and few large messages (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from .kernel import Ranks
from .nas import nas_kernel

AUTO_ITERATIONS = {"S": 24, "W": 3}  # larger classes: one time step is a slice

KERNEL = nas_kernel(
    "bt",
    doc="block-tridiagonal flow solver: NPB BT",
    count="iterations",
    count_doc="time steps",
    auto=lambda size, _setting: AUTO_ITERATIONS.get(size, 1),
    ranks=Ranks.SQUARES,
)
