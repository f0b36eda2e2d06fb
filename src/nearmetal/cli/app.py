"""All commands, and the only place where an error becomes a message and an exit code."""

from __future__ import annotations

import codecs
import io
import os
import sys
import traceback
from collections.abc import Container, Sequence
from pathlib import Path

import typer
from typer.exceptions import TyperException

from .. import __version__
from ..errors import ExitCode, NearmetalError
from .commands import COMMANDS
from .help_text import NearmetalCommand
from .output import clean_output, print_block, print_lines


def _version(show: bool) -> None:
    if show:
        print_lines(f"nearmetal {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def _not_named() -> None:
    """Stand in for a command that is not on the command line: `nearmetal --help` lists the command, and its
    module is not imported."""


def application(words: Container[str]) -> typer.Typer:
    """Return the command line with all commands.

    words: words of the actual command line. The modules of other commands are not imported.
    """
    app = typer.Typer(
        name="nearmetal",
        help="Measure what containers and virtual machines cost a workload, and whether that cost is real.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for command in COMMANDS:
        run = command.load() if command.name in words else _not_named
        if isinstance(run, typer.Typer):
            app.add_typer(run, name=command.name, help=command.help)
        else:
            app.command(command.name, cls=NearmetalCommand, help=command.help, hidden=command.hidden)(run)
    return app


def _next(words: Sequence[str]) -> str:
    """Return what to do about a command line that cannot be parsed."""
    for command in COMMANDS:
        if command.name == words[0]:
            return command.what_next(words)
    return "nearmetal --help"


def _words_to_complete() -> list[str]:
    """Return the command line that a shell wants to complete. Typer's scripts pass it in the environment."""
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()


def _reader_gone() -> int:
    """Return the exit code if the reader of the output has closed the pipe, as in `nearmetal ... | head`.

    Standard output is redirected to /dev/null, so that Python reports no error when it flushes the output at
    its end.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    return ExitCode.DONE


def main() -> None:
    """Entry point. Exit codes: errors.ExitCode."""
    sys.exit(int(run_command()))


#: Replacements for signs that the output cannot encode.
_SIGNS = {
    "×": "x",
    "−": "-",
    "±": "+-",
    "…": "...",
    "∞": "inf",
    "·": "-",
    "▲": "^",
    "▼": "v",
    "µ": "u",
    "≥": ">=",
    "≤": "<=",
    "→": "->",
    "–": "-",
    "—": "-",
    "─": "-",
}


def plain_signs(error: UnicodeError) -> tuple[str, int]:
    """Return a replacement for characters that an encoding lacks, and the position where encoding goes on.

    This is an error handler for codecs.register_error().
    """
    assert isinstance(error, UnicodeEncodeError)
    signs = error.object[error.start : error.end]
    return "".join(_SIGNS.get(sign, "?") for sign in signs), error.end


def _encode_all() -> None:
    """Make every text printable, whatever the encoding of the terminal or the pipe."""
    codecs.register_error("plain-signs", plain_signs)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain-signs")


def _open_streams() -> None:
    """Give closed standard streams /dev/null. The next file that is opened would else have their number, and
    programs would get it as their input."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w")
    sys.stderr = sys.stderr or nowhere.open("w")


def run_command() -> int:
    _open_streams()
    _encode_all()
    with clean_output():
        return _run_command()


def _run_command() -> int:
    words = sys.argv[1:] or ["--help"]
    for command in COMMANDS:
        if command.name == words[0]:
            words = command.spread(words)
    try:
        app = application([*words, *_words_to_complete()])
        code = app(args=words, prog_name="nearmetal", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else ExitCode.DONE
    except NearmetalError as e:
        print_block(str(e), to=sys.stderr)
        return e.exit_code
    except TyperException as e:
        print_lines(e.format_message(), f"  next: {_next(words)}", to=sys.stderr)
        return ExitCode.USAGE
    except KeyboardInterrupt:
        print_lines("interrupted", to=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as e:
        # Typer turns a broken pipe into exit status 1.
        if isinstance(e.__context__, BrokenPipeError):
            return _reader_gone()
        raise
    except OSError as e:
        # An unexpected error of files and disks. The exit code is that of a run that could not continue.
        print_lines(f"{e.filename or 'the system'}: {e.strerror or e}", to=sys.stderr)
        return ExitCode.FAILED_TRIALS
    except Exception as e:
        if isinstance(e, ModuleNotFoundError) and e.name and e.name.partition(".")[0] != "nearmetal":
            missing = f"nearmetal needs the Python module {e.name}, which is not installed"
            print_lines(missing, f"  next: {sys.executable} -m pip check names its package", to=sys.stderr)
            return ExitCode.UNAVAILABLE
        traceback.print_exc()
        print_lines("this is a defect of nearmetal: please report it with the lines above", to=sys.stderr)
        return ExitCode.DEFECT
