"""Parse the output of nm-dgemm: the best times of matrix products on CPUs that compute at the same time."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..errors import RunError

_SHOWN = 200


class PeakTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The best times of one matrix product.

    n: order of the matrices.
    seconds: best time on each CPU.
    """

    n: Annotated[int, msgspec.Meta(gt=0)]
    seconds: tuple[Annotated[float, msgspec.Meta(gt=0)], ...]


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The output of nm-dgemm.

    library: path of the BLAS library that was loaded.
    core: OpenBLAS's name for the kernels it uses; None for another library.
    cpus: numbers of the CPUs, which computed at the same time.
    sizes: results for each order of the matrices.
    """

    library: str
    core: str | None
    cpus: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]
    sizes: Annotated[tuple[PeakTimes, ...], msgspec.Meta(min_length=1)]

    def best(self) -> tuple[float, ...]:
        """Return the FLOP/s of each CPU, for the order of the matrices with the highest sum over CPUs. A
        product of two matrices of order n counts as 2 n^3 operations."""
        return max((tuple(2 * size.n**3 / s for s in size.seconds) for size in self.sizes), key=sum)


def parse_peak(text: str) -> Peak:
    """Parse the output of nm-dgemm.

    Raises RunError if it is not complete and valid.
    """
    try:
        found = msgspec.json.decode(text, type=Peak)
    except (ValueError, RecursionError) as e:
        raise RunError(f"unreadable answer: {e}: {text[:_SHOWN]!r}", where="nm-dgemm") from e
    if any(len(size.seconds) != len(found.cpus) for size in found.sizes):
        raise RunError(f"no answer: {text[:_SHOWN]!r}", where="nm-dgemm")
    return found
