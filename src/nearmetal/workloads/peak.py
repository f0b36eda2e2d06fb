"""Parse the output of nm-dgemm: the best times of matrix products on CPUs that compute at the same time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import RunError

_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The output of nm-dgemm.

    library: path of the BLAS library that was loaded.
    core: OpenBLAS's name for the kernels it uses; None for another library.
    cpus: CPUs that computed at the same time.
    seconds: best time on each CPU, by order of the matrices.
    """

    library: str
    core: str | None
    cpus: tuple[int, ...]
    seconds: Mapping[int, tuple[float, ...]]

    def best(self) -> tuple[float, ...]:
        """Return the FLOP/s of each CPU for the order with the highest total. A product has 2 n^3
        operations."""
        rates = [tuple(2 * n**3 / s for s in each) for n, each in self.seconds.items()]
        return max(rates, key=sum)


def parse_peak(text: str) -> Peak:
    """Parse the output of nm-dgemm.

    Raises RunError if it is not complete and valid.
    """
    try:
        item = json.loads(text)
        found = Peak(
            library=str(item["library"]),
            core=None if item["core"] is None else str(item["core"]),
            cpus=tuple(int(cpu) for cpu in item["cpus"]),
            seconds={int(size["n"]): tuple(map(float, size["seconds"])) for size in item["sizes"]},
        )
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as e:
        raise RunError(f"unreadable answer of nm-dgemm ({e}): {text[:_SHOWN]!r}") from e
    whole = all(
        n > 0 and len(each) == len(found.cpus) and all(0 < s < math.inf for s in each)
        for n, each in found.seconds.items()
    )
    if not (whole and found.seconds and found.cpus):
        raise RunError(f"no answer of nm-dgemm: {text[:_SHOWN]!r}")
    return found
