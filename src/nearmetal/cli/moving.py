"""Commands about instances of the user's own: checkpoint, restore, migrate."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from ..api.moves import moving
from ..api.moves.plans import USUAL_BOUND
from ..errors import ExitCode, UsageError
from ..lifecycle import Bounded, Estimate, Method
from ..model.keys import alternatives
from ..model.record import JsonValue
from ..records.json_files import to_json
from ..units import parse_rate
from .common import duration, quantity
from .options import Json
from .output import show
from .view import View

Instance = typer.Argument(..., metavar="INSTANCE", help=f"{alternatives(moving.FORMS)}.")
MethodOption = typer.Option(
    Method.AUTO, "--method", metavar="METHOD", help=f"{', '.join(m.value for m in Method)}."
)
TimeLimit = typer.Option("10m", "--time-limit", metavar="TIME", help="Give up after this time.")
DryRun = typer.Option(False, "--dry-run", help="Print the prediction, and change nothing.")


@contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt in the body at the first SIGTERM or SIGHUP, so that the instance continues as
    after Ctrl-C. Later ones are ignored: a closed terminal sends several, which would end the clean-up.

    SIGHUP stays ignored if it was, as under nohup(1).
    """
    stopping = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            raise KeyboardInterrupt

    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    heard = (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def checkpoint(
    instance: str = Instance,
    to: Path = typer.Option(..., "--to", metavar="DIR", help="A new directory for the images."),
    method: Method = MethodOption,
    keep_running: bool = typer.Option(
        False, "--keep-running", help="Let the instance continue, instead of ending it."
    ),
    time_limit: str = TimeLimit,
    json: bool = Json,
    dry_run: bool = DryRun,
) -> int:
    how = moving.MoveOptions(method=method, keep_running=keep_running, time_limit=_limit(time_limit))
    if dry_run:
        _show_plan(moving.plan_checkpoint(instance, to, how), json=json)
        return ExitCode.DONE
    with signals_as_ctrl_c(), View(quiet=json) as view:
        done = moving.checkpoint(instance, to, how, view.phase, view.note)
    _show(done, json=json)
    return ExitCode.DONE


def restore(
    directory: Path = typer.Argument(..., metavar="DIR", help="A directory written by a checkpoint."),
    into: str = typer.Option(
        None, "--into", metavar="INSTANCE", help="Its new name, such as the QMP socket of a waiting QEMU."
    ),
    trust: bool = typer.Option(
        False, "--trust", help="Restore a checkpoint that somebody else has written: this runs its program."
    ),
    json: bool = Json,
    dry_run: bool = DryRun,
) -> int:
    if dry_run:
        plan = moving.plan_restore(directory, into, trust=trust)
        show(restore_json(plan), restore_lines(plan), json=json)
        return ExitCode.UNAVAILABLE if plan.prevented else ExitCode.DONE
    try:
        _restore(directory, into, trust=trust, json=json)
    except moving.UntrustedError as e:
        if json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        if not typer.confirm(f"{e}\nRestore it?", err=True):
            return ExitCode.USAGE
        _restore(directory, into, trust=True, json=json)
    return ExitCode.DONE


def _restore(directory: Path, into: str | None, *, trust: bool, json: bool) -> None:
    with signals_as_ctrl_c(), View(quiet=json) as view:
        done = moving.restore(directory, into, view.phase, trust=trust)
    _show(done, json=json)


def migrate(
    instance: str = Instance,
    to: str = typer.Option(
        ..., "--to", metavar="DIR|HOST|SOCKET", help="A new directory, a host, or a waiting QEMU's socket."
    ),
    method: Method = MethodOption,
    downtime: str = typer.Option(
        None, "--downtime", metavar="TIME", help="Longest downtime, for auto and pre-copy; by default 300ms."
    ),
    total: str = typer.Option(None, "--total", metavar="TIME", help="Longest total time, for auto."),
    bandwidth: str = typer.Option(
        None, "--bandwidth", metavar="RATE", help="Largest bandwidth, such as 100MiB/s."
    ),
    time_limit: str = TimeLimit,
    images: Path = typer.Option(
        None, "--images", metavar="DIR", help="Directory here for images that are copied to a host."
    ),
    json: bool = Json,
    dry_run: bool = DryRun,
) -> int:
    if downtime is not None and total is not None:
        raise UsageError("--downtime and --total are two bounds", remedy="give one of them")
    bound = duration(total, "--total") or duration(downtime, "--downtime") or USUAL_BOUND
    how = moving.MoveOptions(
        method=method,
        bound=bound,
        of=Bounded.TOTAL if total is not None else Bounded.DOWNTIME,
        images=images,
        bandwidth=quantity("--bandwidth", bandwidth, parse_rate, "'100 MiB/s'"),
        time_limit=_limit(time_limit),
    )
    if dry_run:
        _show_plan(moving.plan_migrate(instance, to, how), json=json)
        return ExitCode.DONE
    with signals_as_ctrl_c(), View(quiet=json) as view:
        done = moving.migrate(instance, to, how, view.phase, view.note)
    _show(done, json=json)
    return ExitCode.DONE


def _limit(text: str) -> float:
    return duration(text, "--time-limit") or moving.MoveOptions.time_limit


def _show_plan(plan: moving.MovePlan, *, json: bool) -> None:
    show(plan_json(plan), plan_lines(plan), json=json)


def plan_lines(plan: moving.MovePlan) -> Iterator[str]:
    yield f"{plan.action} {plan.instance} to {plan.target}: {plan.memory / 2**20:.0f} MiB of memory"
    if plan.free is not None:
        yield f"the images need up to that much; {plan.free / 2**30:.1f} GiB are free"
    if plan.dirty is not None:
        rate, hot = _range(plan.dirty.rate, 1e6, "MB/s"), _range(plan.dirty.working_set, 2**20, "MiB")
        yield f"writes {rate} of its memory, {hot} of it repeatedly"
    for p in plan.methods:
        mark = "*" if p.method is plan.method else " "
        total, downtime = _range(p.total, 1, "s"), _range(p.downtime, 1, "s")
        yield f"{mark} {p.method.value:<10}total {total}, downtime {downtime}"
    yield plan.reason
    yield from _finding_lines(plan)
    for note in plan.notes:
        yield f"note: {note}"


def _range(e: Estimate, scale: float, unit: str) -> str:
    if not math.isfinite(e.value):
        return f"{e.low / scale:.3g} {unit} or more, and may never end"
    end = f"to {e.high / scale:.3g}" if math.isfinite(e.high) else "or more"
    return f"{e.value / scale:.3g} {unit} ({e.low / scale:.3g} {end})"


def restore_lines(plan: moving.RestorePlan) -> Iterator[str]:
    verdict = "would fail" if plan.prevented else "nothing known prevents it"
    yield f"restore {plan.instance} from {plan.directory}: {verdict}"
    yield from _finding_lines(plan)
    yield f"total {_range(plan.prediction.total, 1, 's')}"


def _finding_lines(plan: moving.MovePlan | moving.RestorePlan) -> Iterator[str]:
    for finding in plan.findings:
        yield f"{finding.answer.value:<9} {finding.subject}: {finding.text}"
        if finding.remedy:
            yield f"          next: {finding.remedy}"


def restore_json(plan: moving.RestorePlan) -> dict[str, JsonValue]:
    """Return the plan of a restore as JSON values: seconds and bytes, and the findings of the checks."""
    return {
        "action": "restore",
        "instance": plan.instance,
        "directory": plan.directory,
        "method": plan.method.value,
        "bytes": plan.size,
        "prevented": plan.prevented,
        "total": to_json(plan.prediction.total),
        "findings": to_json(plan.findings),
    }


def plan_json(plan: moving.MovePlan) -> dict[str, JsonValue]:
    """Return the plan of a checkpoint or a move as JSON values: seconds, bytes and bytes per second. An
    infinite estimate is null."""
    return {
        "action": plan.action,
        "instance": plan.instance,
        "target": plan.target,
        "memory_bytes": plan.memory,
        "free_bytes": plan.free,
        "dirty_rate": None if plan.dirty is None else to_json(plan.dirty.rate),
        "working_set": None if plan.dirty is None else to_json(plan.dirty.working_set),
        "method": plan.method.value,
        "reason": plan.reason,
        "bound_holds": plan.holds,
        "methods": {
            p.method.value: {
                "total": to_json(p.total),
                "downtime": to_json(p.downtime),
                "rounds": p.rounds,
                "converges": p.converges,
            }
            for p in plan.methods
        },
        "findings": to_json(plan.findings),
        "notes": list(plan.notes),
    }


def _show(done: moving.MoveResult, *, json: bool) -> None:
    plan = done.plan
    form = {
        "action": done.action,
        "now": done.now or None,
        "total": done.total,
        "downtime": done.downtime,
        "bytes": done.size,
        "images": done.images,
        "plan": plan_json(plan) if isinstance(plan, moving.MovePlan) else restore_json(plan),
    }
    show(form, result_lines(done), json=json)


def result_lines(done: moving.MoveResult) -> Iterator[str]:
    plan = done.plan
    predicted = plan.chosen if isinstance(plan, moving.MovePlan) else plan.prediction
    now = f"runs now as {done.now}" if done.now else "it has ended"
    yield f"{done.action} by {plan.method.value} done: {now}"
    yield f"total     {_beside(done.total, predicted.total)}"
    if done.downtime is not None and done.now:
        yield f"downtime  {_beside(done.downtime, predicted.downtime)}"
    if done.size is not None:
        yield f"bytes     {done.size / 2**20:.1f} MiB"
    if done.images is not None:
        yield f"images    {done.images}"


def _beside(measured: float, predicted: Estimate) -> str:
    return f"{measured:.3g} s, predicted {_range(predicted, 1, 's')}"
