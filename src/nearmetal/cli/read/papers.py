"""The command papers. It lists the numbers and claims of papers, and the statements that do not follow from a
paper's own numbers."""

from __future__ import annotations

from pathlib import Path

import typer

from ...analysis.papers.check import check_paper
from ...errors import ExitCode, UsageError
from ...model.keys import did_you_mean
from ...model.papers.published import Published
from ...published import json_schema, load, paper_keys, published
from ...report.tables.papers import content_lines, finding_lines, head_lines, paper_json
from ..common import print_json
from ..options import Json


def papers(
    name: str = typer.Argument(
        None, metavar="[NAME|FILE]", help="A paper of the list, or a file; by default all papers are listed."
    ),
    check: bool = typer.Option(
        False, "--check", help="Print what does not follow; if there is anything, end with exit code 1."
    ),
    schema: bool = typer.Option(False, "--schema", help="Print the JSON Schema of a paper's file."),
    json: bool = Json,
) -> int:
    if schema:
        print_json(json_schema())
        return ExitCode.DONE
    found = [_paper(key) for key in ([name] if name else paper_keys())]
    if json:
        print_json({"papers": [paper_json(p, findings=check) for p in found]})
    else:
        print("\n\n".join("\n".join(_lines(p, check, alone=name is not None)) for p in found))
    return int(ExitCode.FINDING if check and any(map(check_paper, found)) else ExitCode.DONE)


def _paper(name: str) -> Published:
    """Return a built-in paper, or the paper of a file.

    name: key of the paper, or path of the file.

    Raises UsageError or PaperFileError.
    """
    if name in paper_keys() and not Path(name).exists():
        paper = published(name)
        assert paper is not None, "the key is one of them"
        return paper
    if not Path(name).exists() and not name.endswith(".toml"):
        raise UsageError(f'no paper "{name}"{did_you_mean(name, paper_keys())}', remedy="nearmetal papers")
    return load(Path(name))


def _lines(paper: Published, check: bool, *, alone: bool) -> list[str]:
    out = list(head_lines(paper))
    if check:
        return [out[0], *finding_lines(paper)]
    return [*out, *content_lines(paper)] if alone else out
