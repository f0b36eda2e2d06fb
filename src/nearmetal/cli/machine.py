"""Commands about this machine: check, clean, kernel."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict

import typer

from ..api.checking import can_measure, cpu_summary, machine_facts
from ..api.checking import check as check_all
from ..api.cleaning import Cleaned, find_leftovers
from ..api.cleaning import clean as clean_all
from ..api.kernels import CLASSES, kernel_names, run_kernel
from ..api.nodes import NodeCleaned, NodesCheck, check_nodes, clean_nodes
from ..errors import ExitCode, UsageError
from .check_text import WIDTH, all_lines, short_lines
from .nodes_text import nodes_lines
from .options import Json, Nodes
from .output import print_json, print_lines, show
from .profile import profile_lines
from .view import View


def check(
    everything: bool = typer.Option(False, "--all", help="Print every detail, and what to do about it."),
    nodes: str = Nodes,
    json: bool = Json,
) -> int:
    if nodes is not None:
        return _check_nodes(nodes, everything=everything, json=json)
    with View(quiet=json) as view:
        found = check_all(view)
    facts = machine_facts()
    lines = all_lines(found) if everything else short_lines(found, _columns())
    form = {"machine": facts, "checks": [asdict(c) for c in found]}
    show(form, [cpu_summary(facts), *lines], json=json)
    return ExitCode.DONE if can_measure(found) else ExitCode.UNAVAILABLE


def _columns() -> int:
    return shutil.get_terminal_size((WIDTH, 24)).columns


def _check_nodes(source: str, *, everything: bool, json: bool) -> int:
    with View(quiet=json) as view:
        found = check_nodes(source, view)
    show(_nodes_form(found), nodes_lines(found, _columns(), everything=everything), json=json)
    return ExitCode.DONE if found.usable else ExitCode.UNAVAILABLE


def _nodes_form(found: NodesCheck) -> dict[str, object]:
    """Return the result as JSON values."""
    return {
        "differences": [{"what": d.what, "values": d.values} for d in found.differences],
        "alike": dict(found.alike),
        "nodes": {
            node.name: {"answered": True, "machine": node.machine, "checks": [asdict(c) for c in node.checks]}
            if node.answered
            else {"answered": False, "reason": node.reason, "remedy": node.remedy}
            for node in found.nodes
        },
    }


def clean(
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what is left, and remove nothing."),
    nodes: str = Nodes,
    spare: list[str] = typer.Option([], "--spare", hidden=True, help="A run that must not be disturbed."),
    json: bool = Json,
) -> int:
    if nodes is not None:
        return _clean_nodes(nodes, dry_run=dry_run, json=json)
    done = find_leftovers(spare) if dry_run else clean_all(spare)
    if json:
        print_json(_cleaned_form(done))
    else:
        _print_cleaned(done, dry_run=dry_run, where="on this machine")
    return ExitCode.DONE if dry_run or not done.left else ExitCode.FAILED_TRIALS


def _cleaned_form(done: Cleaned) -> dict[str, object]:
    """Return the result as JSON values."""
    return {
        "found": [asdict(i) for i in done.found],
        "left": [asdict(i) for i in done.left],
        "failures": list(done.failures),
        "not_searched": list(done.not_searched),
    }


def _print_cleaned(done: Cleaned, *, dry_run: bool, where: str, before: str = "") -> None:
    """Print what was found, and whether it was removed.

    where: the machine, as the end of a sentence: 'on this machine'.
    before: text at the beginning of each line.
    """
    for item in done.found:
        state = "found" if dry_run else "LEFT" if item in done.left else "removed"
        print_lines(f"{before}{state}  {item.kind}  {item.name}")
    for item in done.left:
        if item not in done.found:
            print_lines(f"{before}LEFT  {item.kind}  {item.name}")
    if not done.found and not done.left:
        print_lines(f"nothing of nearmetal is {'found' if done.not_searched else 'left'} {where}")
    for text in (*done.failures, *done.not_searched):
        print_lines(f"{before}{text}", to=sys.stderr)


def _clean_nodes(source: str, *, dry_run: bool, json: bool) -> int:
    with View(quiet=json) as view:
        found = clean_nodes(source, view, dry_run=dry_run)
    if json:
        print_json({"nodes": {node.name: _node_form(node) for node in found}})
    else:
        for node in found:
            if node.cleaned is not None:
                where, before = f"on {node.name}", f"{node.name}  "
                _print_cleaned(node.cleaned, dry_run=dry_run, where=where, before=before)
            else:
                text = f"{node.name} did not answer: {node.reason}"
                print_lines(f"{text}. Next: {node.remedy}" if node.remedy else text, to=sys.stderr)
    if any(node.cleaned is None for node in found):
        return ExitCode.UNAVAILABLE
    left = any(node.cleaned.left for node in found if node.cleaned is not None)
    return ExitCode.DONE if dry_run or not left else ExitCode.FAILED_TRIALS


def _node_form(node: NodeCleaned) -> dict[str, object]:
    if node.cleaned is None:
        return {"answered": False, "reason": node.reason, "remedy": node.remedy}
    return {"answered": True, **_cleaned_form(node.cleaned)}


def kernel(
    name: str = typer.Argument(..., metavar="KERNEL", help=f"One of {', '.join(kernel_names())}."),
    problem: str = typer.Option(
        "S", "--class", metavar="CLASS", help=f"Class {', '.join(CLASSES)} of a NAS benchmark."
    ),
    ranks: int = typer.Option(
        None,
        "--ranks",
        metavar="N",
        min=1,
        help="MPI ranks; by default 2, or 1 if the kernel does not run on 2.",
    ),
    threads: int = typer.Option(
        1, "--threads", metavar="N", min=1, help="Threads of each rank, if the kernel has them."
    ),
    oversubscribe: bool = typer.Option(
        False, "--oversubscribe", help="Let ranks share CPUs, if there are more ranks than CPUs."
    ),
    parameters: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="A parameter of the kernel; repeatable."
    ),
    profile: bool = typer.Option(
        False, "--profile", help="Print where each rank's time went, and what it sent to whom."
    ),
    json: bool = Json,
) -> int:
    result = run_kernel(
        name,
        _pairs(parameters),
        size=problem,
        ranks=ranks,
        threads=threads,
        oversubscribe=oversubscribe,
        profile=profile,
        view=View(quiet=json),
    )
    if json:
        print_json(result.as_json())
    else:
        print_lines(*str(result).splitlines(), *profile_lines(result.profile))
    return ExitCode.DONE if result.verified else ExitCode.FAILED_TRIALS


def _pairs(texts: list[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise UsageError(f"--set {text!r} is not key=value")
        out[key] = value
    return out
