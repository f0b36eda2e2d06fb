"""EP: pairs of Gaussian deviates, arithmetic without communication (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from .nas import nas_kernel

KERNEL = nas_kernel(
    "ep",
    doc="arithmetic without communication: NPB EP",
    count="batches",
    count_doc="batches of 65536 pairs per rank",
    units=64,  # blocks of 1024 pairs
)
