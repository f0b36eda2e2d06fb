"""Describes the kernel of broadcast.c. In the source: src/nearmetal/workloads/kernels/broadcast.py."""

from nearmetal.model.study import Better
from nearmetal.workloads.kernels.contract import Kernel, KernelMetric, SliceWork, WorkKind, seconds_each
from nearmetal.workloads.kernels.messages import count_parameter

_BROADCAST = Kernel(
    name="broadcast",
    kind=WorkKind.MPI,
    doc="MPI collective: the time of one broadcast of 8 bytes",
    parameters=(count_parameter("calls", "calls per time share"),),
    keys=lambda choices, _: {},
    work=lambda choices, _: SliceWork(units=choices.whole("calls")),
    metrics=lambda _: (
        KernelMetric(name="broadcast", unit="s", better=Better.LOWER, part="calls", value=seconds_each),
    ),
    least_ranks=2,
)

KERNELS = (_BROADCAST,)
