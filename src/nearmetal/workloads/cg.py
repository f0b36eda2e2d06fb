"""CG: conjugate gradients, irregular memory and short messages (NAS benchmarks, RNR-94-007)."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.study import Transport
from .kernel import CLASSES, RATE, Kernel, Setting
from .parameter import AUTO, Choices, Kind, Parameter

# Outer iterations of a slice; an iteration of class W or larger is a slice by itself.
AUTO_ITERATIONS = {Transport.SHM: {"S": 6}, Transport.TCP: {"S": 4}}


def _keys(choices: Choices, setting: Setting) -> Mapping[str, str | int]:
    size = choices.word("class")
    auto = AUTO_ITERATIONS[setting.transport].get(size, 1)
    return {"class": size, "iterations": choices.whole("iterations") or auto}


KERNEL = Kernel(
    name="cg",
    doc="sparse linear algebra with short messages: NPB CG",
    parameters=(
        Parameter(name="class", kind=Kind.WORD, default="S", words=CLASSES, doc="size: S, W, A or B"),
        Parameter(
            name="iterations",
            kind=Kind.WHOLE,
            default=AUTO,
            auto=True,
            most=1 << 20,
            doc="outer iterations per slice, each of 25 inner ones",
        ),
    ),
    keys=_keys,
    metrics=lambda _: (RATE,),
    powers=True,
)
