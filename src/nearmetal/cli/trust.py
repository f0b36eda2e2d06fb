"""Asks on the terminal whether the commands of a results directory may be executed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..api.trust import Ask


def asker() -> Ask | None:
    """Return a function that asks the user; None without a terminal."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask(directory: Path, commands: Sequence[str]) -> bool:
    print(
        f"{directory}: you have not measured this with this home directory. It would execute:",
        file=sys.stderr,
    )
    for command in commands:
        print(f"  {command}", file=sys.stderr)
    print("Execute it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
