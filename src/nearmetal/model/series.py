"""A series: one large question studied in parts. Each part is a study with its own results directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .study import Study


class Scale(StrEnum):
    """Problem sizes: sizes that fit on a small machine, or those of the paper."""

    SMALL = "small"
    PAPER = "paper"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a series.

    share: fraction of the total time.
    places: for each environment of the paper, by the paper's name ('container'), the arm that corresponds to
        it.
    absent: why this part has no study on this machine; '' if it has one.
    notes: notes for the reader of this part.
    """

    key: str
    title: str
    share: float
    study: Study | None
    places: Mapping[str, str]
    absent: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Series:
    """A study in parts.

    paper: key of the published figures that are shown beside the results.
    notes: notes that apply to all parts.
    """

    name: str
    title: str
    scale: Scale
    paper: str
    seed: int
    max_time: float
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(p.key for p in self.parts)
