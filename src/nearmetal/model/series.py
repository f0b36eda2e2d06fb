"""A series: one large question asked in parts, each a study with a results directory of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .study import Study


class Scale(StrEnum):
    """Sizes of the problems: what a small machine holds, or those of the paper."""

    SMALL = "small"
    PAPER = "paper"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a series.

    share: of the whole time.
    places: the arm that stands for each place of the paper, by the paper's word ('container').
    absent: why there is no study here, '' where there is.
    notes: what a reader must know of this part.
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

    paper: key of the published figures that stand beside.
    notes: of all parts.
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
