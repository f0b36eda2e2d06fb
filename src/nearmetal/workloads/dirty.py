"""Dirtier of memory at a set rate, for studies of migration."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.study import Better
from .kernel import Kernel, Metric, Setting, per_second
from .parameter import AUTO, Choices, Kind, Parameter

PAGE = 4096
PACED_SECONDS = 10e-3  # of a slice at a set rate
# Of a rank that writes as fast as it can: 2 to 10 ms, whether a cache holds the pages or not.
FAST_WRITES = {"word": 400_000, "page": 20_000}


def _keys(choices: Choices, setting: Setting) -> Mapping[str, str | int]:
    rate, write = choices.real("rate"), choices.word("write")
    if rate:
        auto = max(setting.ranks, round(rate * PACED_SECONDS / PAGE))
    else:
        auto = setting.ranks * FAST_WRITES[write]
    return {
        "bytes": int(choices.values["bytes"]),
        "rate": f"{rate:.12g}",
        "write": write,
        "writes": choices.whole("writes") or auto,
    }


KERNEL = Kernel(
    name="dirty",
    doc="memory dirtied at a set rate, for studies of migration",
    parameters=(
        Parameter(
            name="bytes", kind=Kind.BYTES, default=64 << 20, least=PAGE, doc="working set, over all ranks"
        ),
        Parameter(
            name="rate",
            kind=Kind.RATE,
            default=0,
            least=0,
            doc="4 KiB for each page written to, over all ranks; 0 B/s: as fast as it can",
        ),
        Parameter(
            name="write",
            kind=Kind.WORD,
            default="word",
            words=("word", "page"),
            doc="one word of each page, or all of it",
        ),
        Parameter(
            name="writes",
            kind=Kind.WHOLE,
            default=AUTO,
            auto=True,
            doc="pages written per slice, over all ranks; auto: a slice takes some 10 ms",
        ),
    ),
    keys=_keys,
    metrics=lambda _: (
        Metric(name="rate", unit="B/s", better=Better.HIGHER, part="bytes", value=per_second),
    ),
)
