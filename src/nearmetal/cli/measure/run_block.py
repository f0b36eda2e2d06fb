"""The command run-block. It runs blocks of an existing run, and decides nothing."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...api.engines import block_orders, run_blocks_here, serve_here
from ...api.measuring import order
from ...api.results import frozen_study
from ...api.trust import require_study, require_trust
from ...errors import ExitCode, UsageError
from ...records import ResultsDirectory
from ...records.orders import order_from, order_line
from ...report.text import plural
from ..common import command_line, duration
from ..options import DryRun, Force, Lease, Trust
from ..output import print_lines
from ..trust import asker
from ..view import View
from .measuring import STARTED

if TYPE_CHECKING:
    from ...api.engines import BlockRun
    from ...model.plan import NextBlock


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
    studies: str = typer.Option(
        "", "--studies", metavar="SHA256", help="The checksum of its study, as `nearmetal run` passes it."
    ),
    trust: bool = Trust,
    force: bool = Force,
    dry_run: bool = DryRun,
) -> int:
    found = ResultsDirectory.open(directory)
    if studies:
        require_study(found.path, studies)
    else:
        require_trust(found.path, trust=trust, ask=asker(), dry_run=dry_run)
    own = order(found.path.parent, command_line(), STARTED, force=force)
    if not blocks and not stdin:
        if dry_run:
            raise UsageError("--dry-run needs the numbers of rounds, or --stdin")
        until_then, expiry = duration(time), duration(lease, "--lease")
        with View(quiet=json) as view:
            serve = partial(serve_here, seconds=until_then, lease=expiry, node=node, inside=inside)
            return _counted(lambda done: serve(found, own, done, view), json=json)
    study = frozen_study(found)
    orders: Iterable[NextBlock] = block_orders(found, study, blocks) if blocks else _orders()
    if dry_run:
        for named in orders:
            print_lines(order_line(named).decode().rstrip() if json else _as_text(named))
        return ExitCode.DONE
    with View(quiet=json) as view:
        run = partial(run_blocks_here, found, study, own, orders, progress=view, inside=inside)
        return _counted(run, json=json)


def _counted(run: Callable[[Callable[[BlockRun], None]], None], *, json: bool) -> int:
    """Run rounds and print each when it ends. Returns the exit code.

    run: runs the rounds, and calls its argument after each of them.
    """
    failed = 0

    def done(block: BlockRun) -> None:
        nonlocal failed
        failed += block.failed
        print_lines(_result(block, json=json))

    try:
        run(done)
    except KeyboardInterrupt:
        print_lines("interrupted; the rounds named above are saved", to=sys.stderr)
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED_TRIALS if failed else ExitCode.DONE


def _orders() -> Iterator[NextBlock]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        if line.strip():
            yield order_from(line, f"standard input:{number}")


def _as_text(named: NextBlock) -> str:
    arms = ", ".join(f"{t.arm} again" if t.aa else t.arm for t in named.block.trials)
    return f"round {named.block.number}, attempt {named.attempt}: {arms}"


def _result(run: BlockRun, *, json: bool) -> str:
    claim = run.claim
    if json:
        ended = {"trials": run.trials, "failed": run.failed, "seconds": round(run.seconds, 3)}
        return json_module.dumps({**claim._asdict(), **ended})
    trouble = f", {run.failed} failed" if run.failed else ""
    return f"round {claim.block}: {plural(run.trials, 'trial')}{trouble} in {run.seconds:.1f} s"
