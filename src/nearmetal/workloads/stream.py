"""STREAM: sustained memory bandwidth by Copy, Scale, Add, Triad (McCalpin 1995)."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.study import Better
from .kernel import Kernel, Metric, Setting, per_second
from .parameter import AUTO, Choices, Kind, Parameter

# Elements that one slice sweeps in each operation: of a part of large arrays, 3 M x 80 B for the four take
# 6 to 9 ms at 25 to 40 GB/s. Arrays that a cache may hold are swept a little more, after an untimed sweep,
# and no more than that: noise hardly depends on a slice's length (1, 2, 4, 8 sweeps of 2 M elements: medians
# of 32 slices spread by 2.2, 2.1, 2.4, 2.0 % over 29 blocks, EPYC), so many short ones see more.
SLICE_ELEMENTS, CACHED_ELEMENTS = 3_000_000, 4_000_000
BYTES_PER_ELEMENT = 24  # three arrays of doubles
OPERATIONS = 4


def auto_elements(llc_bytes: int) -> int:
    """Elements per array whose three arrays are together at least 4 x the last-level cache (STREAM's own
    rule), rounded up to a tenth of a million."""
    step = 100_000
    return -(-4 * llc_bytes // (BYTES_PER_ELEMENT * step)) * step or step


def _keys(choices: Choices, setting: Setting) -> Mapping[str, str | int]:
    elements = choices.whole("elements") or auto_elements(setting.llc_bytes)
    # A multiple of 4: the four operations then stand exactly a quarter of the arrays apart.
    needed = 1 if elements <= SLICE_ELEMENTS else OPERATIONS * -(-elements // (OPERATIONS * SLICE_ELEMENTS))
    chunks = choices.whole("chunks") or needed
    sweeps = choices.whole("sweeps") or max(
        1, (CACHED_ELEMENTS if chunks == 1 else SLICE_ELEMENTS * chunks) // elements
    )
    return {"elements": elements, "chunks": chunks, "sweeps": sweeps}


def _metrics(_: Choices) -> tuple[Metric, ...]:
    return tuple(
        Metric(name=name, unit="B/s", better=Better.HIGHER, part=name, value=per_second)
        for name in ("copy", "scale", "add", "triad")
    )


KERNEL = Kernel(
    name="stream",
    doc="memory bandwidth: STREAM Copy, Scale, Add, Triad",
    parameters=(
        Parameter(
            name="elements",
            kind=Kind.WHOLE,
            default=2_000_000,
            auto=True,
            least=1000,
            doc="doubles per array, over all ranks; auto: the three arrays are 4 x the last-level cache",
        ),
        Parameter(
            name="chunks",
            kind=Kind.WHOLE,
            default=AUTO,
            auto=True,
            most=1 << 20,
            doc="a slice sweeps one of so many parts of the arrays; auto: a slice takes some 10 ms",
        ),
        Parameter(
            name="sweeps",
            kind=Kind.WHOLE,
            default=AUTO,
            auto=True,
            most=1 << 20,
            doc="how often a slice sweeps its part; auto: as above",
        ),
    ),
    keys=_keys,
    metrics=_metrics,
    alone=True,
)
