"""Positions of keys and values in a valid TOML text, for messages. tomllib gives positions of syntax errors
only."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence

from ..errors import Mark
from ..study_file.problems import Path

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\r\n]+")
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{0,2}(?!"))', re.DOTALL),
    re.compile(r"'''.*?'''(?:'{0,2}(?!'))", re.DOTALL),
    re.compile(r'"(?:[^"\\]|\\.)*"'),
    re.compile(r"'[^']*'"),
)


class Positions:
    """The positions in one valid TOML text, by path: ('table', 0, 'rows', 'CG', 2)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._keys: dict[Path, int] = {}
        self._values: dict[Path, int] = {}
        self._lengths: dict[Path, int] = {}
        self._read()

    def of(self, path: Sequence[str | int], *, key: bool = False) -> Mark:
        """Return the position of the value at a path. If there is none, return that of the nearest enclosing
        value, or of the beginning of the text.

        key: whether to return the position of the key instead, if the text has this key.
        """
        at = tuple(path)
        if key and at in self._keys:
            return self._mark(self._keys[at])
        while at and at not in self._values:
            at = at[:-1]
        return self._mark(self._values[at]) if at else Mark(1, 1)

    def _mark(self, at: int) -> Mark:
        return Mark.after(self._text[:at])

    def _read(self) -> None:
        table: Path = ()
        while self._skip():
            begin = self._at
            if self._text.startswith("[", begin):
                several = self._text.startswith("[[", begin)
                self._at += 2 if several else 1
                table = self._header(self._name(), several, begin)
                self._skip()
                self._at += 2 if several else 1
            else:
                self._pair(table)

    def _header(self, names: Sequence[tuple[str, int]], several: bool, begin: int) -> Path:
        path: Path = ()
        for number, (name, at) in enumerate(names):
            path = (*path, name)
            self._keys.setdefault(path, at)
            self._values.setdefault(path, begin)
            if path in self._lengths or (several and number == len(names) - 1):
                if several and number == len(names) - 1:
                    self._lengths[path] = self._lengths.get(path, 0) + 1
                path = (*path, self._lengths[path] - 1)
                self._values.setdefault(path, begin)
        return path

    def _pair(self, table: Path) -> None:
        path = table
        for name, at in self._name():
            path = (*path, name)
            self._keys.setdefault(path, at)
            self._values.setdefault(path, at)
        self._skip()
        self._at += 1  # the sign =
        self._value(path)

    def _name(self) -> list[tuple[str, int]]:
        """Read a key such as a.b, and return its parts with their positions."""
        parts = []
        while True:
            self._skip()
            begin = self._at
            quoted = self._text[begin] in "\"'"
            found = (_STRINGS[2 if self._text[begin] == '"' else 3] if quoted else _BARE).match(
                self._text, begin
            )
            assert found is not None, "the text is valid"
            name = tomllib.loads(f"x = {found[0]}")["x"] if quoted else found[0]
            parts.append((name, begin))
            self._at = found.end()
            self._skip()
            if not self._text.startswith(".", self._at):
                return parts
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip()
        self._values[path] = self._at
        match self._text[self._at]:
            case "[":
                self._members(path, "]")
            case "{":
                self._members(path, "}")
            case '"' | "'":
                self._at = next(m.end() for s in _STRINGS if (m := s.match(self._text, self._at)))
            case _:
                found = _SCALAR.match(self._text, self._at)
                assert found is not None, "the text is valid"
                self._at = found.end()

    def _members(self, path: Path, end: str) -> None:
        """Read an array or an inline table."""
        self._at += 1
        number = 0
        while self._skip() and not self._text.startswith(end, self._at):
            if end == "]":
                self._value((*path, number))
            else:
                self._pair(path)
            number += 1
            self._skip()
            if self._text.startswith(",", self._at):
                self._at += 1
        self._at += 1

    def _skip(self) -> bool:
        """Skip white space and comments. Return whether anything follows."""
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._at < len(self._text)
