"""HTML in which every text is escaped, with unsafe characters written out. Only Markup is inserted
unchanged."""

from __future__ import annotations

import html
from collections.abc import Sequence

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
    """Return a table that becomes cards on a phone. The first cell of a row is its heading.

    Roles are given explicitly, because the layout for phones removes them from the elements.
    numbers: whether all other cells are numbers.
    """
    right = "number" if numbers else None
    head = [
        tag("th", h, scope="col", role="columnheader", class_=right if i else None)
        for i, h in enumerate(heads)
    ]
    body = []
    for first, *others in rows:
        cells = [
            tag("td", text, role="cell", class_=right, data_label=h)
            for h, text in zip(heads[1:], others, strict=True)
        ]
        body.append(tag("tr", tag("th", first, scope="row", role="rowheader"), *cells, role="row"))
    return scrolled(
        tag(
            "table",
            tag("thead", tag("tr", *head, role="row"), role="rowgroup"),
            tag("tbody", *body, role="rowgroup"),
            class_="cards",
            role="table",
        ),
        label,
    )


def scrolled(wide: Markup, label: str) -> Markup:
    """Return a wide element that scrolls by itself, also by keyboard."""
    return tag("div", wide, class_="scroll", tabindex="0", role="region", aria_label=label)
