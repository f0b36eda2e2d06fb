"""Results as shares of their upper bounds, as text: one line for each metric of each arm."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.result import Analysis, Roof
from ...units import show
from ..text import one_line
from .cells import metric_label

HEADS = ("metric", "upper bound", "environment", "result", "share of it")


@dataclass(frozen=True, kw_only=True)
class RoofLine:
    """One result as a share of its upper bound (roof).

    roof: value and description of the upper bound.
    share: fraction of the upper bound that was reached.
    """

    metric: str
    roof: str
    arm: str
    result: str
    share: float

    def cells(self) -> tuple[str, ...]:
        return (self.metric, self.roof, self.arm, self.result, share_figure(self.share))

    @property
    def text(self) -> str:
        share = share_figure(self.share)
        return f"{self.metric} in {self.arm}: {self.result}, {share} of the upper bound, {self.roof}"


def share_figure(share: float) -> str:
    """Return a share in percent: '97 %'."""
    return f"{share * 100:.3g} %"


def roof_text(roof: Roof, unit: str) -> str:
    """Return value and description of an upper bound: '75 GB/s, memory bandwidth, STREAM Triad of 2
    ranks'."""
    return one_line(f"{show(roof.value, unit)}, {roof.words}")


def roof_lines(analysis: Analysis) -> tuple[RoofLine, ...]:
    """Return the lines by metric: the baseline once, then every arm.

    A result that exceeds its upper bound is left out, because the bound then does not apply to it.
    """
    out: dict[tuple[str, str], RoofLine] = {}
    for c in analysis.cells:
        sides = ((c.baseline, c.baseline_value, c.baseline_roof), (c.arm, c.value, c.roof))
        for arm, value, roof in sides:
            if roof is None or roof.share > 1:
                continue
            line = RoofLine(
                metric=metric_label(c),
                roof=roof_text(roof, c.unit),
                arm=one_line(arm),
                result=one_line(show(value.centre, c.unit)),
                share=roof.share,
            )
            out.setdefault((metric_label(c), arm), line)
    return tuple(out.values())
