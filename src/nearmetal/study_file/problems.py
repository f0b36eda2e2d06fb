"""Read the text of a file, and collect the mistakes in it, so that all of them are reported at once.

Study files, series files, inventories and files about papers are read this way.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import NoReturn

from ..errors import FileError, Mark, StudyError, StudyProblem, UsageError
from ..host.untrusted import read_named

Path = tuple[str | int, ...]
MAX_BYTES = 1 << 20
TOO_LARGE = f"larger than {MAX_BYTES >> 20} MiB, which no such file is"


@dataclass
class Problems:
    """The mistakes of one file.

    file: name of the file in messages.
    kind: the class of the error that reports them.
    sign: the character between a key and its value in such a file: ':' or '='.
    found: mistakes by position and message. A mistake in an entry that a sweep repeats is thus shown once.
    added: number of calls of add(), repeated mistakes included.
    unread: keys whose values have mistakes. Objects made from the other keys contain defaults for them.
    """

    file: str
    kind: type[FileError] = StudyError
    sign: str = ":"
    found: dict[tuple[Mark, str], StudyProblem] = field(default_factory=dict)
    added: int = 0
    unread: set[Path] = field(default_factory=set)

    @property
    def noun(self) -> str:
        return self.kind.noun

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

        Raises the error of the file.
        """
        self.add(mark, (), what)
        raise self.error()

    def error(self) -> FileError:
        return self.kind(tuple(sorted(self.found.values(), key=lambda p: (p.line, p.column))))

    def check(self) -> None:
        """Raise the error of the file if it has mistakes."""
        if self.found:
            raise self.error()


def read_text(path: FilePath, problems: Problems, *, what: str, remedy: str) -> str:
    """Return the text of a file.

    what, remedy: name of what is read, and what to do if it cannot be read; both for messages.

    Raises UsageError if the file cannot be read, and the error of the file if it is too large or not UTF-8.
    """
    try:
        raw = read_named(path, MAX_BYTES)
    except OSError as e:
        if e.errno == errno.EFBIG:
            problems.stop(Mark(1, 1), TOO_LARGE)
        why = f"cannot read {what}: {e.strerror or e}"
        raise UsageError(why, where=str(path), remedy=remedy) from e
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        before = raw[: e.start].decode("utf-8-sig", errors="replace")
        problems.stop(Mark.after(before), f"not UTF-8 (byte 0x{raw[e.start]:02x}); save the file as UTF-8")


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
