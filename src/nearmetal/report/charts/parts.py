"""Elements that all charts share: axes, bands, marks, and scales by the range of their values. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...model.result import Cell
from ...units import scale_of
from ..tables.cells import bounded, margin_text
from ..text import one_line
from .altair_here import alt
from .chart import Palette, Row


def data(name: str) -> alt.Chart:
    """Return an Altair chart without marks, for the rows that the `data` of a Chart has under this name."""
    chart: alt.Chart = alt.Chart(alt.NamedData(name))
    return chart


def layered(*charts: alt.Chart) -> alt.LayerChart:
    """Return charts on top of each other, the last on top, with common axes."""
    chart: alt.LayerChart = alt.LayerChart(layer=charts)
    return chart


def tips() -> alt.Description:
    """Return the encoding of a mark's tooltip, which is the field 'tip' of its row."""
    return alt.Description("tip:N")


def dashed(name: str, p: Palette, **position: alt.X | alt.Y) -> alt.Chart:
    """Return a dashed line that marks an overhead of zero.

    name: name of its row in the data.
    """
    line: alt.Chart = data(name).mark_rule(color=p.quiet, strokeDash=[3, 3]).encode(**position)
    return line


class OverheadAxis:
    """The overhead axis of one cell: percent, or the ratio of times if that exceeds a factor of three.

    Zero and the margin are drawn if the spread of the blocks then stays visible.
    """

    def __init__(self, cell: Cell) -> None:
        low, high = min(cell.d, default=0.0), max(cell.d, default=0.0)
        self.as_factor = max(abs(low), abs(high)) > math.log(3)
        self.zero = 1.0 if self.as_factor else 0.0
        edge = math.log1p(cell.margin)
        self.with_margin = max(low - edge, -edge - high) <= 4 * (high - low)

    def of(self, theta: float) -> float:
        """Return the position of a log ratio on the axis."""
        return short(math.exp(theta) if self.as_factor else math.expm1(theta) * 100)

    def of_share(self, share: float) -> float:
        """Return the position of an overhead, given as a share, on the axis."""
        return short(1 + share if self.as_factor else share * 100)

    def text(self, at: float) -> str:
        """Return a position on the axis as text: '+3 %' or '×3.2'."""
        return f"×{at:.4g}" if self.as_factor else f"{at:+.3g} %".replace("-", "−")

    def margin_sentence(self, cell: Cell) -> str:
        margin = margin_text(cell.margin)
        return (
            f"Grey band: margin {margin}." if self.with_margin else f"The margin {margin} lies far outside."
        )

    def bands(self, cell: Cell) -> dict[str, list[Row]]:
        """Return the rows of the margin, the zero line, the interval and the estimate, by name. Each is empty
        if it is not drawn."""
        near = self.with_margin
        ends = (-cell.margin / (1 + cell.margin), cell.margin)
        return {
            "margin": [self._band(*ends)] if near else [],
            "zero": [{"y": self.zero}] if near else [],
            "interval": [self._band(cell.low, cell.high)] if bounded(cell) else [],
            "estimate": [{"y": self.of_share(cell.overhead)}] if math.isfinite(cell.overhead) else [],
        }

    def _band(self, low: float, high: float) -> Row:
        return {"y": self.of_share(low), "high": self.of_share(high)}


def overhead_y(*, as_factor: bool) -> alt.Y:
    """Return the encoding of an OverheadAxis. The axis does not have to include zero."""
    return alt.Y(
        "y:Q",
        title="times as long" if as_factor else "overhead, %",
        scale=alt.Scale(zero=False, nice=True),
        axis=number_axis(4, signed=not as_factor),
    )


def number_axis(ticks: int, *, signed: bool) -> alt.Axis:
    """Return an axis with about this number of ticks. If it is signed, all numbers but zero have a sign."""
    form, zero = ("+~r", "datum.value ? datum.label : '0'") if signed else ("~r", "datum.label")
    return alt.Axis(tickCount=ticks, format=form, labelExpr=zero, labelFlush=False)


def rounds_x() -> alt.X:
    """Return an axis of round numbers: whole numbers, with room at both ends."""
    return alt.X(
        "x:Q",
        title="round",
        axis=alt.Axis(tickMinStep=1, tickCount=4, grid=False, format="d"),
        scale=alt.Scale(zero=False, nice=False, padding=12),
    )


def names_y(field: str, p: Palette, title: str = "") -> alt.Y:
    """Return an axis of names, one row each, in the order of the data."""
    return alt.Y(f"{field}:N", title=title or None, sort=None, axis=alt.Axis(labelColor=p.ink))


def value_axis(channel: type[alt.X] | type[alt.Y], field: str, title: str, *, log: bool) -> alt.X | alt.Y:
    """Return an axis of values. It does not have to include zero."""
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False, nice=True)
    axis = alt.Axis(tickCount=4, format="~r", grid=not log)
    return channel(f"{field}:Q", title=title + (", log scale" if log else ""), scale=scale, axis=axis)


def needs_log(low: float, high: float) -> bool:
    """Return whether values span more than a factor of four, so that their axis is logarithmic."""
    return low > 0 and high > 4 * low


def value_unit(cell: Cell, values: Sequence[float]) -> tuple[float, str]:
    """Return the factor from base units to the axis, and the unit of the axis. The unit suits the largest
    value.
    """
    name, size = scale_of(max(values), cell.unit)
    return 1 / size, one_line(name or cell.metric)


def short(value: float) -> float:
    """Round to six significant digits. A chart cannot show more."""
    return float(f"{value:.6g}")


def ends_text(low: float, centre: float, high: float) -> str:
    """Return an estimate and its interval as text, in the unit of the axis: '3.1 [2.9 … 3.4]'."""
    return f"{centre:.4g} [{low:.4g} … {high:.4g}]".replace("-", "−")


def thinned(shown: int, of: int, what: str) -> str:
    return f" Thinned for drawing: {shown:,} of {of:,} {what}; the figures use all." if shown < of else ""


def colour_and_shape(field: str, names: Sequence[str]) -> tuple[alt.Color, alt.Shape]:
    """Return encodings that distinguish series by colour and by shape, in one legend. Both have the same
    domain."""
    domain = list(dict.fromkeys(names))
    legend = alt.Legend(columns=1 if max(map(len, domain), default=0) > 12 else 4)
    return (
        alt.Color(f"{field}:N", legend=legend, scale=alt.Scale(domain=domain, scheme="tableau10")),
        alt.Shape(f"{field}:N", legend=legend, scale=alt.Scale(domain=domain)),
    )
