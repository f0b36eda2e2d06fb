"""A kernel that dirties memory at a set rate, for studies of migration."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.study import Better
from ..parameter import AUTO, Choices, Kind, Parameter
from .contract import Kernel, KernelMetric, KernelSetting, SliceWork, WorkKind

PAGE = 4096
PACED_SECONDS = 10e-3
"""Duration of a slice at a set rate, in seconds. It determines the number of pages in the slice."""


def _keys(choices: Choices, _: KernelSetting) -> Mapping[str, str | int]:
    return {
        "bytes": int(choices.values["bytes"]),
        "rate": f"{choices.real('rate'):.12g}",
        "write": choices.word("write"),
    }


def _work(choices: Choices, setting: KernelSetting) -> SliceWork:
    rate, writes = choices.real("rate"), choices.whole("writes")
    if writes is None and not rate:
        return SliceWork()
    pages = writes or rate * PACED_SECONDS / PAGE
    return SliceWork(units=max(1, round(pages / setting.ranks)))


_KERNEL = Kernel(
    name="dirty",
    kind=WorkKind.MEMORY,
    doc="memory dirtied at a set rate, for studies of migration",
    parameters=(
        Parameter("bytes", Kind.BYTES, 64 << 20, "working set, over all ranks", least=PAGE),
        Parameter(
            "rate",
            Kind.RATE,
            0,
            "4 KiB for each page written to, over all ranks; 0 B/s: as fast as it can",
            least=0,
        ),
        Parameter("write", Kind.WORD, "word", "one word of each page, or all of it", words=("word", "page")),
        Parameter(
            "writes",
            Kind.WHOLE,
            AUTO,
            "pages written per time share, over all ranks; auto: as many as fill 1 ms, at a set rate 10 ms",
        ),
    ),
    keys=_keys,
    work=_work,
    metrics=lambda _: (KernelMetric(name="rate", unit="B/s", better=Better.HIGHER, part="bytes"),),
)

KERNELS = (_KERNEL,)
