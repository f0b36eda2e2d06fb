"""STREAM: sustained memory bandwidth of Copy, Scale, Add and Triad (McCalpin 1995)."""

from __future__ import annotations

from collections.abc import Mapping

from ...model.study import Better
from ..parameter import AUTO, Choices, Kind, Parameter
from .contract import Kernel, KernelMetric, KernelSetting, SliceWork, WorkKind

BYTES_PER_ELEMENT = 24  # three arrays of doubles
CACHED_SWEEPS = 2
"""Minimum number of sweeps in a slice if the arrays fit into a cache. Before a slice they are read once,
untimed, which takes up to half as long as one sweep by all operations."""
LEAST_ELEMENTS = 1024
"""Number of elements in one unit of work, if a slice processes a part of large arrays."""
OPERATIONS = ("copy", "scale", "add", "triad")


def auto_elements(llc_bytes: int, turns: int = 1) -> int:
    """Return the number of elements per array for `elements: auto`, rounded up to a tenth of a million.

    The arrays together have at least 4 times the size of the last-level caches (STREAM's own rule). If
    instances take turns, the arrays of all of them count together, since all pass through the cache before
    an element is used again. Larger arrays would cost time: they are created again in every round, which took
    half of a round on a machine with a cache of 480 MiB.

    llc_bytes: total size of the last-level caches.
    turns: number of instances that take turns.
    """
    step = 100_000
    return -(-4 * llc_bytes // (turns * BYTES_PER_ELEMENT * step)) * step or step


def _elements(choices: Choices, setting: KernelSetting) -> int:
    return choices.whole("elements") or auto_elements(setting.llc_bytes, setting.turns)


def _keys(choices: Choices, setting: KernelSetting) -> Mapping[str, str | int]:
    return {"elements": _elements(choices, setting)}


def _work(choices: Choices, setting: KernelSetting) -> SliceWork:
    """Return the work of a slice.

    Arrays that fit into the last-level cache are processed as a whole in every slice. Of larger arrays, a
    slice processes a part, and the next slice the next part. The part is small enough that no operation finds
    data in the cache that another operation of the slice has left there or, if only one operation runs, that
    the previous slice has left there.
    """
    elements = _elements(choices, setting)
    chunks, sweeps = choices.whole("chunks"), choices.whole("sweeps")
    if chunks or sweeps:
        return SliceWork(units=max(1, elements // (chunks or 1)) * (sweeps or 1))
    cached = BYTES_PER_ELEMENT * elements <= setting.llc_bytes
    if cached:
        return SliceWork(least=CACHED_SWEEPS * elements)
    return SliceWork(least=LEAST_ELEMENTS, most=elements // (2 if setting.alone else len(OPERATIONS)))


def _metrics(_: Choices) -> tuple[KernelMetric, ...]:
    return tuple(KernelMetric(name=name, unit="B/s", better=Better.HIGHER, part=name) for name in OPERATIONS)


_KERNEL = Kernel(
    name="stream",
    kind=WorkKind.MEMORY,
    doc="memory bandwidth: STREAM Copy, Scale, Add, Triad",
    parameters=(
        Parameter(
            "elements",
            Kind.WHOLE,
            2_000_000,
            "doubles per array, over all ranks; auto: the arrays of all instances that take turns "
            "are 4 x the last-level cache",
            auto=True,
            least=1000,
        ),
        Parameter(
            "chunks",
            Kind.WHOLE,
            AUTO,
            "a time share sweeps one of so many parts of the arrays; auto: as much as fills about 1 ms",
            most=1 << 20,
        ),
        Parameter(
            "sweeps",
            Kind.WHOLE,
            AUTO,
            "how many such parts, or whole arrays, a time share sweeps; auto: as above",
            most=1 << 20,
        ),
    ),
    keys=_keys,
    work=_work,
    metrics=_metrics,
    alone=True,
)

KERNELS = (_KERNEL,)
