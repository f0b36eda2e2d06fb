"""All errors that a user can meet: exit code, what went wrong, where it happened, what to do next. This
module imports nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple

from .plain_text import keep_in_line


class ExitCode(IntEnum):
    """Exit codes of every command.

    FINDING: the command found what a script may test for: a condition of --fail-on, a failed calibration, or
        a statement of a paper that does not follow.
    UNAVAILABLE: this machine lacks something, or another run holds it.
    FAILED_TRIALS: trials failed, or a step of the command failed.
    DEFECT: a defect of nearmetal itself (EX_SOFTWARE). It is not 1, Python's code for an uncaught exception,
        so that no script mistakes a defect for a finding.
    """

    DONE = 0
    FINDING = 1
    USAGE = 2
    UNAVAILABLE = 3
    FAILED_TRIALS = 4
    DEFECT = 70
    INTERRUPTED = 130


REMEDY = "\n  next: "
"""What separates an error from its remedy in a text."""


class NearmetalError(Exception):
    """Base of all errors that are shown to the user as one line, never as a traceback. A line break in one of
    the texts is written out, so that none of them can pretend to be another.

    what: what went wrong.
    where: file:line:column, directory or command.
    remedy: what to do next.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.remedy = what, where, remedy

    def __str__(self) -> str:
        what, where, remedy = map(keep_in_line, (self.what, self.where, self.remedy))
        head = f"{where}: {what}" if where else what
        return f"{head}{REMEDY}{remedy}" if remedy else head


class Mark(NamedTuple):
    """A position in a text file; line and column count from 1."""

    line: int
    column: int

    @classmethod
    def after(cls, before: str) -> Mark:
        """Return the position of the character that follows `before`, the beginning of a text."""
        return cls(before.count("\n") + 1, len(before) - before.rfind("\n"))


class UsageError(NearmetalError):
    """The command line requests something that does not exist or is not valid."""


@dataclass(frozen=True, kw_only=True)
class StudyProblem:
    """One mistake in a file; line and column count from 1."""

    file: str
    line: int
    column: int
    what: str

    def __str__(self) -> str:
        return keep_in_line(f"{self.file}:{self.line}:{self.column}  {self.what}")


class FileError(NearmetalError):
    """A file with one or more mistakes, each with its position.

    noun: what the file is, for messages, such as 'study'.
    ending: text of the message after the number of mistakes.
    """

    noun: ClassVar[str]
    ending: ClassVar[str]

    def __init__(self, problems: tuple[StudyProblem, ...]) -> None:
        self.problems = problems
        count = f"{len(problems)} error{'s' if len(problems) != 1 else ''}"
        super().__init__("\n".join([*map(str, problems), f"{count}{self.ending}"]))

    def __str__(self) -> str:
        return self.what


class StudyError(FileError):
    """A study file with one or more mistakes; nothing was started."""

    noun = "study"
    ending = "; nothing was started.  Keys and units: nearmetal init --explain"


class PaperFileError(FileError):
    """A file with numbers and claims of a paper that has one or more mistakes."""

    noun = "paper"
    ending = ".  Keys and their meaning: nearmetal papers --schema"


class InventoryError(FileError):
    """A list of nodes that has one or more mistakes."""

    noun = "inventory"
    ending = "; no node was contacted.  An example: examples/hosts.yaml"


class UnavailableError(NearmetalError):
    """An environment, program or privilege that this machine lacks."""

    exit_code = ExitCode.UNAVAILABLE


class RunError(NearmetalError):
    """A step of a run failed; earlier measurements are kept."""

    exit_code = ExitCode.FAILED_TRIALS


class TrialFailedError(RunError):
    """One trial failed (launch, time-out, verification, unreadable output); the run continues."""


class BusyError(NearmetalError):
    """Another run holds this machine."""

    exit_code = ExitCode.UNAVAILABLE


class RecordsError(NearmetalError):
    """A results directory cannot be read or written."""


class DiskFullError(RecordsError):
    """No space left for records; everything written before is complete."""

    exit_code = ExitCode.FAILED_TRIALS
