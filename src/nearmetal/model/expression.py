"""Regular expressions written by users: a check for mistakes, and a search with a time limit.

The package regex accepts the syntax of Python's own re and, unlike re, supports a time limit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

LONGEST = 1000
#: Time limit of a search in seconds.
LIMIT = 3.0


@dataclass(frozen=True, kw_only=True)
class Match:
    """A match of a regular expression.

    group: text matched by the first group; None if the group did not participate.
    cut: the complete number, if the group matched only a part of its digits; otherwise empty.
    """

    text: str
    group: str | None
    cut: str = ""


def mistake(expression: str, held: str | None) -> str:
    """Return an error message for an invalid expression; '' if it is valid.

    held: if given, the expression must have exactly one group, and this text says in the message what the
        group must contain ('the number'). None if groups do not matter.
    """
    if len(expression) > LONGEST:
        return f"longer than {LONGEST} characters"
    import regex

    try:
        groups: int = _compiled(expression).groups
    except regex.error as e:
        return f"not a regular expression: {e}"
    except (OverflowError, RecursionError, MemoryError) as e:
        return f"not a usable regular expression: {e}"
    if held is None or groups == 1:
        return ""
    return f"{groups} groups; one group ( ) must hold {held}, others are written (?: )"


def search(expression: str, text: str, *, limit: float = LIMIT) -> Match | None:
    """Return the first match; None if there is none. ^ and $ match at the beginning and end of lines.

    expression: a valid one, for which mistake() returns ''.
    limit: time limit in seconds.

    Raises TimeoutError if the search takes longer than the limit.
    """
    match = _compiled(expression).search(text, timeout=limit)
    if match is None:
        return None
    if not match.re.groups:
        return Match(text=match[0], group=None)
    return Match(text=match[0], group=match[1], cut=_cut(text, match))


@lru_cache
def _compiled(expression: str) -> Any:
    # Imported here, since most runs of the tool search nothing.
    import regex

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about notations that later versions may read differently
        return regex.compile(expression, regex.MULTILINE)


@lru_cache
def _ends() -> tuple[Any, Any]:
    """Return two patterns: the rest of a number after a digit, and the beginning of a number before a
    digit."""
    import regex

    return regex.compile(r"(?:[.,]?\d|[eE][+-]?\d)[\d.,eE+-]{0,20}"), regex.compile(r"[\d.,]{0,20}\d[.,]?$")


def _cut(text: str, match: Any) -> str:
    begin, end = match.span(1)
    if begin < 0 or not match[1][-1:].isdigit() or not match[1][:1].isdigit():
        return ""
    behind, before = _ends()
    after = behind.match(text, end) if match.end() == end else None
    if after is not None:
        return f"{match[1]}{after[0]}"
    ahead = before.search(text, max(begin - 20, 0), begin) if match.start() == begin else None
    return f"{ahead[0]}{match[1]}" if ahead is not None else ""
