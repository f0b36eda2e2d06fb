"""The table of commands, in the order of `nearmetal --help`, with their help texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Command:
    """One command of the command line.

    name: name as typed.
    place: module of this package and the function or Typer in it, separated by a colon.
    help: help text; its first sentence also appears in the list of commands.
    hidden: whether the list of commands omits it.
    several: options that take several values after one name, as in `--before A B`.
    mend: the place of a function that is called with the words of a command line that cannot be parsed. It
        returns what to do about it, or None. '' if there is no such function.
    """

    name: str
    place: str
    help: str
    hidden: bool = False
    several: tuple[str, ...] = ()
    mend: str = ""

    def spread(self, words: Sequence[str]) -> list[str]:
        """Repeat the name of each option in `several` before each of its values, as the parser requires, and
        return the words of the command line."""
        out: list[str] = []
        option = None
        for word in words:
            if word.startswith("-"):
                option = word if word in self.several else None
            elif option is not None and out[-1] != option:
                out.append(option)
            out.append(word)
        return out

    def load(self) -> Callable[..., Any]:
        """Import and return the function or Typer that runs the command."""
        return _imported(self.place)

    def what_next(self, words: Sequence[str]) -> str:
        """Return what to do about a command line that cannot be parsed."""
        remedy = _imported(self.mend)(words) if self.mend else None
        return remedy or f"nearmetal {self.name} --help"


def _imported(place: str) -> Callable[..., Any]:
    """Import a module of this package, and return the object at this place."""
    module, _, attribute = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(f".{module}", __package__), attribute)
    return found


_RESUME = "Go on with a run that was interrupted or reached no verdict."
_ANALYZE = "Print estimates and verdicts from the records on disk."

COMMANDS = (
    Command(
        "quick",
        "measure.runs:quick",
        "Compare a container with bare metal here, in about 90 seconds.\n\n"
        "It needs no file and no argument. On a machine with one CPU it measures no messages between ranks.",
    ),
    Command("run", "measure.runs:run", "Run a study: a file, a built-in study, or a study in parts."),
    Command("resume", "measure.runs:resume", _RESUME),
    Command("continue", "measure.runs:resume", _RESUME, hidden=True),
    Command(
        "run-block",
        "measure.run_block:run_block",
        "Run single rounds of a run, without an analysis.\n\n"
        "Without numbers it runs the rounds that `nearmetal run --engine` orders, until its time is nearly "
        "over: engines start it on their nodes. With --stdin, rounds are JSON values, one on each line, as "
        "--dry-run --json prints them. They count as all other rounds of the directory.",
    ),
    Command(
        "cancel",
        "measure.engines:cancel",
        "End the workers of a run.\n\n"
        "Each gives its round back and removes what it made. `nearmetal resume DIR --engine ENGINE` goes on.",
    ),
    Command(
        "weigh",
        "measure.weigh:weigh",
        "Compare environments now, without a study file.\n\n"
        "For example: nearmetal weigh native podman -w cg, or ... -- ./my_app in.txt. "
        "The first environment is the baseline. A command runs in the current directory, which every "
        "environment sees.",
        mend="separator:missing_separator",
    ),
    Command(
        "calibrate",
        "measure.calibrate:calibrate",
        "Plant known costs, and check that nearmetal finds them.\n\n"
        "It also checks that no cost is found where none was planted.",
    ),
    Command(
        "status",
        "read.results:status",
        "Print how far a run is, and whether its files are intact.",
    ),
    Command("analyze", "read.results:analyze", _ANALYZE),
    Command("analyse", "read.results:analyze", _ANALYZE, hidden=True),
    Command(
        "compare",
        "read.comparing:compare",
        "Did an upgrade hurt? Compare runs from before and after it.\n\n"
        "The unit of the comparison is the boot. --before and --after take results directories, or "
        "directories with results directories in them.",
        several=("--before", "--after"),
    ),
    Command(
        "report",
        "read.results:report",
        "Write the report again: HTML, Markdown, LaTeX, CSV, figures.",
    ),
    Command(
        "export",
        "read.results:export",
        "Write the records as CSV, JSON, Parquet or Go benchmarks.",
    ),
    Command(
        "papers",
        "read.papers:papers",
        "List papers with their numbers and claims, and check them.\n\n"
        "--check prints the statements that do not follow from the paper's own numbers, with what follows "
        "instead. A file has the format that --schema describes.",
    ),
    Command("list", "read.results:list_", "List studies, environments, kernels and results."),
    Command(
        "check",
        "machine:check",
        "Check what can run here, by starting one of each kind.\n\n"
        "Each line says what works, or why not and what to do. --all prints every detail.",
    ),
    Command(
        "clean",
        "machine:clean",
        "Remove what killed runs left on this machine.\n\n"
        "These are containers, processes, networks, mounts and control groups. With --nodes it removes them "
        "on the nodes of a cluster instead.",
    ),
    Command(
        "checkpoint",
        "moving:checkpoint",
        "Write a running instance of your own to files.\n\n"
        "An instance is a process, a container, a guest of QEMU or a domain. It ends, unless --keep-running "
        "is given; if writing it fails, it continues. `nearmetal clean` never touches it.",
    ),
    Command(
        "restore",
        "moving:restore",
        "Restore an instance of your own from a checkpoint.",
    ),
    Command(
        "migrate",
        "moving:migrate",
        "Move a running instance of your own.\n\n"
        "A guest moves to the QMP socket of a QEMU that waits for it (-incoming defer). A process or a "
        "container moves to another host, or by files in a directory. If the move fails, the instance "
        "continues here.",
    ),
    Command("kernel", "machine:kernel", "Run one kernel by itself, with its verification."),
    Command(
        "init",
        "inspect:init",
        "Write a commented study file and its JSON Schema.",
    ),
    Command(
        "plan",
        "inspect:plan",
        "Print the order of the trials and the estimated time.",
    ),
    Command(
        "try",
        "measure.try_change:try_",
        "Measure whether a change that a result suggests helps.\n\n"
        "The changed environment is compared with the unchanged one, and with the baseline.",
    ),
    Command("image", "image:app", "Build, import, list, export and remove images."),
    Command("man", "man:man", "Print the manual page, for example: nearmetal man | man -l -"),
)
