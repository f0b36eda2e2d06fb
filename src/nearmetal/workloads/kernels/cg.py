"""CG: conjugate gradients, irregular memory and short messages (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from .contract import Ranks
from .nas import nas_kernel

KERNEL = nas_kernel(
    "cg",
    doc="sparse linear algebra with short messages: NPB CG",
    count="iterations",
    count_doc="outer iterations, each of 25 inner ones,",
    ranks=Ranks.POWERS,
)
