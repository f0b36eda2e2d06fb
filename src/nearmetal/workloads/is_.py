"""IS: ranks of small integer keys, all-to-all exchange and random access (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from collections.abc import Mapping

from .kernel import CLASSES, RATE, Kernel, Setting
from .parameter import AUTO, Choices, Kind, Parameter

AUTO_ROUNDS = {"S": 24, "W": 2}  # larger classes: one round is a slice


def _keys(choices: Choices, _: Setting) -> Mapping[str, str | int]:
    size = choices.word("class")
    return {"class": size, "rounds": choices.whole("rounds") or AUTO_ROUNDS.get(size, 1)}


KERNEL = Kernel(
    name="is",
    doc="integer sort with all-to-all messages: NPB IS",
    parameters=(
        Parameter(name="class", kind=Kind.WORD, default="S", words=CLASSES, doc="size: S, W, A or B"),
        Parameter(
            name="rounds",
            kind=Kind.WHOLE,
            default=AUTO,
            auto=True,
            most=1 << 20,
            doc="rankings of all keys per slice",
        ),
    ),
    keys=_keys,
    metrics=lambda _: (RATE,),
    powers=True,
)
