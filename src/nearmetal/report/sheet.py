"""A report that is composed once and rendered in three ways: as HTML sections, as Markdown, and as plain
text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .charts.chart import Chart, LinesFigure
from .forms.markdown import escape as markdown_escape
from .forms.markdown import pipe_table
from .page.markup import Markup, folded, join, table, tag
from .text import one_line, tight


@dataclass(frozen=True, kw_only=True)
class Words:
    """A paragraph.

    quiet: whether it is shown with less emphasis.
    link: text and relative address of a link after the paragraph; None for no link.
    """

    text: str
    quiet: bool = False
    link: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table. The first cell of a row is its heading.

    numbers: whether all other cells are numbers.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: bool = False


Block = Words | Grid | Chart | LinesFigure


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A section of a report.

    key: a key that is valid as an HTML id.
    """

    key: str
    title: str
    blocks: tuple[Block, ...]


def html_of(leaf: Leaf, draw: Callable[[Chart], Markup], *, fold: bool = False) -> Markup:
    """Render a section as HTML.

    draw: returns the drawing of a chart.
    fold: whether the section is hidden below its title until a reader opens it.
    """
    blocks = [_html(b, draw) for b in leaf.blocks]
    if fold:
        return folded(leaf.key, leaf.title, *blocks)
    return tag("section", tag("h2", leaf.title), *blocks, id=leaf.key)


def _html(block: Block, draw: Callable[[Chart], Markup]) -> Markup:
    match block:
        case Words():
            link = [" ", tag("a", block.link[0], href=block.link[1])] if block.link else []
            return tag("p", tight(block.text), *link, class_="quiet" if block.quiet else None)
        case Grid():
            rows = [[tight(text) for text in row] for row in block.rows]
            inner = table(block.heads, rows, label=block.title, numbers=block.numbers)
            return join(tag("h3", block.title), inner)
        case Chart():
            return draw(block)
        case LinesFigure():
            from .charts.lines import lines_charts  # it imports Altair, which text does not need

            return tag("div", *map(draw, lines_charts(block)), class_="charts")


def markdown_of(leaf: Leaf) -> str:
    """Render a section as Markdown, without its charts."""
    parts = [f"## {markdown_escape(leaf.title)}"]
    for block in leaf.blocks:
        match block:
            case Words():
                link = f" [{markdown_escape(block.link[0])}]({block.link[1]})" if block.link else ""
                parts.append(markdown_escape(block.text) + link)
            case Grid():
                title = markdown_escape(block.title)
                parts.append(f"### {title}\n\n{pipe_table(block.heads, block.rows)}")
            case Chart() | LinesFigure():
                continue
    return "\n\n".join(parts)


def text_of(leaf: Leaf) -> str:
    """Render a section as plain text for a terminal, without its charts."""
    title = one_line(leaf.title)
    parts = [title, "─" * len(title)]
    for block in leaf.blocks:
        match block:
            case Words():
                parts.append(one_line(block.text))
            case Grid():
                parts += [one_line(block.title), *_columns((block.heads, *block.rows))]
            case Chart() | LinesFigure():
                continue
    return "\n".join(parts)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns: every column is as wide as its widest cell, and the last has no trailing spaces."""
    shown = [[one_line(text) for text in row] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    return [
        "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
