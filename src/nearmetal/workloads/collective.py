"""What the kernels that time one MPI collective have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..model.study import Better
from .kernel import Kernel, Metric, Setting, seconds_each
from .messages import MPI_COST, Cost, auto_count, bytes_of, count_parameter
from .parameter import Choices, Parameter

TIME = Metric(name="time", unit="s", better=Better.LOWER, part="calls", value=seconds_each)


def rounds(ranks: int) -> int:
    """Steps in which a message can reach all ranks, their number doubling in each."""
    return (ranks - 1).bit_length()


def collective_kernel(
    name: str, *, doc: str, seconds: Callable[[Cost, int, int], float], size: Parameter | None = None
) -> Kernel:
    """size: the parameter `bytes`, where messages carry any; seconds: roughly those of a call, from what a
    message costs, ranks and bytes."""

    def keys(choices: Choices, setting: Setting) -> Mapping[str, str | int]:
        moved = bytes_of(choices) if size else 0
        cost = MPI_COST[setting.transport]
        calls = choices.whole("calls") or auto_count(moved, seconds(cost, setting.ranks, moved))
        return {**({"bytes": moved} if size else {}), "calls": calls}

    return Kernel(
        name=name,
        doc=doc,
        parameters=(*((size,) if size else ()), count_parameter("calls", "calls per slice")),
        keys=keys,
        metrics=lambda _: (TIME,),
        least_ranks=2,
    )
