"""EP: pairs of Gaussian deviates, arithmetic without communication (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from collections.abc import Mapping

from .kernel import CLASSES, RATE, Kernel, Setting
from .parameter import AUTO, Choices, Kind, Parameter

AUTO_BATCHES = 16  # 0.25 ms each


def _keys(choices: Choices, _: Setting) -> Mapping[str, str | int]:
    return {"class": choices.word("class"), "batches": choices.whole("batches") or AUTO_BATCHES}


KERNEL = Kernel(
    name="ep",
    doc="arithmetic without communication: NPB EP",
    parameters=(
        Parameter(name="class", kind=Kind.WORD, default="S", words=CLASSES, doc="size: S, W, A or B"),
        Parameter(
            name="batches",
            kind=Kind.WHOLE,
            default=AUTO,
            auto=True,
            most=1 << 20,
            doc="batches of 65536 pairs per rank and slice",
        ),
    ),
    keys=_keys,
    metrics=lambda _: (RATE,),
)
