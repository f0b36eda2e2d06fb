"""The numbers of ranks that a benchmark's definition allows."""

from __future__ import annotations

from enum import StrEnum
from math import isqrt


class Ranks(StrEnum):
    """The allowed numbers of ranks. Each value is its description for users."""

    ANY = "any number of"
    POWERS = "1, 2, 4, 8, ..."
    SQUARES = "1, 4, 9, 16, ..."

    def allow(self, ranks: int) -> bool:
        if self is Ranks.POWERS:
            return ranks & (ranks - 1) == 0
        return self is Ranks.ANY or isqrt(ranks) ** 2 == ranks
