"""Where mistakes of one study file are gathered, so that all of them are told at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from ..errors import StudyError, StudyProblem

Path = tuple[str | int, ...]


class Mark(NamedTuple):
    """A place in the text; line and column count from 1."""

    line: int
    column: int


@dataclass
class Problems:
    """The mistakes of one file.

    file: its name as shown.
    found: by place and message, so that the mistake of a part that a sweep repeats is shown once.
    added: number of calls of add(), repeated mistakes included.
    unread: keys that are given but wrong, so that what was made of the others holds the usual instead.
    """

    file: str
    found: dict[tuple[Mark, str], StudyProblem] = field(default_factory=dict)
    added: int = 0
    unread: set[Path] = field(default_factory=set)

    def add(self, mark: Mark, path: Path, what: str) -> None:
        self.added += 1
        where = dotted(path)
        text = printable(f"{where}: {what}" if where else what)
        self.found.setdefault(
            (mark, what), StudyProblem(file=self.file, line=mark.line, column=mark.column, what=text)
        )

    def stop(self, mark: Mark, what: str) -> NoReturn:
        """The file cannot be read further."""
        self.add(mark, (), what)
        raise self.error()

    def error(self) -> StudyError:
        return StudyError(tuple(sorted(self.found.values(), key=lambda p: (p.line, p.column))))


def dotted(path: Path) -> str:
    """('environments', 'lxc', 'placements', 0) -> 'environments.lxc.placements[0]'."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{clip(part)}" if out else clip(part)
    return out


def clip(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def printable(text: str) -> str:
    """Safe to print: no control characters, no lone surrogates."""
    return "".join(c if c.isprintable() else "�" for c in text)
