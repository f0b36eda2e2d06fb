"""The NAS Parallel Benchmarks (RNR-94-007, NAS-95-020)."""

from __future__ import annotations

from ..parameter import AUTO, Choices, Kind, Parameter
from .contract import CLASSES, RATE, Kernel, Ranks, SliceWork, WorkKind

_TITLES = {"is": "NAS IS"}
"""Titles that differ from the name in capitals: in a sentence, IS alone would read like the verb."""


def nas_kernel(
    name: str,
    *,
    doc: str,
    count: str,
    count_doc: str,
    verification: tuple[float, ...],
    units: int = 1,
    ranks: Ranks = Ranks.ANY,
) -> Kernel:
    """Return the kernel of a NAS benchmark with classes S to C.

    count: name of the key for the amount of work in a slice, such as iterations.
    count_doc: help text of this key.
    units: units of nm-micro's work per value of `count`.
    verification: see Kernel.
    """

    def set_units(choices: Choices) -> int | None:
        number = choices.whole(count)
        return None if number is None else number * units

    return Kernel(
        name=name,
        title=_TITLES.get(name, name.upper()),
        kind=WorkKind.COMPUTE,
        doc=doc,
        parameters=(
            Parameter("class", Kind.WORD, "S", f"size: {', '.join(CLASSES)}", words=CLASSES),
            Parameter(
                count,
                Kind.WHOLE,
                AUTO,
                f"{count_doc} per time share; auto: as many as fill about 1 ms",
                most=1 << 20,
            ),
        ),
        keys=lambda choices, _: {"class": choices.word("class")},
        work=lambda choices, _: SliceWork(units=set_units(choices)),
        metrics=lambda _: (RATE,),
        ranks=ranks,
        verification=verification,
    )


KERNELS = (
    nas_kernel(
        "ep",
        doc="arithmetic without communication: NPB EP",
        count="batches",
        verification=(0.02, 0.04, 0.3, 1.2, 5.0),
        count_doc="batches of 65536 pairs per rank",
        units=64,  # blocks of 1024 pairs
    ),
    nas_kernel(
        "cg",
        doc="sparse linear algebra with short messages: NPB CG",
        count="iterations",
        verification=(0.02, 0.1, 0.3, 10.0, 30.0),
        count_doc="outer iterations, each of 25 inner ones,",
        ranks=Ranks.POWERS,
    ),
    nas_kernel(
        "is",
        doc="integer sort with all-to-all messages: NPB IS",
        count="rounds",
        verification=(0.02, 0.1, 0.6, 2.5, 10.0),
        count_doc="rankings of all keys",
        ranks=Ranks.POWERS,
    ),
    nas_kernel(
        "mg",
        doc="multigrid with halo exchange: NPB MG",
        count="iterations",
        verification=(0.02, 0.05, 0.4, 2.0, 16.0),
        count_doc="V-cycles",
        ranks=Ranks.POWERS,
    ),
    nas_kernel(
        "ft",
        doc="Fourier transforms in three dimensions with all-to-all messages: NPB FT",
        count="iterations",
        verification=(0.02, 0.15, 2.0, 25.0, 110.0),
        count_doc="steps, each of an inverse transform,",
        ranks=Ranks.POWERS,
    ),
    nas_kernel(
        "lu",
        doc="wavefronts of small messages: NPB LU",
        count="iterations",
        verification=(0.03, 0.5, 3.0, 14.0, 55.0),
        count_doc="relaxations of the whole grid",
        ranks=Ranks.POWERS,
    ),
    nas_kernel(
        "bt",
        doc="block-tridiagonal flow solver: NPB BT",
        count="iterations",
        verification=(0.03, 0.5, 4.0, 18.0, 75.0),
        count_doc="time steps",
        ranks=Ranks.SQUARES,
    ),
)
