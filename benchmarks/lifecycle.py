"""Compares moves by nearmetal with the same moves by hand; checks whether `method: auto` chooses well and
whether the predicted intervals hold; measures the cost of the probe.

By hand, as root: python -m benchmarks.lifecycle [--quick] [--rounds 8] [--parts idle dirty process lazy
container auto probe] [--loads 0 1 2 3] [--seconds 400]. It needs the images criu and debian-kernel.

idle, dirty: a guest of 256 MiB, against plain QMP commands to two QEMUs. The idle guest is moved by pre-copy;
the other one, which dirties 100 MiB at full speed, by the method that `auto` chooses for 150 ms. Gaps are
those of a UDP probe, minus its floor, which is measured for each guest before it is moved.
process, lazy: a process of 256 MiB, against criu dump, cp and criu restore; gaps are the longest time between
two steps of the program.
container: the same in a container, against runc checkpoint, cp and runc restore.
auto: for each load and bound, every method and `auto`, in random order. The best method is the one with the
shortest median total among those whose median standstill keeps the bound. Methods that lose the guest if the
connection breaks are considered only if no other method keeps the bound. If none keeps it, the best method is
the one with the shortest standstill. Before each move its times are predicted from a sample of the guest's
memory and all earlier moves. Failed moves are listed, and a cell in which every move of a method failed is
not judged.
probe: CPU time of the probe's client and responder while answers come.

Both sides run once in each round, in random order, each with its own guest or process. Ratios are nearmetal /
by hand, pair by pair, with the exact signed-rank interval, which is finite from six rounds on.

A limit of a ratio is met if the whole interval is within it, missed if the whole interval is beyond it, and
otherwise undecided: more rounds decide it. The exit status is 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from random import Random
from statistics import median

from benchmarks import criu_moves, guest_moves
from benchmarks.criu_moves import ProcessMove
from benchmarks.guest_moves import FULL_SPEED, IDLE, QEMU, GuestMove, Load, MoveTimes
from benchmarks.paired import interleaved, ratio, shown

from nearmetal.environments import Tools
from nearmetal.environments.qemu.guest import QemuGuest
from nearmetal.errors import NearmetalError
from nearmetal.host import LocalHost
from nearmetal.host.facts.provenance import cpu_summary, provenance
from nearmetal.lifecycle import Candidate, Estimate, Method, PastMove, allowed_rest, choose
from nearmetal.model.environments.guest import MIB
from nearmetal.model.result import Interval
from nearmetal.node.criu import find_criu
from nearmetal.node.machine import Machine, prepare_machine
from nearmetal.node.progress import NullProgress
from nearmetal.subjects.events.move_choice import MOVE_KIND, Predictions, predicted

PARTS = ("idle", "dirty", "process", "lazy", "container", "auto", "probe")
LIMIT, BOUND = 0.3, 0.15
BOUNDS = (0.1, 0.3, 1.0)
LOADS = (
    IDLE,
    Load(name="16 MiB at 16 MiB/s", size=16 * MIB, rate=16 * MIB),
    Load(name="64 MiB at 64 MiB/s", size=64 * MIB, rate=64 * MIB),
    FULL_SPEED,
)
TIMES_BEST, CELLS, COVERAGE = 1.25, 0.8, 0.9
MOST_RATIO, MOST_CONTAINER = 1.1, 1.3


class Outcome(StrEnum):
    """Whether a limit holds."""

    MET = "met"
    UNDECIDED = "undecided"
    MISSED = "missed"

    @classmethod
    def of(cls, inside: bool) -> Outcome:
        return cls.MET if inside else cls.MISSED

    @classmethod
    def of_interval(cls, found: Interval, limit: float) -> Outcome:
        """Return whether an interval is within a limit, beyond it, or contains it."""
        if found.high <= limit:
            return cls.MET
        return cls.MISSED if found.low > limit else cls.UNDECIDED


@dataclass(frozen=True)
class Judged:
    """A limit, named by what it is about, and whether it holds."""

    name: str
    outcome: Outcome


@dataclass(kw_only=True)
class Experience:
    """Finished moves, and how many of their times were inside the predicted intervals.

    log: file to which a line of JSON is appended for each move; None to write no log.
    """

    log: Path | None = None
    past: list[PastMove] = field(default_factory=list)
    totals: list[bool] = field(default_factory=list)
    standstills: list[bool] = field(default_factory=list)

    def add(
        self, method: Method, expected: Predictions, total: float, stopped: float, load: str = ""
    ) -> None:
        """Add a finished move. In the log, each time is followed by its uncorrected prediction and the
        interval.

        load: name of the load, for the log.
        """
        for inside, estimate, measured in (
            (self.totals, expected.corrected[method].total, total),
            (self.standstills, expected.corrected[method].downtime, stopped),
        ):
            inside.append(_holds(estimate, measured))
        raw = expected.uncorrected[method]
        if self.log is not None:
            line = {
                "load": load,
                "method": method.value,
                "total": [total, raw.total.value, *_ends(expected.corrected[method].total)],
                "standstill": [stopped, raw.downtime.value, *_ends(expected.corrected[method].downtime)],
            }
            with self.log.open("a") as out:
                out.write(f"{json.dumps(line)}\n")
        self.past.append(
            PastMove(
                kind=MOVE_KIND,
                method=method,
                predicted_total=raw.total.value,
                total=total,
                predicted_downtime=raw.downtime.value,
                downtime=stopped,
            )
        )


def _ends(estimate: Estimate) -> tuple[float, float]:
    return estimate.low, estimate.high


def _holds(estimate: Estimate, measured: float) -> bool:
    return estimate.low <= measured <= estimate.high


@dataclass(frozen=True, kw_only=True)
class AutoMove:
    """A move by `auto` or by one method: the method that was used, and the seconds that sampling the memory
    took."""

    move: GuestMove
    method: Method
    sampled: float


def main() -> int:
    asked = arguments()
    if not LocalHost().is_root():
        sys.exit("as root: guests need taps, and CRIU needs capabilities")
    machine = prepare_machine(LocalHost(), NullProgress())
    print(machine_line(machine))
    print(f"{asked.rounds} rounds, load average {os.getloadavg()[0]:.1f}", flush=True)
    limits: list[Judged] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        parts = set(asked.parts)
        if "probe" in parts:
            shares = guest_moves.probe_cost(machine.tools, directory, 3.0 if asked.quick else 10.0)
            words = " and ".join(f"{100 * share:.2f} %" for share in shares)
            name, outcome = "client and responder of the probe at rest", Outcome.of(max(shares) < 0.01)
            print(f"{name}: {words} of a core  limit 1 %: {outcome}", flush=True)
            limits.append(Judged(name, outcome))
        if parts & {"idle", "dirty", "auto"}:
            ground = stack.enter_context(guest_moves.ground(machine.tools, directory))
            limits += guests(ground, parts, asked)
        if parts & {"process", "lazy", "container"}:
            limits += processes(machine.tools, parts, asked.rounds)
    return exit_status(limits)


def exit_status(limits: Sequence[Judged]) -> int:
    """Print which limits are undecided or missed. Return 1 if any is missed, or if there is none, else 0."""
    for outcome in Outcome:
        names = "; ".join(one.name for one in limits if one.outcome is outcome)
        count = sum(one.outcome is outcome for one in limits)
        print(f"{outcome}: {count}" + (f" ({names})" if count and outcome is not Outcome.MET else ""))
    return 0 if limits and all(one.outcome is not Outcome.MISSED for one in limits) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lifecycle")
    parser.add_argument("--rounds", type=int, help="8; of auto 3")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--loads", type=int, nargs="+", default=range(len(LOADS)), choices=range(len(LOADS)))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="auto begins no cell after them")
    parser.add_argument(
        "--log", type=Path, help="file for what auto predicted and measured, as lines of JSON"
    )
    parser.add_argument("--quick", action="store_true", help="2 rounds, of auto 1; no interval is finite")
    asked = parser.parse_args()
    asked.auto_rounds = asked.rounds or (1 if asked.quick else 3)
    asked.rounds = asked.rounds or (2 if asked.quick else 8)
    return asked


def machine_line(machine: Machine) -> str:
    criu = find_criu(machine.host)
    version = getattr(criu, "version", "none")
    return f"{cpu_summary(provenance(machine.host))}, CRIU {version}, QEMU {qemu_version(machine)}"


def qemu_version(machine: Machine) -> str:
    said = machine.host.run(["qemu-system-x86_64", "--version"], timeout=20).stdout
    accelerated = "KVM" if os.access("/dev/kvm", os.W_OK) else "no KVM"
    return f"{said.partition('version ')[2].split()[0]} ({accelerated} device)"


def guests(ground: guest_moves.Ground, parts: Iterable[str], asked: argparse.Namespace) -> list[Judged]:
    limits: list[Judged] = []
    if "idle" in parts:
        limits += paired_guests(ground, IDLE, Method.PRECOPY, LIMIT, asked.rounds, 0.1)
    if "dirty" in parts:
        method = chosen(ground, FULL_SPEED, BOUND)
        print(f"{FULL_SPEED.name}: auto chooses {method} for {1e3 * BOUND:.0f} ms", flush=True)
        rest = allowed_rest(BOUND, QEMU.costs)
        limits += paired_guests(ground, FULL_SPEED, method, rest, asked.rounds, 0.15)
    if "auto" in parts:
        loads = [LOADS[i] for i in asked.loads]
        limits += auto(ground, loads, asked.auto_rounds, asked.seconds, asked.log)
    return limits


def paired_guests(
    ground: guest_moves.Ground, load: Load, method: Method, limit: float, rounds: int, most: float
) -> list[Judged]:
    """Print a guest's moves by both sides, and return their limits.

    limit: downtime limit in seconds.
    most: maximum gap in seconds.
    """
    found = interleaved(
        {
            "nearmetal": partial(
                guest_moves.move, ground, load, guest_moves.by_nearmetal(ground, method, limit)
            ),
            "by hand": partial(guest_moves.move, ground, load, guest_moves.by_hand(ground, method, limit)),
        },
        rounds,
    )
    own, hand = found["nearmetal"], found["by hand"]
    floors = [m.floor for m in (*own, *hand)]
    name = f"guest, {load.name}, {method}"
    print(
        f"{name}: floor of the probe {1e3 * median(floors):.1f} ms, "
        f"known to {1e3 * median(m.known for m in own):g} ms"
    )
    return report(name, own, hand, most=most, least=median(m.known for m in own))


def report(
    what: str,
    own: Sequence[GuestMove | ProcessMove],
    hand: Sequence[GuestMove | ProcessMove],
    *,
    most: float,
    least: float = 0.0,
) -> list[Judged]:
    """Print totals and gaps of both sides with their ratios, and return their limits.

    A gap must be below its limit only if that of the move by hand is.
    what: name of the moves.
    most: maximum gap in seconds.
    least: resolution of a gap in seconds.
    """
    limits = []
    for name in ("total", "gap"):
        pair = [[getattr(m, name) for m in side] for side in (own, hand)]
        found = ratio(*pair)
        line = f"  {name:<6}{median(pair[0]):8.3f} s, by hand {median(pair[1]):8.3f} s, ratio {shown(found)}"
        outcome = Outcome.of_interval(found, MOST_RATIO)
        line += f"  limit {MOST_RATIO:g}: {outcome}"
        limits.append(Judged(f"{what}: ratio of the {name}", outcome))
        if name == "gap":
            short = Outcome.of(median(pair[0]) < most or median(pair[1]) >= most)
            line += f"; below {most:g} s: {short}" + (f", known to {1e3 * least:g} ms" if least else "")
            limits.append(Judged(f"{what}: median gap", short))
        print(line, flush=True)
    names = dict.fromkeys(name for m in own for name in m.phases)
    parts = [f"{name} {median(m.phases.get(name, 0.0) for m in own):.3f}" for name in names]
    print(f"  phases {', '.join(parts)} s", flush=True)
    return limits


def processes(tools: Tools, parts: Iterable[str], rounds: int) -> list[Judged]:
    criu, limits = criu_moves.require_criu(), list[Judged]()
    plain: Callable[[], ProcessMove] = partial(criu_moves.by_nearmetal, tools, criu, "native", Method.CRIU)
    if "process" in parts:
        hand: Callable[[], ProcessMove] = partial(criu_moves.process_by_hand, tools, criu, Method.CRIU)
        found = interleaved({"nearmetal": plain, "by hand": hand}, rounds)
        print(name := "process of 256 MiB, criu")
        limits += report(name, found["nearmetal"], found["by hand"], most=0.51)
    if "lazy" in parts:
        lazy = Method.CRIU_LAZY
        with criu_moves.large_pipes():
            found = interleaved(
                {
                    "nearmetal": partial(criu_moves.by_nearmetal, tools, criu, "native", lazy),
                    "by hand": partial(criu_moves.process_by_hand, tools, criu, lazy),
                },
                rounds,
            )
        print(name := "process of 256 MiB, criu-lazy")
        limits += report(name, found["nearmetal"], found["by hand"], most=0.15)
    if "container" in parts:
        found = interleaved(
            {
                "nearmetal": lambda: criu_moves.by_nearmetal(tools, criu, "runc", Method.CRIU),
                "by hand": lambda: criu_moves.container_by_hand(tools, criu),
                "process": plain,
            },
            rounds,
        )
        print(name := "container of 256 MiB, runc, criu")
        own, bare = found["nearmetal"], found["process"]
        limits += report(name, own, found["by hand"], most=float("inf"))
        gaps = ratio([m.gap for m in own], [m.gap for m in bare])
        outcome = Outcome.of_interval(gaps, MOST_CONTAINER)
        print(f"  gap, container / process {shown(gaps)}  limit {MOST_CONTAINER:g}: {outcome}")
        limits.append(Judged(f"{name}: gap / that of the process", outcome))
    return limits


def chosen(ground: guest_moves.Ground, load: Load, bound: float) -> Method:
    """Return the method that `auto` chooses for a bound, without earlier moves."""
    found: list[Method] = []

    def look(guest: QemuGuest, stack: ExitStack) -> MoveTimes:
        found.append(decide(_predicted(guest, [], bound), bound))
        return MoveTimes(total=1.0)

    guest_moves.move(ground, load, look)
    return found[0]


def _predicted(guest: QemuGuest, past: Sequence[PastMove], bound: float) -> Predictions:
    return predicted(QEMU, QEMU.moves_by, guest, past, bound=bound, bandwidth=None)


def decide(expected: Predictions, bound: float) -> Method:
    return choose(bound, [Candidate(prediction=p) for p in expected.corrected.values()]).method


def auto(
    ground: guest_moves.Ground, loads: Sequence[Load], rounds: int, seconds: float, log: Path | None
) -> list[Judged]:
    """Print how `auto` compares with the best method, and return its limits.

    seconds: time after which no further cell is started.
    """
    experience, rng = Experience(log=log), Random(1)
    cells = [(load, bound) for load in loads for bound in BOUNDS]
    found: dict[tuple[str, float], dict[str, list[AutoMove]]] = {}
    failed: list[str] = []
    begin = time.monotonic()
    for _ in range(rounds):
        for load, bound in rng.sample(cells, len(cells)):
            if time.monotonic() - begin > seconds:
                break
            methods: list[Method] = [*QEMU.moves_by, Method.AUTO]
            for method in rng.sample(methods, len(methods)):
                try:
                    one = auto_move(ground, load, bound, method, experience)
                except NearmetalError as e:
                    failed.append(f"{load.name}, {1e3 * bound:.0f} ms, {method}: {e.what}")
                    continue
                found.setdefault((load.name, bound), {}).setdefault(method.value, []).append(one)
    for text in failed:
        print(f"  FAILED: {text}")
    whole = [key for key, by_method in found.items() if len(by_method) == len(QEMU.moves_by) + 1]
    left_out = [f"{load}, {1e3 * bound:.0f} ms" for load, bound in found if (load, bound) not in whole]
    for text in left_out:
        print(f"  NOT JUDGED: {text}: every move of a method failed, or the time was over")
    good = [judged(name, bound, found[name, bound]) for name, bound in whole]
    if not good:
        return [Judged("auto: a cell to judge", Outcome.MISSED)]
    share = sum(good) / len(good)
    outcome = Outcome.of(share >= CELLS)
    print(
        f"auto within {TIMES_BEST:g} times the best in {sum(good)} of {len(good)} cells  limit {CELLS:.0%}: "
        f"{outcome}; {len(experience.totals)} moves in {time.monotonic() - begin:.0f} s"
    )
    limits = [Judged("auto: cells", outcome), Judged("auto: no failed move", Outcome.of(not failed))]
    for what, inside in (("total", experience.totals), ("standstill", experience.standstills)):
        outcome = Outcome.of(sum(inside) / len(inside) >= COVERAGE)
        print(
            f"predicted interval of the {what} holds in {sum(inside)} of {len(inside)}  "
            f"limit {COVERAGE:.0%}: {outcome}"
        )
        limits.append(Judged(f"auto: predicted {what}", outcome))
    return limits


def auto_move(
    ground: guest_moves.Ground, load: Load, bound: float, method: Method, experience: Experience
) -> AutoMove:
    """Predict and make one move."""
    notes: list[tuple[Method, Predictions, float]] = []

    def mover(guest: QemuGuest, stack: ExitStack) -> MoveTimes:
        begin = time.monotonic()
        expected = _predicted(guest, experience.past, bound)
        used = decide(expected, bound) if method is Method.AUTO else method
        notes.append((used, expected, time.monotonic() - begin))
        rest = allowed_rest(bound, QEMU.costs)
        return guest_moves.by_nearmetal(ground, used, rest)(guest, stack)

    done = guest_moves.move(ground, load, mover)
    ((used, expected, sampled),) = notes
    experience.add(used, expected, done.total, done.stopped, load.name)
    return AutoMove(move=done, method=used, sampled=sampled)


def judged(load: str, bound: float, by_method: Mapping[str, Sequence[AutoMove]]) -> bool:
    """Print one cell, and return whether `auto` was within 1.25 times the best method."""
    fixed = {Method(m): moves for m, moves in by_method.items() if m != Method.AUTO}
    stops = {m: median(one.move.stopped for one in moves) for m, moves in fixed.items()}
    totals = {m: median(one.move.total for one in moves) for m, moves in fixed.items()}
    own = by_method[Method.AUTO.value]
    own_total, own_stop = median(o.move.total for o in own), median(o.move.stopped for o in own)
    keeping = [m for m in fixed if stops[m] <= bound]
    safe = [m for m in keeping if not m.fetches_later] or keeping
    if safe:
        best = min(safe, key=lambda m: totals[m])
        times = own_total / totals[best] if own_stop <= max(bound, TIMES_BEST * stops[best]) else float("inf")
    else:
        best = min(fixed, key=lambda m: stops[m])
        times = own_stop / stops[best]
    used = ", ".join(dict.fromkeys(o.method.value for o in own))
    lines = ", ".join(f"{m} {totals[m]:.2f} s/{1e3 * stops[m]:.0f} ms" for m in fixed)
    print(
        f"  {load}, {1e3 * bound:.0f} ms: auto ({used}) {own_total:.2f} s/{1e3 * own_stop:.0f} ms, "
        f"best {best}, {times:.2f} times; {lines}; sampled in {median(o.sampled for o in own):.2f} s",
        flush=True,
    )
    return times <= TIMES_BEST


if __name__ == "__main__":
    sys.exit(main())
