"""Commands that measure nothing: init and plan."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from ..api.estimates import foreseen
from ..api.measuring import within
from ..api.series.files import series_output, write_series_files
from ..api.series.planning import planned_series, requested_series
from ..api.studies import explanation, schema_of_studies, study_from, template, write_template
from ..errors import ExitCode, UsageError
from ..model.series import Scale
from ..studies import series_names
from .common import duration, in_parts
from .options import BackendOption, Only, ScaleOption, Seed
from .output import complain, print_block, print_json, print_lines
from .plan_text import show_plan
from .series import show_series


def init(
    target: str = typer.Argument(
        "study.yaml", metavar="FILE|NAME", help="The file to write, or the name of a built-in study in parts."
    ),
    directory: Path = typer.Argument(
        None, metavar="DIR", help="Of a study in parts: where to write its files; by default NAME."
    ),
    scale: Scale = ScaleOption,
    explain: bool = typer.Option(False, "--explain", help="Print every key and unit, and write nothing."),
    schema: bool = typer.Option(False, "--schema", help="Print the JSON Schema, and write nothing."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the study, and write nothing."),
) -> int:
    if explain:
        print_block(explanation())
    elif schema:
        print_json(schema_of_studies())
    elif target in series_names() or directory is not None or scale is not None:
        _init_series(target, directory, scale or Scale.SMALL, dry_run=dry_run)
    elif dry_run:
        print_block(template())
    else:
        path = Path(target)
        print_lines(f"{path} and {write_template(path)}; next: nearmetal plan {shlex.quote(str(path))}")
    return ExitCode.DONE


def _init_series(name: str, directory: Path | None, scale: Scale, *, dry_run: bool) -> None:
    if name not in series_names():
        raise UsageError(f"no study in parts is called {name}", remedy=f"one of: {', '.join(series_names())}")
    if dry_run:
        texts = series_output(name, scale)
        print_block("\n".join(f"# {file}\n{text}" for file, text in texts.items() if file.endswith(".yaml")))
        return
    into = directory or Path(name)
    files = write_series_files(name, scale, into)
    print_lines(f"{len(files)} files in {into}; next: nearmetal plan {shlex.quote(str(into))}")


def plan(
    study_file: str = typer.Argument(
        "quick", metavar="STUDY", help="A study file, a built-in study, or the directory of a study in parts."
    ),
    seed: int = Seed,
    blocks: int = typer.Option(None, "--blocks", metavar="N", min=1, help="Number of rounds to print."),
    scale: Scale = ScaleOption,
    only: list[str] = Only,
    backend: str = BackendOption,
    time: str = typer.Option(
        None, "--time", metavar="TIME", help="Time budget, such as 10m; of a study in parts, for all parts."
    ),
    json: bool = typer.Option(False, "--json", help="The plan as JSON on standard output."),
) -> int:
    source = in_parts(study_file, scale=scale, only=only, backend=backend)
    if source is not None:
        found = requested_series(
            source, scale=scale, only=only, backend=backend, time=duration(time), seed=seed
        )
        show_series(planned_series(found), json=json, blocks=blocks)
        return ExitCode.DONE
    study = foreseen(within(study_from(study_file, seed, complain), duration(time)))
    show_plan(study, json=json, blocks=blocks, shown=study_file)
    return ExitCode.DONE
