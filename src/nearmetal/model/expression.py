"""Regular expressions of users: what may be wrong with one, and a search that ends in time whatever it is.

By the package regex, which takes what Python's own re does and, unlike that, can be given a time limit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

LONGEST = 1000
#: Seconds that a search may take.
LIMIT = 3.0


@dataclass(frozen=True, kw_only=True)
class Match:
    """A match.

    text: all of it.
    group: what its first group matched, None where that took no part.
    cut: how a longer number than the group's goes on around it, where the group ends the match or begins it.
    """

    text: str
    group: str | None
    cut: str = ""


def mistake(expression: str, held: str | None) -> str:
    """What is wrong with an expression; '' where nothing is. held: what its one group must hold, None where
    groups do not matter."""
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
    """The first match, with ^ and $ meaning lines; None where there is none. Raises TimeoutError beyond limit
    seconds; the expression is one without a mistake."""
    match = _compiled(expression).search(text, timeout=limit)
    if match is None:
        return None
    if not match.re.groups:
        return Match(text=match[0], group=None)
    return Match(text=match[0], group=match[1], cut=_cut(text, match))


@lru_cache
def _compiled(expression: str) -> Any:
    # Here, since most runs of the tool search nothing.
    import regex

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of notations that later versions may read otherwise
        return regex.compile(expression, regex.MULTILINE)


@lru_cache
def _ends() -> tuple[Any, Any]:
    """How a number goes on behind a digit, and what stands in front of the rest of one."""
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
