"""Makes foreign text safe to show: control and direction characters are written out and have no effect."""

from __future__ import annotations

import re
import shlex
import unicodedata

_SUSPECT = re.compile(r"[^\n\t -~]")
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# A spreadsheet interprets a text with this beginning as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def clean(text: str) -> str:
    """Write out every control, direction and invisible character of a text as \\u and four digits.

    Otherwise terminal escapes, right-to-left overrides and lone surrogates in a host name or in the output of
    a program would change what a reader sees. Newline and tab are kept. The form is that of JSON, so a JSON
    document keeps its meaning.
    """
    return _SUSPECT.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    character = found[0]
    if unicodedata.category(character) not in _UNSAFE:
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def one_line(text: str) -> str:
    """Return the text on one line, with unsafe characters written out by clean()."""
    return " ".join(clean(text).split())


def keep_in_line(text: str) -> str:
    """Write out the line breaks of a text as \\n, so that it cannot begin a line of its own."""
    return text.replace("\n", "\\n")


def shell_word(text: str) -> str:
    """Return a text as one word of a shell's command line, which is on one line and safe to show."""
    if clean(text) == keep_in_line(text) == text:
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{keep_in_line(clean(escaped))}'"


def spreadsheet_text(text: str) -> str:
    """Return a text on one line that no spreadsheet interprets as a formula."""
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line
