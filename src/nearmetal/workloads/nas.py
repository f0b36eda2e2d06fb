"""What the kernels of the NAS Parallel Benchmarks (RNR-94-007, NAS-95-020) have in common as workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .kernel import CLASSES, RATE, Kernel, Ranks, Setting
from .parameter import AUTO, Choices, Kind, Parameter

Auto = Callable[[str, Setting], int]


def nas_kernel(
    name: str, *, doc: str, count: str, count_doc: str, auto: Auto, ranks: Ranks = Ranks.ANY
) -> Kernel:
    """A benchmark of classes S to C. count: the key that says how much of it a slice runs, count_doc: of
    what; auto: (class, setting) -> that number where the user leaves it open."""

    def keys(choices: Choices, setting: Setting) -> Mapping[str, str | int]:
        size = choices.word("class")
        return {"class": size, count: choices.whole(count) or auto(size, setting)}

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
                doc=f"{count_doc} per slice",
            ),
        ),
        keys=keys,
        metrics=lambda _: (RATE,),
        ranks=ranks,
    )
