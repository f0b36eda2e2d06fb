"""Moves of a user's guest between two QEMUs with a random fault at a random time, until 100 faults have hit.
None may end wrongly.

Wrong is: a guest that runs in both QEMUs, an error that says the opposite of what the QEMUs say or does not
say where the guest is, or a file that is left. After a kill of the tool the QEMUs, which are the user's,
finish the move by themselves, and hold one guest.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

import pytest
from tests.patience import until
from tests.qemu_moments import cut
from tests.system.moving_case import moved_by_a_tool, state
from tests.system.random_draws import Fault, faults, judge
from tests.system.test_moving import QEMU, Guest, two_guests
from tests.system.test_quick import left_behind

from nearmetal.environments.qemu.qmp import Monitor
from nearmetal.errors import NearmetalError
from nearmetal.lifecycle import Method

pytestmark = [pytest.mark.apart, pytest.mark.beside, pytest.mark.no_run, QEMU]
__all__ = ["state"]

SEEDS = 4
METHODS = (Method.OFFLINE, Method.PRECOPY, Method.POSTCOPY, Method.MULTIFD)
SPANS: Mapping[int, float] = {16 << 20: 3.0, 64 << 20: 1.0, 1 << 30: 0.4}
"""Seconds from the begin of a move within which its fault occurs, by bandwidth in B/s."""
GONE = "gone"
"""What is said of a QEMU that has ended."""
numbers = count()


@dataclass(frozen=True, kw_only=True)
class Move:
    """A move that is under way."""

    source: Guest
    target: Guest
    tool: subprocess.Popen[str]


def kill(guest: Guest) -> bool:
    guest.process.kill()
    guest.process.wait()
    return True


def cut_link(move: Move) -> bool:
    with contextlib.suppress(AssertionError, OSError):  # no connection yet or any more: a miss
        cut(move.target.process.pid)
        return True
    return False


def send(move: Move, number: signal.Signals) -> bool:
    move.tool.send_signal(number)
    return True


SOURCE, TARGET = "kill of the source", "kill of the destination"
TOOL, CTRL_C = "kill of the tool", "Ctrl-C"
KINDS: Mapping[str, Callable[[Move], bool]] = {
    SOURCE: lambda move: kill(move.source),
    TARGET: lambda move: kill(move.target),
    "cut link": cut_link,
    CTRL_C: lambda move: send(move, signal.SIGINT),
    TOOL: lambda move: send(move, signal.SIGKILL),
}


def status(guest: Guest) -> str:
    if guest.process.poll() is not None:
        return GONE
    try:
        with Monitor(guest.qmp) as monitor:
            return str(monitor.ask("query-status")["status"])
    except NearmetalError:
        until(lambda: guest.process.poll() is not None, "the end of a QEMU that does not answer")
        return GONE


def settled(move: Move) -> None:
    """Wait until the QEMUs have finished a move whose tool was killed."""
    with Monitor(move.source.qmp) as monitor:
        limits = dict.fromkeys(("max-bandwidth", "max-postcopy-bandwidth"), 1 << 40)
        monitor.ask("migrate-set-parameters", {**limits, "downtime-limit": 60_000})
        until(
            lambda: monitor.ask("query-migrate").get("status") in (None, "completed", "cancelled"),
            "the end of the migration",
        )
        begun = monitor.ask("query-migrate").get("status") == "completed"
    until(lambda: not begun or status(move.target) != "inmigrate", "the guest at its destination")


def wrongs(move: Move, kind: str, said: str) -> list[str]:
    """What is wrong after a move: with its copies, and with what was said of them."""
    ended = move.tool.returncode
    if ended < 0 and status(move.source) != GONE:
        settled(move)
    here, there = status(move.source), status(move.target)
    found = ["two copies run"] if here == there == "running" else []
    if "Traceback" in said:
        found.append("a traceback")
    if ended < 0:
        holders = [at for at in (here, there) if at in ("running", "paused")]
        found += (
            [] if kind in (TOOL, CTRL_C) and len(holders) == 1 else [f"{len(holders)} QEMUs hold the guest"]
        )
    elif ended == 0:
        found += [] if there == "running" or kind == TARGET else ["it is said to be moved, and does not run"]
    elif "it continues at its source" in said:
        found += [] if here == "running" or kind == SOURCE else ["it is said to continue, and does not"]
    elif "is lost" in said or "it does not run" in said:
        found += ["it is said not to run, and runs"] if "running" in (here, there) else []
    elif "has left its source" in said:
        found += ["it is said to have left its source, and runs there"] if here == "running" else []
    else:
        found.append("the error does not say where the guest is")
    return [f"{what} (source {here}, destination {there})" for what in found]


def fault(kind: str, rng: Random, directory: Path) -> Fault:
    """Make one move with a fault of a kind."""
    method, bandwidth = rng.choice(METHODS), rng.choice(list(SPANS))
    delay = rng.uniform(0.0, SPANS[bandwidth])
    directory.mkdir()
    words = f"{method} at {bandwidth >> 20} MiB/s, {kind} after {delay:.3f} s"
    with two_guests(directory) as (source, target):
        names = [f"qmp:{guest.qmp}" for guest in (source, target)]
        with moved_by_a_tool(*names, method.value, "none", f"bandwidth={bandwidth}", env={}) as tool:
            move = Move(source=source, target=target, tool=tool)
            until(lambda: wires(directory) or tool.poll() is not None, "the begin of the move")
            with contextlib.suppress(subprocess.TimeoutExpired):
                tool.wait(delay)
            hit = tool.poll() is None and KINDS[kind](move)
            said = tool.communicate()[1]
        wrong = wrongs(move, kind, said)
    left = [] if tool.returncode < 0 else [f"left: {wire.name}" for wire in wires(directory)]
    return f"{words}: {' '.join(said.split()) or 'no error'}", hit, [*wrong, *left]


def wires(directory: Path) -> list[Path]:
    return list(directory.glob(".nearmetal-*"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_random_fault_of_a_guest_ends_wrongly(seed: int, tmp_path: Path) -> None:
    rng, kinds = Random(seed), tuple(KINDS)
    judge(seed, kinds, faults(rng, kinds, lambda kind: fault(kind, rng, tmp_path / f"{next(numbers)}")))
    assert left_behind(tmp_path) == []
