"""Random rings, as defined by the HPC Challenge benchmark: latency and bandwidth while all ranks
communicate."""

from __future__ import annotations

from ..parameter import Kind, Parameter
from .contract import Kernel, SliceWork, WorkKind
from .messages import bytes_of, bytes_parameter, count_parameter, measure_parameter, message_metrics

_KERNEL = Kernel(
    name="ring",
    kind=WorkKind.MPI,
    doc="MPI between all ranks at once: random rings of HPC Challenge (8 B latency, 2 MB bandwidth per rank)",
    parameters=(
        bytes_parameter("size of a message", most=1 << 28),
        Parameter("patterns", Kind.WHOLE, 8, "rings of random order in a time share", most=1 << 16),
        count_parameter("steps", "times that each ring passes its messages on"),
        measure_parameter("half a step: a rank sends two messages in it"),
    ),
    keys=lambda choices, _: {"bytes": bytes_of(choices), "patterns": int(choices.values["patterns"])},
    work=lambda choices, _: SliceWork(units=choices.whole("steps")),
    metrics=message_metrics,
    least_ranks=2,
)

KERNELS = (_KERNEL,)
