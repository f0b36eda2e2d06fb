"""Workloads that are built-in kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isqrt
from typing import ClassVar

from ..keys import NAME, ListOf, key, key_or, one_of
from .base import KERNELS, WorkloadBase


class Pages(StrEnum):
    """Page size that a kernel requests: madvise(MADV_HUGEPAGE), or 4 KiB by MADV_NOHUGEPAGE."""

    HUGE = "huge"
    SMALL = "4k"


class Ranks(StrEnum):
    """The numbers of ranks that a benchmark's definition allows. Each value is its description for users."""

    ANY = "any number of"
    POWERS = "1, 2, 4, 8, ..."
    SQUARES = "1, 4, 9, 16, ..."

    def allow(self, ranks: int) -> bool:
        if self is Ranks.POWERS:
            return ranks & (ranks - 1) == 0
        return self is Ranks.ANY or isqrt(ranks) ** 2 == ranks


@dataclass(frozen=True, kw_only=True)
class KernelWorkload(WorkloadBase):
    """One of the built-in kernels.

    params: the kernel's own keys (class, elements, bytes, ...).
    metrics: the metrics to keep; empty for all.
    """

    sliced: ClassVar[bool] = True

    name: str
    kernel: str = field(metadata=key(NAME, "which kernel", "stream", "cg"))
    params: Mapping[str, str | int | float]
    pages: Pages = key_or(
        Pages.HUGE, one_of(Pages), "page size requested by madvise: huge, or 4k", "4k", always=True
    )
    metrics: tuple[str, ...] = key_or((), ListOf(NAME, least=1), "metrics to keep; all if omitted", ["triad"])

    @property
    def subject(self) -> str:
        return KERNELS

    @property
    def floor_group(self) -> None:
        return None

    @property
    def ran(self) -> str:
        return self.kernel
