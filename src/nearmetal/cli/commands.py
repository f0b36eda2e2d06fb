"""The table of commands, in the order of `nearmetal --help`, with the text of their help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Command:
    """One command of the command line.

    name: as it is typed.
    place: module of this package and the function or Typer in it, divided by a colon.
    help: its first sentence stands in the list of commands too.
    hidden: whether the list of commands leaves it out.
    """

    name: str
    place: str
    help: str
    hidden: bool = False

    def load(self) -> Callable[..., Any]:
        """Import what runs the command."""
        module, _, attribute = self.place.partition(":")
        found: Callable[..., Any] = getattr(import_module(f".{module}", __package__), attribute)
        return found


_RESUME = "Go on with a run that was interrupted, killed, or ended without a verdict."
_ANALYZE = "Estimates and verdicts from the records, as they are on disk."

COMMANDS = (
    Command(
        "quick",
        "runs:quick",
        "Weigh a container against bare metal on this machine: no file, no argument, about 90 seconds.",
    ),
    Command("run", "runs:run", "Run a study."),
    Command("resume", "runs:resume", _RESUME),
    Command("continue", "runs:resume", _RESUME, hidden=True),
    Command(
        "run-block",
        "run_block:run_block",
        "Run blocks of a run and record their trials, without analysing anything.\n\n"
        "Blocks given by number run whole. On standard input they are JSON values, one in each line, as "
        "--dry-run --json prints them. The analysis counts them with all other blocks of the directory.",
    ),
    Command(
        "weigh",
        "weigh:weigh",
        "Measure now, without a file: weigh native namespaces -w cg, or ... -- ./my_app in.txt.",
    ),
    Command(
        "calibrate",
        "calibrate:calibrate",
        "Show that the method tells the truth on this machine: nothing is called nothing, a cost is found.",
    ),
    Command(
        "status",
        "results:status",
        "How far a run is, whether its files are as they were when it ended, and whether one is running.",
    ),
    Command("analyze", "results:analyze", _ANALYZE),
    Command("analyse", "results:analyze", _ANALYZE, hidden=True),
    Command(
        "compare",
        "results:compare",
        "Two boot states (kernels, machines, with a hypervisor and without) compared unpaired: the boot is "
        "the replicate.",
    ),
    Command(
        "report",
        "results:report",
        "Write the report anew: one HTML page, Markdown, LaTeX, CSV, and on request every figure.",
    ),
    Command(
        "export",
        "results:export",
        "The records for other programs: tidy CSV or Parquet, JSON with the cells, or Go's benchmark format.",
    ),
    Command(
        "list", "results:list_", "Built-in studies, environments, kernels, and the results below results/."
    ),
    Command(
        "check",
        "machine:check",
        "What can run here, what not, why, and the line that mends it: found by starting one of each.",
    ),
    Command(
        "clean",
        "machine:clean",
        "Remove what a killed run left on this machine: containers, processes, networks, mounts, cgroups.",
    ),
    Command("kernel", "machine:kernel", "Run one of our kernels by itself, in full, with its verification."),
    Command(
        "init",
        "inspect:init",
        "Write a commented study file, and beside it the JSON Schema that its first line names.",
    ),
    Command(
        "plan",
        "inspect:plan",
        "Print the order of the trials as the seed gives it, and an estimate of the time.",
    ),
    Command(
        "try",
        "trying:try_",
        "Run an arm as it was beside the same arm with the suggested change: does it help?",
    ),
    Command("image", "image:app", "Root trees that environments run in."),
)
