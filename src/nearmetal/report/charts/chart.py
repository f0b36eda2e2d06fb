"""A chart before it is drawn: its texts, its data, and the view that shows them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ...model.environments.guest import labels_emulator
from ...model.record import JsonValue
from ...model.result import Cell, Interval
from ..text import one_line

if TYPE_CHECKING:
    from altair import LayerChart

Row = dict[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class Palette:
    """Colours of Okabe and Ito, which colour-blind readers can distinguish. Shapes and dashes differ too.

    legends: whether charts of two sides have a legend. A legend doubles the time of drawing, and the caption
        names the sides too.
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
    words: texts that replace the placeholders in the view, by the key of the placeholder (see word()). They
        differ between charts of one view.
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
    """Lines of one metric as a function of one number, such as a block size.

    title: heading of the panel, such as the values of other numbers; may be empty.
    over: name of the number, as the title of its axis.
    unit: base unit of the metric.
    lines: by the name of the line, pairs of the number and the metric's value, in ascending order of the
        number. An infinite number is drawn apart from the others.
    text: returns the label of a value of the number.
    """

    title: str
    over: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, Interval]]]
    text: Callable[[float], str]


@dataclass(frozen=True, kw_only=True)
class LinesFigure:
    """A figure with one or more panels. Each becomes a chart; a line has the same colour and shape in all.

    name: part of the names of its files.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


def word(key: str) -> str:
    """Return a placeholder for a text of a view. Each chart of the view has the text in its `words`, by
    `key`."""
    return f"{{{{{key}}}}}"


def emulation_sentences(cells: Sequence[Cell]) -> list[str]:
    """Return the sentences of a caption about the emulated nodes and guests of cells; none if nothing is
    emulated."""
    sentences = ["Nodes emulated on one machine."] if any(c.emulated for c in cells) else []
    return sentences + guest_sentences(next((c.guest for c in cells if c.guest), ""))


def guest_sentences(guest: str) -> list[str]:
    """Return the sentence of a caption about emulated or nested guests; none if they are neither.

    guest: how the guests are emulated or nested; '' if they are neither.
    """
    state = "emulated" if labels_emulator(guest) else "nested"
    return [f"Guests {state} ({one_line(guest)})."] if guest else []


def with_emulation(chart: Chart, cells: Sequence[Cell]) -> Chart:
    """Return the chart; if the nodes or guests of any of the cells are emulated, with sentences about that in
    its caption."""
    return replace(chart, caption=" ".join([chart.caption, *emulation_sentences(cells)]))
