"""A series: one large question studied in parts. Each part is a study with its own results directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .study import Study


class Scale(StrEnum):
    """Problem sizes: sizes that fit on a small machine, or those of the paper."""

    SMALL = "small"
    PAPER = "paper"


class Figure(StrEnum):
    """A chart of a part.

    CURVE: values over a number. The number is a parameter of workloads that do not differ otherwise, such as
        the message size, or a part of the names of several metrics of one workload ('nb64').
    RANKS: values over the number of ranks, a line for each environment and number of nodes.
    STEPS: seconds of each step of the events of instances.
    OVERHEADS: the overhead of every environment, by metric.
    PACKING: the overhead by the number of instances on a node, from the places called '<n> per node'.
    RELATIVE: bars of every environment relative to its baseline. Rates are not converted to times.
    """

    CURVE = "curve"
    RANKS = "ranks"
    STEPS = "steps"
    OVERHEADS = "overheads"
    PACKING = "packing"
    RELATIVE = "relative"


PER_NODE = " per node"
"""Ending of the names of the places that a packing chart shows: '<n> per node'."""


@dataclass(frozen=True, kw_only=True)
class Omission:
    """Something in the files of a part that this machine cannot run.

    what: an environment, a placement, or the part.
    remedy: what the user can do about it; '' if unknown.
    """

    what: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.what}: {self.reason}"
        return f"{text}; next: {self.remedy}" if self.remedy else text


def omission_lines(omissions: Iterable[Omission]) -> list[str]:
    """Return omissions as lines of text. Omissions with the same remedy share a line."""
    by_remedy: dict[str, dict[str, list[str]]] = {}
    for number, o in enumerate(omissions):
        reasons = by_remedy.setdefault(o.remedy or f"{number}", {})
        reasons.setdefault(o.reason, []).append(o.what)
    return [
        "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        + ("" if remedy.isdecimal() else f"; next: {remedy}")
        for remedy, reasons in by_remedy.items()
    ]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a series.

    share: fraction of the total time.
    places: for each environment of the paper, by the paper's name ('container'), the arm that corresponds to
        it.
    sizes_from: key of the part from whose results its classes of kernels and its links are chosen; '' if they
        are not chosen.
    absent: why this part has no study on this machine; '' if it has one.
    left_out: what this machine cannot run.
    """

    key: str
    title: str
    share: float
    study: Study | None
    places: Mapping[str, str]
    sizes_from: str = ""
    absent: str = ""
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = (Figure.OVERHEADS,)
    left_out: tuple[Omission, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Series:
    """A study in parts.

    scale: problem sizes of a series that comes with nearmetal; None for other series.
    paper: key of the published figures that are shown beside the results; '' if there are none, or if they
        are in the directory of the series.
    notes: notes that apply to all parts.
    """

    name: str
    title: str
    scale: Scale | None
    paper: str
    seed: int
    max_time: float
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(p.key for p in self.parts)
