"""A chart before it is drawn: its words, its data, and the view that shows them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ...model.record import JsonValue
from ...model.result import Cell, Interval
from ..text import one_line

if TYPE_CHECKING:
    from altair import LayerChart

Row = dict[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class Palette:
    """Colours of Okabe and Ito, which colour-blind readers can distinguish. Shapes and dashes differ too.

    legends: whether a legend names the two sides, which the caption names too. It takes as long as the rest.
    """

    ink: str
    quiet: str
    grid: str
    arm: str
    base: str
    margin: str
    interval: str
    font: str
    font_size: int
    legends: bool


# CSS variables, so that the page changes between light, dark and print without drawing again.
PAGE = Palette(
    ink="var(--ink)",
    quiet="var(--quiet)",
    grid="var(--line)",
    arm="var(--arm)",
    base="var(--base)",
    margin="var(--margin)",
    interval="var(--interval)",
    font="system-ui, sans-serif",
    font_size=12,  # more than page.css sets, since the reader's font may be wider than the one measured
    legends=False,
)
FILE = Palette(
    ink="#1a1a1a",
    quiet="#555555",
    grid="#dddddd",
    arm="#d55e00",
    base="#0072b2",
    margin="#00000012",
    interval="#d55e0030",
    font="Liberation Sans, Arial, sans-serif",
    font_size=11,
    legends=True,
)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One figure.

    kind: 'points', 'absolute', 'attribution', 'ecdf' or 'floor', for example.
    caption: what is drawn, with unit and n.
    height, width: of the plot without its axes, in pixels.
    view: a function that takes hashable arguments and a palette, and returns the chart without data and size.
        Charts with the same function and arguments are compiled once.
    data: rows by the name of the data in the view.
    words: texts of the view that differ between charts of a kind, by the key given to `word`.
    """

    kind: str
    title: str
    caption: str
    height: int
    view: partial[LayerChart]
    data: Mapping[str, Sequence[Row]]
    words: Mapping[str, str] = field(default_factory=dict)
    width: int = 360


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Lines of one metric over one number.

    title: what is held, as a heading of the panel; may be empty.
    over: the number, as the title of the axis.
    lines: by side, values of the number in ascending order with the metric's value. The number may be
        infinite: such a point is drawn apart.
    text: the text of a value of the number.
    """

    title: str
    over: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, Interval]]]
    text: Callable[[float], str]


@dataclass(frozen=True, kw_only=True)
class LinesFigure:
    """Panels with the same sides. Each becomes a chart.

    name: part of the name of its files.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


def word(key: str) -> str:
    """Return the placeholder of a text that each chart of a view has in its `words`."""
    return f"{{{{{key}}}}}"


def emulation_sentences(*, emulated: bool, guest: str) -> list[str]:
    """Return what a caption says of emulated nodes and guests, as sentences; none if nothing is emulated.

    guest: how the guests are emulated.
    """
    sentences = ["Nodes emulated on one machine."] if emulated else []
    return sentences + ([f"Guests emulated ({one_line(guest)})."] if guest else [])


def with_emulation(chart: Chart, *, emulated: bool, guest: str = "") -> Chart:
    """Return the chart with a caption about emulation, if nodes or guests are emulated.

    guest: how the guests are emulated.
    """
    sentences = emulation_sentences(emulated=emulated, guest=guest)
    return replace(chart, caption=" ".join([chart.caption, *sentences])) if sentences else chart


def emulation_of(chart: Chart, cells: Sequence[Cell]) -> Chart:
    """Return the chart with a caption about emulation, if the nodes or guests of any of the cells are
    emulated."""
    guest = next((c.guest for c in cells if c.guest), "")
    return with_emulation(chart, emulated=any(c.emulated for c in cells), guest=guest)
