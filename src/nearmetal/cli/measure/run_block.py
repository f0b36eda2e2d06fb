"""The command run-block. It runs blocks of an existing run, and decides nothing."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import typer

from ...api.engines import serve_here
from ...api.measuring import machine_for
from ...api.results import frozen_study
from ...errors import ExitCode, UsageError
from ...host.cgroups import inside_own_group
from ...records import ResultsDirectory
from ...records.orders import order_from, order_line
from ...report.text import plural
from ..common import command_line, duration
from ..options import DryRun, Force, Lease
from ..view import View
from .engines import lease_of
from .measuring import STARTED

if TYPE_CHECKING:
    from ...model.plan import NextBlock
    from ...run.workers.worker import BlockRun


def run_block(
    directory: Path = typer.Argument(metavar="DIR", help="A results directory whose run has begun."),
    blocks: list[int] = typer.Argument(
        None, metavar="BLOCK", help="Numbers of rounds; by default those that `nearmetal run` orders.", min=1
    ),
    stdin: bool = typer.Option(False, "--stdin", help="Run the rounds that standard input names."),
    time: str = typer.Option(
        None, "--time", metavar="TIME", help="Without numbers: end before this time is over, such as 2h."
    ),
    inside: bool = typer.Option(
        False, "--inside", help="Make control groups only below that of this command."
    ),
    node: str = typer.Option(
        "", "--node", metavar="NAME", help="Without numbers: the name of this node in the run."
    ),
    lease: str = Lease,
    json: bool = typer.Option(False, "--json", help="One line of JSON for each round."),
    force: bool = Force,
    dry_run: bool = DryRun,
) -> int:
    from ...run.workers import serving, worker

    found = ResultsDirectory.open(directory)
    if not blocks and not stdin:
        if dry_run:
            raise UsageError("--dry-run needs the numbers of rounds, or --stdin")
        seconds = duration(time)
        terms = serving.Terms(
            until=None if seconds is None else monotonic() + seconds,
            inside=inside,
            command=command_line(),
            started=STARTED,
            lease=lease_of(lease),
            node=node,
            force=force,
        )
        with View(quiet=json) as view:
            return _counted(lambda done: serve_here(found, terms, done, view), json=json)
    study = frozen_study(found)
    if len(set(blocks or ())) < len(blocks or ()):
        raise UsageError("a round is named twice")
    orders: Iterable[NextBlock] = worker.whole_blocks(study, found, blocks) if blocks else _orders()
    if dry_run:
        for order in orders:
            text = order_line(order).decode() if json else f"{_as_text(order)}\n"
            sys.stdout.write(text)
        return ExitCode.DONE
    with View(quiet=json) as view, ExitStack() as stack:
        if inside:
            stack.enter_context(inside_own_group())
        machine, study = machine_for(study, view)
        return _counted(
            lambda done: worker.run_orders(
                machine, study, found, orders, done, view, command=command_line(), force=force
            ),
            json=json,
        )


def _counted(run: Callable[[Callable[[BlockRun], None]], None], *, json: bool) -> int:
    """Run rounds and print each when it ends. Returns the exit code.

    run: runs the rounds, and calls its argument after each of them.
    """
    failed = 0

    def done(block: BlockRun) -> None:
        nonlocal failed
        failed += block.failed
        print(_result(block, json=json), flush=True)

    try:
        run(done)
    except KeyboardInterrupt:
        print("interrupted; the rounds named above are saved", file=sys.stderr)
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED_TRIALS if failed else ExitCode.DONE


def _orders() -> Iterator[NextBlock]:
    for line in sys.stdin.buffer:
        if line.strip():
            yield order_from(line)


def _as_text(order: NextBlock) -> str:
    arms = ", ".join(f"{t.arm} again" if t.aa else t.arm for t in order.block.trials)
    return f"round {order.block.number}, attempt {order.attempt}: {arms}"


def _result(run: BlockRun, *, json: bool) -> str:
    claim = run.claim
    if json:
        ended = {"trials": run.trials, "failed": run.failed, "seconds": round(run.seconds, 3)}
        return json_module.dumps({**claim._asdict(), **ended})
    trouble = f", {run.failed} failed" if run.failed else ""
    return f"round {claim.block}: {plural(run.trials, 'trial')}{trouble} in {run.seconds:.1f} s"
