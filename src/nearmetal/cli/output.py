"""The only module that prints. All text that is printed may come from somebody hostile, by way of a results
directory, a node or a program: whatever it contains, it cannot act on a terminal, nor pretend to be a line of
nearmetal's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from ..plain_text import clean, keep_in_line, one_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.live import Live
    from rich.segment import Segment
    from rich.text import Text


class CleanStream:
    """A text stream that writes out unsafe characters, whoever writes: print(), a traceback, a warning, or
    Typer. A JSON document keeps its meaning."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        self.unfiltered.write(clean(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


@contextmanager
def clean_output() -> Iterator[None]:
    """Clean everything that is written to standard output and standard error."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", CleanStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def print_lines(*lines: str, to: TextIO | None = None) -> None:
    """Print each text on a line of its own.

    to: the stream; None for standard output.
    """
    print("\n".join(keep_in_line(clean(line)) for line in lines), file=to or sys.stdout, flush=True)


def print_block(text: str, *, to: TextIO | None = None) -> None:
    """Print a text whose own line breaks are meant, and whose foreign parts are on one line each."""
    print(text.removesuffix("\n"), file=to or sys.stdout, flush=True)


def print_json(value: object, *, indent: int | None = 2) -> None:
    """Print one JSON document on standard output. If its encoding lacks a character, all characters beyond
    ASCII are written as \\u escapes, so that a reader gets every text unchanged."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent, allow_nan=False)
    print(text, flush=True)


def show(value: object, lines: Iterable[str], *, json: bool) -> None:
    """Print a result on standard output: lines of text, or a value as JSON."""
    if json:
        print_json(value)
    else:
        print_lines(*lines)


def complain(text: str) -> None:
    """Print a note about a study or its results on standard error."""
    print_lines(f"note: {one_line(text)}", to=sys.stderr)


def write_bytes(data: bytes) -> None:
    """Write the bytes of a file to standard output."""
    sys.stdout.buffer.write(data)


def print_text(text: Text) -> None:
    """Print a text on standard output, with its styles only on a terminal."""
    if sys.stdout.isatty():
        _console(sys.stdout).print(text, soft_wrap=True, end="")
    else:
        print(text.plain, end="")


@contextmanager
def live_display(stream: TextIO) -> Iterator[Live]:
    """Show a live display on a terminal. Whatever is printed meanwhile appears above it."""
    from rich.live import Live

    with Live(console=_console(stream), refresh_per_second=4, transient=True) as live, clean_output():
        yield live


def _console(stream: TextIO) -> Console:
    """Return a console that writes the colours and cursor movements of its own unchanged, and cleans every
    text."""
    from rich.console import Console

    class CleanConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=clean(segment.text))

    return CleanConsole(file=stream.unfiltered if isinstance(stream, CleanStream) else stream)
