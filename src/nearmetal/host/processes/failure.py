"""Describes why a program failed: the process that failed, how it ended, and its own message. No I/O.

Several processes and libraries may write to the same standard error, so its last line is only the last
choice."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

TIMED_OUT = 124
"""Exit status of a command that Host.run stopped at its timeout, as of timeout(1)."""
NOT_FOUND = 127
"""Exit status of a command that could not be started."""
CANNOT_START = "cannot be started: "
MOST_SHOWN = 300
"""Characters of a message that are shown."""

_WRAPPERS = frozenset({"nm-box", "nm-rank"})
_ERROR_LINE = '{"event":"error"'
_TRIED = 1000
"""Most damaged error lines that are tried, since Python counts the lines of the output at each of them."""
_decode = json.JSONDecoder().raw_decode
# Output that does not explain a failure. Docker ends its errors with a pointer to its help; the others are
# OpenBLAS's report of its kernels, valgrind, and log lines below the level of an error (QEMU, Go, libvirt).
_CHATTER = re.compile(
    r"See '.*|Run '.* --help' for more information|Core: \w+|==\d+==.*"
    r"|\d{4}-\d\d-\d\d \S+ \d+: (info|debug|warning) : .*"
    r"|.*\blevel=(trace|debug|info|warning)\b.*|(.*[^\w/])?(WARN|warn|Warn)(ING|ing)?[:\[\] ].*"
)
_LAUNCHER = ("[mpiexec@", "[proxy:")
# Open MPI, about the first rank that failed.
_RANK_SIGNAL = re.compile(
    r"noticed that process rank (\d{1,9}) .{0,400}? exited on\s+signal (\d{1,9})", re.DOTALL
)
_RANK_STATUS = re.compile(r"Process name: \[\[\d+,\d+\],(\d{1,9})\]\s+Exit code:\s+(\d{1,9})")


@dataclass(frozen=True, kw_only=True)
class ErrorLine:
    """An error that one of our own programs reported (kernels/common/fail.h).

    program: its name, such as "nm-dgemm".
    process: which of the program's processes failed, such as "CPU 1"; empty if the program has only one.
    """

    program: str
    process: str
    what: str

    @property
    def where(self) -> str:
        """The program and its process, such as "nm-dgemm (CPU 1)"."""
        return f"{self.program} ({self.process})" if self.process else self.program

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"[:MOST_SHOWN]


def find_error_line(output: str) -> ErrorLine | None:
    """Return the first error line, since later ones often follow from it; None if there is none.

    The line may follow an unfinished line of another process. A line that is mixed with the output of another
    process is skipped.
    """
    at = output.find(_ERROR_LINE)
    for _ in range(_TRIED):
        if at < 0:
            break
        try:
            item, _ = _decode(output, at)
        except (ValueError, RecursionError):
            item = None
        if isinstance(item, dict) and item.keys() == {"event", "program", "process", "what"}:
            program, process, what = (item[key] for key in ("program", "process", "what"))
            if isinstance(program, str) and isinstance(process, str) and isinstance(what, str):
                return ErrorLine(program=_utf8(program), process=_utf8(process), what=_utf8(what))
        at = output.find(_ERROR_LINE, at + 1)
    return None


def find_message(output: str) -> str:
    """Return the line of a foreign program's output that most likely explains its failure; '' if it is empty.

    The choices, in this order: the last line that is neither from a launcher nor a mere warning; the first
        line of the launcher; the last warning. Open MPI frames its messages by lines of dashes, and MPICH
        begins them by "=".
    """
    own = framed = chatter = ""
    inside = False
    for text in (line.strip() for line in output.splitlines()):
        words = text.lstrip("= ")[:MOST_SHOWN] if inside or text.startswith("= ") else text[:MOST_SHOWN]
        if len(text) > 9 and not text.strip("-="):
            inside = "=" in text or not inside
        elif inside:
            framed = framed or words
        elif words and _CHATTER.fullmatch(text):
            chatter = words
        elif words and not words.startswith(_LAUNCHER):
            own = words
    return own or framed or chatter


def describe_end(status: int, exit_codes: Sequence[int] = (0,)) -> str:
    """Return 'ended with 3' or 'was killed by SIGSEGV'.

    status: negative or above 128 for a signal.
    exit_codes: statuses that would have been a success.
    """
    number = status - 128 if status > 128 else -status
    try:
        return f"was killed by {signal.Signals(number).name}"
    except ValueError:
        allowed = f", not with {' or '.join(map(str, exit_codes))}" if tuple(exit_codes) != (0,) else ""
        return f"ended with {status}{allowed}"


def failed_program(argv: Sequence[str]) -> str:
    """Return the name of the program that a command line runs, inside our own wrappers and launchers."""
    names = [PurePath(word).name for word in argv]
    at = max((i for i, name in enumerate(names) if name in _WRAPPERS), default=None)
    if at is None:
        at = 0
    elif "--" in argv[at:-1]:
        at = argv.index("--", at) + 1
    if names[at:] and names[at] == "env":
        at = next((i for i in range(at + 1, len(argv)) if "=" not in argv[i]), at)
    return names[at] if names else "the program"


def launcher_of(argv: Sequence[str]) -> str:
    """Return the name of the MPI launcher that a command line begins with, '' if it begins with none."""
    name = outer_program(argv) if argv else ""
    return name if name.startswith(("mpirun", "mpiexec")) else ""


def outer_program(argv: Sequence[str]) -> str:
    """Return the name of the program that nearmetal's wrapper starts, such as a container program."""
    at = 0
    while PurePath(argv[at]).name in _WRAPPERS and "--" in argv[at:-1]:
        at = argv.index("--", at) + 1
    return PurePath(argv[at]).name


def failed_rank(output: str) -> tuple[int, int] | None:
    """Return the rank that Open MPI reports to have failed first, and its status; None if it reports none."""
    if found := _RANK_SIGNAL.search(output):
        return int(found[1]), 128 + int(found[2])
    found = _RANK_STATUS.search(output)
    return (int(found[1]), int(found[2])) if found else None


def describe_failure(
    program: str,
    status: int | None,
    stderr: str,
    stdout: str = "",
    *,
    seconds: float | None = None,
    launcher: str = "",
    find: Callable[[str], str] = find_message,
) -> str:
    """Return one line that names the process that failed, how it ended, and its own message.

    status: exit status of the launcher if there is one, else of the program; None if it still runs.
    launcher: the MPI launcher that started the program's ranks; '' without one.
    seconds: running time, shown if the program was stopped at its timeout.
    find: selects the message from the output of this program.
    """
    error = find_error_line(stderr) or find_error_line(stdout)
    if error is not None:
        return str(error)
    message = find(stderr) or find(stdout)
    if status == NOT_FOUND and message.startswith(CANNOT_START):
        return f"{program} {message}"
    if launcher:
        rank = failed_rank(stderr)
        program, status = (f"{program} (rank {rank[0]})", rank[1]) if rank else (launcher, status)
    if status is None:
        how = "has not ended"
    elif status == TIMED_OUT and seconds is not None:
        how = f"did not end within {seconds:.3g} s"
    else:
        how = describe_end(status)
    message = message.removeprefix(f"{program}: ")
    return f"{program} {how}: {message}" if message else f"{program} {how} and printed no message"


def _utf8(text: str) -> str:
    """Undo the escaping of each byte beyond ASCII as a single character (json_string in text.c). The result
    can be encoded."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text.encode(errors="replace").decode()
