"""Collect the mistakes of a study file, so that all of them are reported at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from ..errors import Mark, StudyError, StudyProblem

Path = tuple[str | int, ...]


@dataclass
class Problems:
    """The mistakes of one file.

    file: name of the file in messages.
    found: mistakes by position and message, so that a mistake in a part that a sweep repeats is shown once.
    added: number of calls of add(), repeated mistakes included.
    unread: keys whose values have mistakes. Objects made from the other keys contain defaults for them.
    noun: what the file holds, for messages.
    """

    file: str
    found: dict[tuple[Mark, str], StudyProblem] = field(default_factory=dict)
    added: int = 0
    unread: set[Path] = field(default_factory=set)
    noun: str = "study"

    @property
    def a_noun(self) -> str:
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun}"

    def add(self, mark: Mark, path: Path, what: str) -> None:
        self.added += 1
        where = dotted(path)
        text = printable(f"{where}: {what}" if where else what)
        self.found.setdefault(
            (mark, what), StudyProblem(file=self.file, line=mark.line, column=mark.column, what=text)
        )

    def stop(self, mark: Mark, what: str) -> NoReturn:
        """Add a mistake after which the file cannot be read further.

        Raises StudyError.
        """
        self.add(mark, (), what)
        raise self.error()

    def error(self) -> StudyError:
        return StudyError(tuple(sorted(self.found.values(), key=lambda p: (p.line, p.column))))


def dotted(path: Path) -> str:
    """Return a path as text, such as 'environments.lxc.placements[0]'."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{clip(part)}" if out else clip(part)
    return out


def clip(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def printable(text: str) -> str:
    """Return a text that is safe to print: control characters and lone surrogates are replaced."""
    return "".join(c if c.isprintable() else "�" for c in text)
