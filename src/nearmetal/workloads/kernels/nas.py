"""What the kernels of the NAS Parallel Benchmarks (RNR-94-007, NAS-95-020) have in common as workloads."""

from __future__ import annotations

from ..parameter import AUTO, Choices, Kind, Parameter
from .contract import CLASSES, RATE, Kernel, Ranks, SliceWork


def nas_kernel(
    name: str, *, doc: str, count: str, count_doc: str, units: int = 1, ranks: Ranks = Ranks.ANY
) -> Kernel:
    """A benchmark of classes S to C.

    count: the key that sets how much of it a slice runs.
    count_doc: what that key counts, in words.
    units: units of nm-micro in one such count.
    """

    def asked(choices: Choices) -> int | None:
        number = choices.whole(count)
        return None if number is None else number * units

    return Kernel(
        name=name,
        doc=doc,
        parameters=(
            Parameter(
                name="class", kind=Kind.WORD, default="S", words=CLASSES, doc=f"size: {', '.join(CLASSES)}"
            ),
            Parameter(
                name=count,
                kind=Kind.WHOLE,
                default=AUTO,
                auto=True,
                most=1 << 20,
                doc=f"{count_doc} per slice; auto: as many as fill about 1 ms",
            ),
        ),
        keys=lambda choices, _: {"class": choices.word("class")},
        work=lambda choices, _: SliceWork(asked=asked(choices)),
        metrics=lambda _: (RATE,),
        ranks=ranks,
    )
