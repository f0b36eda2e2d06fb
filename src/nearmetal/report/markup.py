"""HTML that cannot be broken by what is put into it: every text is cleaned and escaped, only Markup is not."""

from __future__ import annotations

import html
import json

from ..model.record import JsonValue
from .text import clean

_VOID = {"br", "hr", "meta"}


class Markup(str):
    """HTML that is finished; only `tag`, `join` and the page itself make it."""


def escape(text: str) -> Markup:
    """Text for an element or a quoted attribute."""
    return text if isinstance(text, Markup) else Markup(html.escape(clean(text)))


def tag(name: str, *children: str, **attributes: str | bool | None) -> Markup:
    """An element. Children that are not Markup are escaped; attributes: '_' becomes '-', a trailing one is
    dropped (class_), None and False leave the attribute out, True gives it no value."""
    said = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        said += f" {label}" if value is True else f' {label}="{escape(value)}"'
    inner = "".join(escape(c) for c in children)
    return Markup(f"<{name}{said}>" if name in _VOID else f"<{name}{said}>{inner}</{name}>")


def join(*parts: str) -> Markup:
    """Parts one after the other."""
    return Markup("".join(escape(p) for p in parts))


def json_for_script(value: JsonValue) -> Markup:
    """JSON inside a <script>: no '<' and no '&' in it, so that neither </script> nor <!-- can end it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
