"""Random rings as the HPC Challenge benchmark defines them: latency and bandwidth while all ranks talk."""

from __future__ import annotations

from collections.abc import Mapping

from .kernel import Kernel, Setting
from .messages import (
    MPI_COST,
    auto_count,
    bytes_of,
    bytes_parameter,
    count_parameter,
    measure_parameter,
    message_metrics,
)
from .parameter import Choices, Kind, Parameter

WAYS = 2  # each ring is gone round by MPI_Sendrecv, and by non-blocking calls
MESSAGES = 4  # of a rank in a step: two sent, two received


def _keys(choices: Choices, setting: Setting) -> Mapping[str, str | int]:
    size, patterns = bytes_of(choices), int(choices.values["patterns"])
    steps = choices.whole("steps") or auto_count(
        size, WAYS * patterns * MESSAGES * MPI_COST[setting.transport].seconds(size)
    )
    return {"bytes": size, "patterns": patterns, "steps": steps}


KERNEL = Kernel(
    name="ring",
    doc="MPI between all ranks at once: random rings of HPC Challenge (8 B latency, 2 MB bandwidth per rank)",
    parameters=(
        bytes_parameter("size of a message", most=1 << 28),
        Parameter(
            name="patterns", kind=Kind.WHOLE, default=8, most=1 << 16, doc="rings of random order in a slice"
        ),
        count_parameter("steps", "times that each ring passes its messages on"),
        measure_parameter("half a step: a rank sends two messages in it"),
    ),
    keys=_keys,
    metrics=message_metrics,
    least_ranks=2,
)
