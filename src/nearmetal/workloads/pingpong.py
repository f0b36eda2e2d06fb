"""Ping-pong: one message to and fro between ranks 0 and 1, latency or bandwidth."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.study import Better, Transport
from .kernel import Kernel, Metric, Setting, seconds_each
from .parameter import AUTO, Choices, Kind, Parameter

SLICE_SECONDS, LARGE_SECONDS = 3e-3, 5e-3
# Rough cost of a message: seconds, and bytes per second. Only the length of a slice hangs on it.
COST = {Transport.SHM: (0.35e-6, 10e9), Transport.TCP: (5e-6, 2.5e9)}
LARGE = 64 << 10  # from here on time goes by bytes


def auto_trips(transport: Transport, size: int) -> int:
    """Round trips of about so many seconds, to one digit; the same for every arm of a transport."""
    latency, bandwidth = COST[transport]
    trips = (SLICE_SECONDS if size < LARGE else LARGE_SECONDS) / (2 * (latency + size / bandwidth))
    digit = 10 ** (len(str(int(trips))) - 1)
    whole: int = round(trips / digit) * digit
    return max(1, whole)


def _bytes(choices: Choices) -> int:
    return int(choices.values["bytes"])


def _keys(choices: Choices, setting: Setting) -> Mapping[str, str | int]:
    size = _bytes(choices)
    return {"bytes": size, "trips": choices.whole("trips") or auto_trips(setting.transport, size)}


def _metrics(choices: Choices) -> tuple[Metric, ...]:
    size, measure = _bytes(choices), choices.word("measure")
    latency = measure == "latency" or (measure == AUTO and size < LARGE)
    if latency:
        return (Metric(name="latency", unit="s", better=Better.LOWER, part="messages", value=seconds_each),)
    return (
        Metric(
            name="bandwidth",
            unit="B/s",
            better=Better.HIGHER,
            part="messages",
            value=lambda seconds, messages: size * messages / seconds,
        ),
    )


KERNEL = Kernel(
    name="pingpong",
    doc="MPI point to point: latency of short messages, bandwidth of long ones",
    parameters=(
        Parameter(name="bytes", kind=Kind.BYTES, default=8, least=0, most=1 << 30, doc="size of a message"),
        Parameter(
            name="trips",
            kind=Kind.WHOLE,
            default=AUTO,
            auto=True,
            most=1 << 30,
            doc="round trips per slice; auto: a slice takes some 3 to 5 ms, by transport and size",
        ),
        Parameter(
            name="measure",
            kind=Kind.WORD,
            default=AUTO,
            auto=True,
            words=("latency", "bandwidth"),
            doc="latency (half a round trip) or bandwidth; auto: latency below 64 KiB",
        ),
    ),
    keys=_keys,
    metrics=_metrics,
    least_ranks=2,
)
