"""IS: ranks of small integer keys, all-to-all exchange and random access (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from .contract import Ranks
from .nas import nas_kernel

KERNEL = nas_kernel(
    "is",
    doc="integer sort with all-to-all messages: NPB IS",
    count="rounds",
    count_doc="rankings of all keys",
    ranks=Ranks.POWERS,
)
