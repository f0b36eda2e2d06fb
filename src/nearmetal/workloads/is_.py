"""IS: ranks of small integer keys, all-to-all exchange and random access (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from .kernel import Ranks
from .nas import nas_kernel

AUTO_ROUNDS = {"S": 40, "W": 3}  # larger classes: one round is a slice

KERNEL = nas_kernel(
    "is",
    doc="integer sort with all-to-all messages: NPB IS",
    count="rounds",
    count_doc="rankings of all keys",
    auto=lambda size, _setting: AUTO_ROUNDS.get(size, 1),
    ranks=Ranks.POWERS,
)
