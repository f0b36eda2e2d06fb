"""All commands, and the one place where an error becomes a line and an exit code."""

from __future__ import annotations

import os
import sys

import typer

from .. import __version__
from ..errors import ExitCode, NearmetalError
from . import inspect, machine, results, runs

app = typer.Typer(
    name="nearmetal",
    help="What do containers and virtual machines cost my workload on my machines, and is that cost real?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"nearmetal {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    del version


runs.register(app)
results.register(app)
machine.register(app)
inspect.register(app)


def main() -> None:
    """Entry point. Exit codes: see errors.ExitCode and docs/errors.md."""
    # A closed pipe (`nearmetal ... | head`) ends the tool quietly, as every other program.
    try:
        code = app(standalone_mode=False)
    except NearmetalError as e:
        print(e, file=sys.stderr)
        sys.exit(int(e.exit_code))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(int(ExitCode.INTERRUPTED))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(int(ExitCode.DONE))
    except Exception as e:
        # typer has a click of its own; its usage errors know how to show themselves.
        show = getattr(e, "show", None)
        if show is None:
            raise
        show()
        sys.exit(int(ExitCode.USAGE))
    sys.exit(code if isinstance(code, int) else int(ExitCode.DONE))
