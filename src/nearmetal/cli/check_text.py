"""The text of `nearmetal check`: one line for each environment, and one for each group of other checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..api.checking import ENVIRONMENT, NOT_HERE, PARTLY, WORKS, Check
from ..report.forms.columns import cut
from ..report.text import one_line

WIDTH = 100
"""Maximum number of columns, also on a wider terminal."""
_STATE = 14
DETAILS = "Every detail, and what to do about the rest: nearmetal check --all"


def short_lines(checks: Sequence[Check], width: int) -> list[str]:
    """Return the lines of the short form: state, name, and details or remedy.

    width: columns of the terminal; longer lines are cut.
    """
    rows = [*_single_rows(checks), *_group_rows(checks)]
    names = max((len(name) for _, name, _ in rows), default=0)
    lines = [f" {state:<{_STATE - 1}}{name:<{names}}  {shown}".rstrip() for state, name, shown in rows]
    return [*(cut(line, min(width, WIDTH)) for line in lines), DETAILS]


def all_lines(checks: Sequence[Check]) -> list[str]:
    """Return the lines of the full form: every check with all its details."""
    names = max((len(c.what) for c in checks), default=0)
    out = []
    for c in checks:
        out.append(f" {c.state:<{_STATE - 1}}{c.what:<{names}}  {c.why}".rstrip())
        if c.remedy:
            out.append(f"{'':<{_STATE + 2}}next: {c.remedy}")
    return out


_Row = tuple[str, str, str]


def _single_rows(checks: Sequence[Check]) -> Iterator[_Row]:
    for c in checks:
        if c.group in ("", ENVIRONMENT):
            name, _, version = c.what.partition(" ") if c.group else (c.what, "", "")
            parts = [version, _details(c), f"next: {c.remedy}" if c.remedy else ""]
            yield c.state, name, "; ".join(part for part in parts if part)


def _group_rows(checks: Sequence[Check]) -> Iterator[_Row]:
    for group in dict.fromkeys(c.group for c in checks if c.group not in ("", ENVIRONMENT)):
        own = [c for c in checks if c.group == group]
        here = [_name(c) for c in own if c.state != NOT_HERE]
        lacking = [_name(c) for c in own if c.state == NOT_HERE]
        state = NOT_HERE if not here else PARTLY if lacking or PARTLY in {c.state for c in own} else WORKS
        shown = f"{'all but ' if here else ''}{', '.join(dict.fromkeys(lacking))}"
        yield state, group, shown if lacking else ", ".join(dict.fromkeys(here))


def _name(check: Check) -> str:
    """Return the name without its group and without a mode in parentheses."""
    name = check.what.removeprefix(f"{check.group.removesuffix('s')} ")
    return name.partition(" (")[0]


def _details(check: Check) -> str:
    """Return the details of a check on one line.

    Unless the check works, the output of programs, which follows a colon, is left out. If nothing works, only
    the first clause is returned.
    """
    text = one_line(check.why)
    if check.state == WORKS:
        return text
    clauses = [clause.partition(": ")[0] for clause in text.split("; ")]
    return "; ".join(clauses if check.state == PARTLY else clauses[:1])
