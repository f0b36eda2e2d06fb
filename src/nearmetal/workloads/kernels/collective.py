"""Kernels that time one MPI collective."""

from __future__ import annotations

from ...model.study import Better
from ..parameter import Parameter
from .contract import Kernel, KernelMetric, SliceWork, WorkKind
from .messages import bytes_of, bytes_parameter, count_parameter

TIME = KernelMetric(name="time", unit="s", better=Better.LOWER, part="calls")


def collective_kernel(name: str, *, doc: str, size: Parameter | None = None) -> Kernel:
    """Return a kernel that times one MPI collective.

    size: the parameter `bytes`, if its messages carry data.
    """
    return Kernel(
        name=name,
        kind=WorkKind.MPI,
        doc=doc,
        parameters=(*((size,) if size else ()), count_parameter("calls", "calls per time share")),
        keys=lambda choices, _: {"bytes": bytes_of(choices)} if size else {},
        work=lambda choices, _: SliceWork(units=choices.whole("calls")),
        metrics=lambda _: (TIME,),
        least_ranks=2,
    )


KERNELS = (
    collective_kernel(
        "alltoall",
        doc="MPI collective: the time of one alltoall",
        size=bytes_parameter("from each rank to each rank", least=1, most=1 << 26),
    ),
    collective_kernel(
        "allreduce",
        doc="MPI collective: the time of one allreduce, a sum of doubles",
        size=bytes_parameter("the vector's, 8 for each double", least=8, most=1 << 28, multiple=8),
    ),
    collective_kernel("barrier", doc="MPI collective: the time of one barrier"),
)
