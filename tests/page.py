"""The text of a report's page, with that which a browser unpacks when a fold is opened."""

from __future__ import annotations

import base64
import json
import zlib
from html.parser import HTMLParser


class Page(HTMLParser):
    """What a browser's parser sees: elements, text outside scripts and styles, scripts; then the insides of
    the folds, which the page unpacks when they are opened.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text, self.scripts = "", list[str]()
        self._inside = ""
        self.feed(html)
        self.feed("".join(json.loads(zlib.decompress(base64.b64decode(self.scripts[0])))))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {k: v or "" for k, v in attrs}))
        self._inside = tag if tag in ("script", "style") else ""
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self.text += data.replace("\u00a0", " ")

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.elements if name == tag]
