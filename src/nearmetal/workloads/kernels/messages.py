"""Kernels that time MPI messages, and the metrics and parameters of all kernels that time messages."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.study import Better
from ..parameter import AUTO, Choices, Kind, Parameter
from .contract import Kernel, KernelMetric, KernelSetting, SliceWork, WorkKind

LARGE = 64 << 10
"""Message size in bytes from which the size dominates the time: bandwidth is reported instead of latency."""


def bytes_of(choices: Choices) -> int:
    return int(choices.values["bytes"])


def message_metrics(choices: Choices, *, unusable: str = KernelMetric.unusable) -> tuple[KernelMetric, ...]:
    """Return the metric of a kernel that times messages: latency or bandwidth, as the workload chooses.

    unusable: see KernelMetric.
    """
    size, measure = bytes_of(choices), choices.word("measure")
    latency = measure == "latency" or (measure == AUTO and size < LARGE)
    return (
        KernelMetric(
            name="latency" if latency else "bandwidth",
            unit="s" if latency else "B/s",
            better=Better.LOWER if latency else Better.HIGHER,
            part="messages",
            unit_work=1.0 if latency else float(size),
            unusable=unusable,
        ),
    )


def bytes_parameter(doc: str, *, least: int = 0, most: int = 1 << 30, multiple: int = 1) -> Parameter:
    return Parameter("bytes", Kind.BYTES, 8, doc, least=least, most=most, multiple=multiple)


def count_parameter(name: str, doc: str) -> Parameter:
    """Return the parameter that sets the number of operations in a slice."""
    return Parameter(name, Kind.WHOLE, AUTO, f"{doc}; auto: as many as fill about 1 ms", most=1 << 30)


def measure_parameter(latency: str) -> Parameter:
    return Parameter(
        "measure",
        Kind.WORD,
        AUTO,
        f"latency ({latency}) or bandwidth; auto: latency below 64 KiB",
        words=("latency", "bandwidth"),
    )


def pingpong_kernel(
    name: str,
    *,
    kind: WorkKind,
    doc: str,
    least_bytes: int = 0,
    most_bytes: int = 1 << 30,
    more: tuple[Parameter, ...] = (),
    unusable: str = KernelMetric.unusable,
) -> Kernel:
    """Return a ping-pong kernel over one transport.

    more: further parameters, all with a fixed set of words.
    unusable: see KernelMetric.
    """

    def keys(choices: Choices, _: KernelSetting) -> Mapping[str, str | int]:
        return {"bytes": bytes_of(choices), **{p.name: choices.word(p.name) for p in more}}

    return Kernel(
        name=name,
        kind=kind,
        doc=doc,
        parameters=(
            bytes_parameter("size of a message", least=least_bytes, most=most_bytes),
            count_parameter("trips", "round trips per time share"),
            measure_parameter("half a round trip"),
            *more,
        ),
        keys=keys,
        work=lambda choices, _: SliceWork(units=choices.whole("trips")),
        metrics=lambda choices: message_metrics(choices, unusable=unusable),
        least_ranks=2,
    )


# One message from rank 0 to rank 1 and back: latency or bandwidth.
_PINGPONG = pingpong_kernel(
    "pingpong", kind=WorkKind.MPI, doc="MPI point to point: latency of short messages, bandwidth of long ones"
)

# Random rings, as defined by the HPC Challenge benchmark: all ranks communicate at once.
_RING = Kernel(
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

KERNELS = (_PINGPONG, _RING)
