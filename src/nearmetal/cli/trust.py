"""Asks on the terminal whether the commands of a results directory may be executed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..api.trust import Ask
from .output import confirm, print_lines


def asker() -> Ask | None:
    """Return a function that asks the user; None without a terminal."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask(directory: Path, commands: Sequence[str]) -> bool:
    print_lines(
        f"{directory}: you have not measured this with this home directory. It would execute:",
        *(f"  {command}" for command in commands),
        to=sys.stderr,
    )
    return confirm("Execute it?")
