"""What the kernels that time messages have in common: how many make a slice, and what is taken from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..model.study import Better, Transport
from .kernel import Kernel, Metric, Setting, per_second, seconds_each
from .parameter import AUTO, Choices, Kind, Parameter

SLICE_SECONDS, LARGE_SECONDS = 3e-3, 5e-3
LARGE = 64 << 10  # from here on time goes by bytes


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Roughly what a message takes: seconds, and bytes per second. Only the length of a slice hangs on it."""

    latency: float
    bandwidth: float

    def seconds(self, size: int) -> float:
        return self.latency + size / self.bandwidth


MPI_COST = {
    Transport.SHM: Cost(latency=0.35e-6, bandwidth=10e9),
    Transport.TCP: Cost(latency=5e-6, bandwidth=2.5e9),
}


def auto_count(size: int, seconds: float) -> int:
    """How many things of so many seconds, which move messages of this size, make a slice; to one digit."""
    count = (SLICE_SECONDS if size < LARGE else LARGE_SECONDS) / seconds
    digit = 10 ** (len(str(int(count))) - 1)
    whole: int = round(count / digit) * digit
    return max(1, whole)


def auto_trips(cost: Cost, size: int) -> int:
    """Round trips per slice."""
    return auto_count(size, 2 * cost.seconds(size))


def bytes_of(choices: Choices) -> int:
    return int(choices.values["bytes"])


def message_metrics(choices: Choices, *, unusable: str = Metric.unusable) -> tuple[Metric, ...]:
    """Latency or bandwidth, from a part whose work is messages."""
    size, measure = bytes_of(choices), choices.word("measure")
    latency = measure == "latency" or (measure == AUTO and size < LARGE)
    return (
        Metric(
            name="latency" if latency else "bandwidth",
            unit="s" if latency else "B/s",
            better=Better.LOWER if latency else Better.HIGHER,
            part="messages",
            value=seconds_each if latency else lambda seconds, work: size * per_second(seconds, work),
            unusable=unusable,
        ),
    )


def bytes_parameter(doc: str, *, least: int = 0, most: int = 1 << 30, multiple: int = 1) -> Parameter:
    return Parameter(
        name="bytes", kind=Kind.BYTES, default=8, least=least, most=most, multiple=multiple, doc=doc
    )


def count_parameter(name: str, doc: str) -> Parameter:
    """A number of things in a slice, which is chosen by transport and size where it is left open."""
    about = "auto: a slice takes some 3 to 5 ms, by transport and size"
    return Parameter(name=name, kind=Kind.WHOLE, default=AUTO, auto=True, most=1 << 30, doc=f"{doc}; {about}")


def measure_parameter(latency: str) -> Parameter:
    return Parameter(
        name="measure",
        kind=Kind.WORD,
        default=AUTO,
        auto=True,
        words=("latency", "bandwidth"),
        doc=f"latency ({latency}) or bandwidth; auto: latency below 64 KiB",
    )


def pingpong_kernel(
    name: str,
    *,
    doc: str,
    cost: Callable[[Choices, Setting], Cost],
    least_bytes: int = 0,
    most_bytes: int = 1 << 30,
    more: tuple[Parameter, ...] = (),
    unusable: str = Metric.unusable,
) -> Kernel:
    """Ping-pong over one carrier. more: further keys, all of them words; unusable: see Metric."""

    def keys(choices: Choices, setting: Setting) -> Mapping[str, str | int]:
        size = bytes_of(choices)
        trips = choices.whole("trips") or auto_trips(cost(choices, setting), size)
        return {"bytes": size, "trips": trips, **{p.name: choices.word(p.name) for p in more}}

    return Kernel(
        name=name,
        doc=doc,
        parameters=(
            bytes_parameter("size of a message", least=least_bytes, most=most_bytes),
            count_parameter("trips", "round trips per slice"),
            measure_parameter("half a round trip"),
            *more,
        ),
        keys=keys,
        metrics=lambda choices: message_metrics(choices, unusable=unusable),
        least_ranks=2,
    )
