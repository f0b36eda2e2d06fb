"""HTML in which every text is escaped, with unsafe characters written out. Only Markup is inserted
unchanged."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from ..text import clean

_VOID = {"br", "hr", "meta"}


class Markup(str):
    """Finished HTML. Only `tag`, `join` and the page itself create it."""


def escape(text: str) -> Markup:
    """Escape a text for an element or a quoted attribute."""
    return text if isinstance(text, Markup) else Markup(html.escape(clean(text)))


def tag(name: str, *children: str, **attributes: str | bool | None) -> Markup:
    """Return an element. Children that are not Markup are escaped.

    attributes: '_' becomes '-', and a trailing '_' is dropped (class_). None and False omit the attribute;
        True gives it no value.
    """
    written = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        written += f" {label}" if value is True else f' {label}="{escape(value)}"'
    inner = "".join(escape(c) for c in children)
    return Markup(f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{inner}</{name}>")


def join(*parts: str) -> Markup:
    """Concatenate the parts."""
    return Markup("".join(escape(p) for p in parts))


def folded(key: str, title: str, *content: str) -> Markup:
    """Return a section of the page that opens by a click on its title."""
    return tag("details", tag("summary", tag("h2", title)), *content, class_="fold", id=key)


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, label: str, numbers: bool = False
) -> Markup:
    """Return a table of texts. The first cell of a row is its heading.

    numbers: whether all other cells are numbers.
    """
    right = "number" if numbers else None
    body = [
        [
            row_head(first),
            *(
                tag("td", text, role="cell", class_=right, data_label=h)
                for h, text in zip(heads[1:], others, strict=True)
            ),
        ]
        for first, *others in rows
    ]
    return cards([column_head(h, kind=right if i else None) for i, h in enumerate(heads)], body, label)


def column_head(*content: str, kind: str | None = None) -> Markup:
    """Return the heading of a column.

    kind: its CSS class; None for none.
    """
    return tag("th", *content, scope="col", role="columnheader", class_=kind)


def row_head(text: str) -> Markup:
    return tag("th", text, scope="row", role="rowheader")


def cards(
    heads: Iterable[Markup],
    rows: Iterable[Iterable[Markup]],
    label: str,
    *,
    kind: str = "",
    caption: bool = False,
    key: str | None = None,
) -> Markup:
    """Return a table of finished cells, in a box that scrolls by itself, also by keyboard. On a phone each
    row is shown as a card.

    Roles are given explicitly, because the layout for phones removes them from the elements.
    label: name of the box for screen readers; if `caption`, also the caption of the table.
    kind: further CSS class of the table.
    key: HTML id of the table; None for none.
    """
    whole = tag(
        "table",
        tag("caption", label) if caption else "",
        tag("thead", tag("tr", *heads, role="row"), role="rowgroup"),
        tag("tbody", *(tag("tr", *row, role="row") for row in rows), role="rowgroup"),
        class_=f"cards {kind}".rstrip(),
        role="table",
        id=key,
    )
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=label)
