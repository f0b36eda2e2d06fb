"""Options that several commands share, and the value in which they are handed on."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.exceptions import TyperException

from nearmetal.cli.options import OF_ENGINES, Require, RunOptions, with_run_options


def application(seen: list[tuple[str, RunOptions]]) -> typer.Typer:
    @with_run_options(*OF_ENGINES, "dry_run")
    def command(name: str = typer.Argument(...), *, options: RunOptions) -> int:
        seen.append((name, options))
        return 3

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    return app


def test_the_options_of_a_run_reach_a_command_as_one_value() -> None:
    seen: list[tuple[str, RunOptions]] = []
    app = application(seen)
    assert app(["quick"], standalone_mode=False) == 3
    words = ["quick", "--json", "--require", "kvm", "--results", "there", "--all"]
    app(words, standalone_mode=False)
    given = RunOptions(json=True, require=Require.KVM, results=Path("there"), everything=True)
    assert seen == [("quick", RunOptions()), ("quick", given)]
    assert given.require_kvm and not RunOptions().require_kvm


def test_a_command_may_have_another_default_than_the_others() -> None:
    seen: list[RunOptions] = []

    @with_run_options(time="90s")
    def command(*, options: RunOptions) -> int:
        seen.append(options)
        return 0

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    app([], standalone_mode=False)
    app(["--time=2m", "--width=1%"], standalone_mode=False)
    assert seen == [RunOptions(time="90s"), RunOptions(time="2m", width="1%")]
    others: list[tuple[str, RunOptions]] = []
    application(others)(["quick"], standalone_mode=False)
    assert others[0][1].time is None, "the default is that of one command"


@pytest.mark.parametrize("option", ["--engine=ssh", "--workers=2", "--dry-run"])
def test_a_command_lacks_the_options_that_it_leaves_out(option: str) -> None:
    with pytest.raises(TyperException, match="No such option"):
        application([])(["quick", option], standalone_mode=False)
