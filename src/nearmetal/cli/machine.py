"""Commands about this machine: check, clean, kernel."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from ..api.catalog import catalog
from ..api.checking import can_measure
from ..api.checking import check as check_all
from ..api.workload_names import read_values
from ..environments.kept import find_all, remove_any
from ..errors import ExitCode, NearmetalError, UsageError
from ..host import LocalHost
from ..host.facts.provenance import cpu_summary, provenance
from ..host.lock import machine_lock
from ..host.runtime import scratch_directory
from ..workloads.kernels.contract import CLASSES
from ..workloads.kernels.registry import kernel as kernel_named
from ..workloads.kernels.registry import kernel_names
from .check_text import WIDTH, all_lines, short_lines
from .common import print_json
from .profile import profile_lines
from .view import View

if TYPE_CHECKING:
    pass

Json = typer.Option(False, "--json", help="The result as JSON on standard output.")


def check(
    everything: bool = typer.Option(False, "--all", help="Show every detail, and what to do about it."),
    json: bool = Json,
) -> int:
    with View(quiet=json) as view:
        found = check_all(view)
    facts = provenance(LocalHost())
    if json:
        print_json({"machine": facts, "checks": [asdict(c) for c in found]})
    else:
        print(cpu_summary(facts))
        columns = shutil.get_terminal_size((WIDTH, 24)).columns
        print("\n".join(all_lines(found) if everything else short_lines(found, columns)))
    return int(ExitCode.DONE if can_measure(found) else ExitCode.UNAVAILABLE)


def clean(
    dry_run: bool = typer.Option(False, "--dry-run", help="Name what is left, and remove nothing."),
    json: bool = Json,
) -> int:
    host = LocalHost()
    found = find_all(host)
    failures: list[str] = []
    for item in found:
        if not dry_run:
            try:
                remove_any(host, item)
            except NearmetalError as e:
                failures.append(str(e))
    left = found if dry_run else find_all(host)
    if json:
        print_json(
            {
                "found": [asdict(i) for i in found],
                "left": [asdict(i) for i in left],
                "failures": list(failures),
            }
        )
    else:
        for item in found:
            state = "found" if dry_run else "LEFT" if item in left else "removed"
            print(f"{state}  {item.kind}  {item.name}")
        if not found:
            print("nothing of nearmetal is left on this machine")
        for text in failures:
            print(text, file=sys.stderr)
    return int(ExitCode.DONE if dry_run or not left else ExitCode.FAILED_TRIALS)


def kernel(
    name: str = typer.Argument(..., metavar="KERNEL", help=f"One of {', '.join(kernel_names())}."),
    problem: str = typer.Option(
        "S", "--class", metavar="CLASS", help=f"Class {', '.join(CLASSES)} of a NAS benchmark."
    ),
    ranks: int = typer.Option(
        None, "--ranks", metavar="N", min=1, help="MPI ranks; 2, or 1 where it does not run on 2."
    ),
    threads: int = typer.Option(
        1, "--threads", metavar="N", min=1, help="Threads of each rank, where the kernel can."
    ),
    oversubscribe: bool = typer.Option(
        False, "--oversubscribe", help="Let ranks share CPUs, if there are more ranks than CPUs."
    ),
    parameters: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="A parameter of the kernel; repeatable."
    ),
    profile: bool = typer.Option(
        False, "--profile", help="Also where each rank's time went, and what it sent to whom."
    ),
    json: bool = Json,
) -> int:
    from ..node.machine import new_label, prepare_machine
    from ..run.once import run_once

    settings = _pairs(parameters)
    if "class" in catalog().kernels.get(name, {}):
        settings.setdefault("class", problem)
    known = catalog().kernels
    if name not in known:
        raise UsageError(f"no kernel {name}", remedy=f"one of {', '.join(known)}")
    params = read_values(name, settings, known[name])
    with View(quiet=json) as view:
        machine = prepare_machine(LocalHost(), view)
    if ranks is None:
        ranks = 2 if len(machine.cpus) > 1 and kernel_named(name).ranks.allow(2) else 1
    label = new_label()
    with machine_lock(label, command=f"nearmetal kernel {name}"), scratch_directory(label) as scratch:
        result = run_once(
            machine,
            name,
            ranks,
            params,
            threads=threads,
            label=label,
            scratch=scratch,
            profiled=profile,
            oversubscribe=oversubscribe,
        )
    if json:
        print_json(result.as_json())
    else:
        print(result)
        print("\n".join(profile_lines(result.profile)), end="\n" if profile else "")
    return int(ExitCode.DONE if result.verified else ExitCode.FAILED_TRIALS)


def _pairs(texts: list[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise UsageError(f"--set {text!r} is not key=value")
        out[key] = value
    return out
