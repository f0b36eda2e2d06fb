"""nm-dgemm's answer: the best seconds of a matrix product by its order, on CPUs that computed at once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import RunError

_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class Peak:
    """nm-dgemm's answer.

    library: path of the BLAS that was loaded.
    core: what OpenBLAS calls its kernels, None of another.
    seconds: by order of the matrices, the best on each CPU.
    """

    library: str
    core: str | None
    cpus: tuple[int, ...]
    seconds: Mapping[int, tuple[float, ...]]

    def best(self) -> tuple[float, ...]:
        """FLOP/s of each CPU at the order that is best for all together: 2 n^3 operations a product."""
        rates = [tuple(2 * n**3 / s for s in each) for n, each in self.seconds.items()]
        return max(rates, key=sum)


def parse_peak(text: str) -> Peak:
    """Raises RunError for what is not a whole answer of nm-dgemm."""
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
