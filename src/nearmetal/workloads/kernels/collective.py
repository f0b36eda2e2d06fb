"""What the kernels that time one MPI collective have in common."""

from __future__ import annotations

from ...model.study import Better
from ..parameter import Parameter
from .contract import Kernel, Metric, SliceWork, seconds_each
from .messages import bytes_of, count_parameter

TIME = Metric(name="time", unit="s", better=Better.LOWER, part="calls", value=seconds_each)


def collective_kernel(name: str, *, doc: str, size: Parameter | None = None) -> Kernel:
    """size: the parameter `bytes`, if its messages carry any."""
    return Kernel(
        name=name,
        doc=doc,
        parameters=(*((size,) if size else ()), count_parameter("calls", "calls per slice")),
        keys=lambda choices, _: {"bytes": bytes_of(choices)} if size else {},
        work=lambda choices, _: SliceWork(asked=choices.whole("calls")),
        metrics=lambda _: (TIME,),
        least_ranks=2,
    )
