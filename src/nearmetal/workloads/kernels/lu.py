"""LU: wavefronts across the ranks, small messages that wait for each other (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from .contract import Ranks
from .nas import nas_kernel

KERNEL = nas_kernel(
    "lu",
    doc="wavefronts of small messages: NPB LU",
    count="iterations",
    count_doc="relaxations of the whole grid",
    ranks=Ranks.POWERS,
)
