"""Which room of nearmetal calls which other, and how often, while a command runs.

python scripts/walk.py [-o FILE] WORD...: the words of a nearmetal command. Calls from one room to another
are counted by sys.setprofile in all threads of the process and printed as a table, most first; with -o they
are written as a flow chart in Mermaid, too."""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

ROOT = "nearmetal"
_room_of: dict[str, str | None] = {}


def room(frame: FrameType) -> str | None:
    """The room that a frame's code belongs to; None outside of nearmetal."""
    name = frame.f_globals.get("__name__", "")
    if name not in _room_of:
        parts = name.split(".")
        _room_of[name] = parts[1] if parts[0] == ROOT and len(parts) > 1 else None
    return _room_of[name]


class Walk:
    """Calls by room of the caller and room of the callee. What lies outside of nearmetal is passed over: a
    library that calls back stands for who called it."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (into := room(frame)) is None:
            return
        caller = frame.f_back
        while caller is not None and room(caller) is None:
            caller = caller.f_back
        if caller is not None and (out := room(caller)) is not None and out != into:
            self.calls[out, into] += 1


def chart(calls: Counter[tuple[str, str]]) -> str:
    """The walk as a flow chart, one arrow for each pair of rooms."""
    arrows = [f"  {out} -->|{n:,}| {into}" for (out, into), n in calls.most_common()]
    return "\n".join(["flowchart TD", *arrows]) + "\n"


def main() -> None:
    """Run the command and print the walk; its exit code is passed on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("words", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    sys.argv = [ROOT, *given.words]
    from nearmetal.cli.app import main as nearmetal

    walk, code = Walk(), 0
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        nearmetal()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    for (out, into), n in walk.calls.most_common():
        print(f"{out:<14}{into:<14}{n:>10,}", file=sys.stderr)
    if given.output is not None:
        given.output.write_text(chart(walk.calls))
    sys.exit(code)


if __name__ == "__main__":
    main()
