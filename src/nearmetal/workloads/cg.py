"""CG: conjugate gradients, irregular memory and short messages (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from ..model.study import Transport
from .kernel import Ranks
from .nas import nas_kernel

# An iteration of class W or larger is a slice by itself.
AUTO_ITERATIONS = {Transport.SHM: {"S": 9}, Transport.TCP: {"S": 5}}

KERNEL = nas_kernel(
    "cg",
    doc="sparse linear algebra with short messages: NPB CG",
    count="iterations",
    count_doc="outer iterations, each of 25 inner ones,",
    auto=lambda size, setting: AUTO_ITERATIONS[setting.transport].get(size, 1),
    ranks=Ranks.POWERS,
)
