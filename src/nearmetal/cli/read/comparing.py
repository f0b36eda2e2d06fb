"""The command compare: did an upgrade hurt?"""

from __future__ import annotations

import os
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...errors import ExitCode, UsageError
from ...plain_text import one_line
from ...records.disk import write_output
from ...report.forms.upgrade import upgrade_text
from ...report.tables.upgrade import FORMAT, Upgrade, UpgradeAnswer, upgrade_json
from ..common import FailOn
from ..measure.measuring import margin_of
from ..options import Json
from ..output import complain, print_json, print_lines, print_text
from ..view import analysed
from .present import output_columns

if TYPE_CHECKING:
    from ...api.comparing_series import ComparedPart
    from ...api.results import Results
    from ...records import ResultsDirectory


def compare(
    before: list[Path] = typer.Option(
        [], "--before", metavar="DIR...", help="Results directories from before the upgrade."
    ),
    after: list[Path] = typer.Option(
        [], "--after", metavar="DIR...", help="Results directories from after the upgrade."
    ),
    margin: str = typer.Option(
        None,
        "--margin",
        metavar="SHARE",
        help="Smallest overhead that matters; exploratory if it differs from that of the studies.",
    ),
    fail_on: FailOn = typer.Option(
        FailOn.NOTHING,
        "--fail-on",
        help="When to end with exit code 1: after a material slowdown, or also without a verdict.",
    ),
    against: list[str] = typer.Option(
        [],
        "--pair",
        metavar="BEFORE=AFTER",
        help="Compare one environment before with another one after; repeatable.",
    ),
    html: Path = typer.Option(
        None, "--html", metavar="FILE", help="Write the answer to this file as a page."
    ),
    everything: bool = typer.Option(False, "--all", help="Print every comparison."),
    json: bool = Json,
    unnamed: list[Path] = typer.Argument(None, metavar="", hidden=True),
) -> int:
    from ...api import comparing
    from ...api.comparing_series import compare_series

    if unnamed or not before or not after:
        sides = unnamed or []
        if len(sides) == 2 and sides[0].resolve() == sides[1].resolve():
            raise UsageError(
                f"{sides[0]} is given twice: it does not differ from itself", remedy=comparing.OTHER_BOOT
            )
        raise UsageError("name the runs of both sides", remedy=_line(before, after, sides))

    def quietly(directory: ResultsDirectory) -> Results:
        return analysed(directory, quiet=json)

    wide = margin_of(margin)
    pairs = [_pair(text) for text in against]
    compared = partial(comparing.compare, margin=wide, against=pairs, note=complain, analyse=quietly)
    parts = compare_series(before, after, compared)
    if parts:
        if html is not None:
            raise UsageError("--html: a page shows one part", remedy="name the directories of one part")
        return _show_parts(parts, json=json, everything=everything, fail_on=fail_on)
    u = compared(before, after)
    page = None if html is None else str(html)
    if html is not None:
        from ...report.page.upgrade import upgrade_page

        _write(html, upgrade_page(u))
    if json:
        print_json(upgrade_json(u, page=page))
    else:
        print_text(upgrade_text(u, page=page, width=output_columns(), everything=everything))
    return _exit_code(u, fail_on)


def _show_parts(parts: tuple[ComparedPart, ...], *, json: bool, everything: bool, fail_on: FailOn) -> int:
    """Show the answer of every part of a series. Returns the largest exit code of them."""
    if json:
        print_json(
            {
                "format": FORMAT,
                "parts": [
                    {
                        "part": p.key,
                        "title": p.title,
                        "why": p.why,
                        "result": None if p.upgrade is None else upgrade_json(p.upgrade, page=None),
                    }
                    for p in parts
                ],
            }
        )
    else:
        for p in parts:
            print_lines(f"{p.key}: {one_line(p.title)}")
            if p.upgrade is None:
                print_lines(f"not compared: {p.why}")
            else:
                print_text(upgrade_text(p.upgrade, page=None, width=output_columns(), everything=everything))
            print_lines("")
    codes = [_exit_code(p.upgrade, fail_on) for p in parts if p.upgrade is not None]
    lost = fail_on is FailOn.UNDECIDED and any(p.lost for p in parts)
    return max([*codes, ExitCode.FINDING if lost else ExitCode.DONE])


def _line(before: list[Path], after: list[Path], unnamed: list[Path]) -> str:
    """Return the command line with names for both sides, given one unnamed directory for each side."""
    missing = iter(unnamed)
    sides = [side or [next(missing, Path("DIR"))] for side in (before, after)]
    old, new = (" ".join(shlex.quote(str(p)) for p in side) for side in sides)
    return f"nearmetal compare --before {old} --after {new}"


def _pair(text: str) -> tuple[str, str]:
    first, _, second = text.partition("=")
    if not first or not second or "=" in second:
        raise UsageError(f'--pair: "{text[:60]}" is not BEFORE=AFTER', remedy="--pair bare=pv")
    return first, second


def _write(file: Path, text: str) -> None:
    try:
        write_output(file, text.encode())
    except OSError as e:
        raise UsageError(f"cannot be written: {e.strerror}", where=os.fspath(file)) from e


def _exit_code(u: Upgrade, fail_on: FailOn) -> ExitCode:
    if fail_on is FailOn.MATERIAL and u.answer is UpgradeAnswer.YES:
        return ExitCode.FINDING
    if fail_on is FailOn.UNDECIDED and u.answer in (UpgradeAnswer.OPEN, UpgradeAnswer.IMPOSSIBLE):
        return ExitCode.FINDING
    return ExitCode.FAILED_TRIALS if u.failed_trials else ExitCode.DONE
