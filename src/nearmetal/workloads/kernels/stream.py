"""STREAM: sustained memory bandwidth by Copy, Scale, Add, Triad (McCalpin 1995)."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.study import Better
from ..parameter import AUTO, Choices, Kind, Parameter
from .contract import Kernel, KernelSetting, Metric, SliceWork, WorkKind, per_second

BYTES_PER_ELEMENT = 24  # three arrays of doubles
LEAST_ELEMENTS = 1024
"""Elements by which the part of large arrays that a slice sweeps is counted."""
OPERATIONS = ("copy", "scale", "add", "triad")


def auto_elements(llc_bytes: int) -> int:
    """Elements per array whose three arrays are together at least 4 x the last-level cache (STREAM's own
    rule), rounded up to a tenth of a million."""
    step = 100_000
    return -(-4 * llc_bytes // (BYTES_PER_ELEMENT * step)) * step or step


def _elements(choices: Choices, setting: KernelSetting) -> int:
    return choices.whole("elements") or auto_elements(setting.llc_bytes)


def _keys(choices: Choices, setting: KernelSetting) -> Mapping[str, str | int]:
    return {"elements": _elements(choices, setting)}


def _work(choices: Choices, setting: KernelSetting) -> SliceWork:
    """Arrays that the last-level cache may hold are swept whole: a part of them would be found in it. Of
    larger arrays a slice sweeps a part, which moves on from slice to slice; at most as much
    as no operation of the same slice has left in the cache, or a lone operation in the slice before."""
    elements = _elements(choices, setting)
    chunks, sweeps = choices.whole("chunks"), choices.whole("sweeps")
    if chunks or sweeps:
        return SliceWork(asked=max(1, elements // (chunks or 1)) * (sweeps or 1))
    cached = BYTES_PER_ELEMENT * elements <= setting.llc_bytes
    if cached:
        return SliceWork(least=elements)
    return SliceWork(least=LEAST_ELEMENTS, most=elements // (2 if setting.alone else len(OPERATIONS)))


def _metrics(_: Choices) -> tuple[Metric, ...]:
    return tuple(
        Metric(name=name, unit="B/s", better=Better.HIGHER, part=name, value=per_second)
        for name in OPERATIONS
    )


_KERNEL = Kernel(
    name="stream",
    kind=WorkKind.MEMORY,
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
            doc="a time share sweeps one of so many parts of the arrays; auto: as much as fills about 1 ms",
        ),
        Parameter(
            name="sweeps",
            kind=Kind.WHOLE,
            default=AUTO,
            auto=True,
            most=1 << 20,
            doc="how many such parts, or whole arrays, a time share sweeps; auto: as above",
        ),
    ),
    keys=_keys,
    work=_work,
    metrics=_metrics,
    alone=True,
)

KERNELS = (_KERNEL,)
