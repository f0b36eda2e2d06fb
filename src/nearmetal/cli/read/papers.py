"""The command papers. It lists the numbers and claims of papers, and the statements that do not follow from a
paper's own numbers."""

from __future__ import annotations

import typer

from ...api.papers import check_paper, find_papers, json_schema
from ...errors import ExitCode
from ...model.papers.published import Published
from ...report.tables.papers.findings import content_lines, finding_lines, head_lines, paper_json
from ..options import Json
from ..output import print_block, print_json


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
    found = find_papers(name)
    if json:
        print_json({"papers": [paper_json(p, findings=check) for p in found]})
    else:
        print_block("\n\n".join("\n".join(_lines(p, check, alone=name is not None)) for p in found))
    return int(ExitCode.FINDING if check and any(map(check_paper, found)) else ExitCode.DONE)


def _lines(paper: Published, check: bool, *, alone: bool) -> list[str]:
    out = list(head_lines(paper))
    if check:
        return [out[0], *finding_lines(paper)]
    return [*out, *content_lines(paper)] if alone else out
