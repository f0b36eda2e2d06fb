"""LU: wavefronts across the ranks, small messages that wait for each other (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from ..model.study import Transport
from .kernel import Ranks
from .nas import nas_kernel

# An iteration of class A or larger is a slice by itself.
AUTO_ITERATIONS = {Transport.SHM: {"S": 60, "W": 6}, Transport.TCP: {"S": 12, "W": 4}}

KERNEL = nas_kernel(
    "lu",
    doc="wavefronts of small messages: NPB LU",
    count="iterations",
    count_doc="relaxations of the whole grid",
    auto=lambda size, setting: AUTO_ITERATIONS[setting.transport].get(size, 1),
    ranks=Ranks.POWERS,
)
