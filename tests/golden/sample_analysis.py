"""A hand-made study with its analysis and records: every verdict, infinite ends, start times."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from nearmetal.model.change import replace
from nearmetal.model.record import Fold, JsonValue, RankPlace, Row, Status, TrialRecord
from nearmetal.model.result import (
    Analysis,
    Attribution,
    Cell,
    Interval,
    Look,
    NoiseFloor,
    Quantiles,
    TimePart,
    Unused,
    Verdict,
)
from nearmetal.model.scope import NODE
from nearmetal.model.study import (
    Attachment,
    Better,
    Design,
    Environment,
    EventSubject,
    KernelWorkload,
    Placement,
    Study,
)
from nearmetal.subjects.start_stop import START

MARGIN = 0.03
INFINITE = Interval(centre=0.0, low=-math.inf, high=math.inf)


@dataclass(frozen=True)
class Metric:
    """One metric of the sample and what native reaches in it."""

    workload: str
    metric: str
    unit: str
    better: Better
    native: float
    spread: float


METRICS = (
    Metric("stream-large", "triad", "B/s", Better.HIGHER, 74.9e9, 0.010),
    Metric("ep.S", "rate", "op/s", Better.HIGHER, 183e6, 0.009),
    Metric("cg.S", "rate", "op/s", Better.HIGHER, 6.61e9, 0.014),
    Metric("pingpong", "latency", "s", Better.LOWER, 1.02e-7, 0.02),
    Metric("pingpong", "bandwidth", "B/s", Better.HIGHER, 11.3e9, 0.015),
    Metric("start", "start", "s", Better.LOWER, 5.1e-4, 0.035),
)
# Planted overhead by arm and metric; what is not named costs nothing.
COSTS: Mapping[tuple[str, str], float] = {
    ("container/one", "start.start"): 3.4,
    ("container/two", "cg.S.rate"): 2.9,
    ("container/two", "pingpong.latency"): 58.0,
    ("container/two", "pingpong.bandwidth"): 2.4,
    ("container/two", "start.start"): 6.6,
    ("native-tcp/one", "cg.S.rate"): 2.2,
    ("native-tcp/one", "pingpong.latency"): 43.0,
    ("native-tcp/one", "pingpong.bandwidth"): 1.9,
    ("container/one", "pingpong.bandwidth"): -0.08,
}


def study(name: str = "quick", question: str = "What does a container cost against bare metal?") -> Study:
    """Native over shared memory and over TCP loopback, and a container in two placements."""
    return Study(
        name=name,
        question=question,
        environments=(
            Environment(name="native", backend="native", placements=("one",)),
            Environment(
                name="native-tcp", backend="native", attachment=Attachment.LOOPBACK, placements=("one",)
            ),
            Environment(
                name="container",
                backend="namespaces",
                attachment=Attachment.VETH_BRIDGE,
                placements=("one", "two"),
            ),
        ),
        placements=(
            Placement(name="one", instances=1, tasks=2, cpus=(0, 1)),
            Placement(name="two", instances=2, tasks=1, cpus=(0, 1)),
        ),
        workloads=(
            KernelWorkload(name="stream-large", kernel="stream", params={"elements": 48_000_000}),
            KernelWorkload(name="ep.S", kernel="ep", params={"class": "S"}),
            KernelWorkload(name="cg.S", kernel="cg", params={"class": "S"}),
            KernelWorkload(name="pingpong", kernel="pingpong", params={}),
            EventSubject(name="start", facts=START),
        ),
        design=Design(
            baselines=("native", "native-tcp"), margin=MARGIN, confidence=0.95, seed=0x7F3A, max_time=90.0
        ),
    )


def six(value: float) -> float:
    """Six figures, so that the golden files do not hang on the last bit of a machine's libm."""
    return float(f"{value:.6g}") if math.isfinite(value) else value


def _verdict(low: float, high: float) -> Verdict:
    if low > MARGIN:
        return Verdict.SLOWER
    if high < -MARGIN / (1 + MARGIN):
        return Verdict.FASTER
    return Verdict.EQUIVALENT if low > -MARGIN / (1 + MARGIN) and high < MARGIN else Verdict.NONE


def _attribution(overhead: float, verdict: Verdict, arm: str) -> Attribution | None:
    if verdict is not Verdict.SLOWER:
        return None
    comm, rest = six(overhead * 0.93), six(overhead * 0.05)
    return Attribution(
        parts=(
            TimePart(
                name="communication",
                overhead=Interval(centre=comm, low=six(comm * 0.9), high=six(comm * 1.1)),
            ),
            TimePart(name="computation", overhead=Interval(centre=rest, low=-rest, high=six(rest * 2))),
        ),
        residual=Interval(centre=six(overhead * 0.02), low=six(-overhead * 0.02), high=six(overhead * 0.06)),
        sentence="communication" if arm.startswith("container") else "MPI without shared memory",
    )


def cell(
    arm: str, baseline: str, m: Metric, *, blocks: int = 39, overhead: float = 0.0, base_value: float = 0.0
) -> Cell:
    """A cell with a planted overhead: d drawn from a fixed seed, a plain normal interval around its mean."""
    rng = random.Random(f"{arm}|{baseline}|{m.workload}.{m.metric}|{blocks}")
    theta, sign = math.log1p(overhead), 1 if m.better is Better.LOWER else -1
    native = base_value or m.native
    base = tuple(six(native * math.exp(rng.gauss(0, m.spread * 2))) for _ in range(blocks))
    d = tuple(six(theta + rng.gauss(0, m.spread)) for _ in range(blocks))
    values = tuple(six(b * math.exp(sign * x)) for b, x in zip(base, d, strict=True))
    looks = tuple(_look(d[:n], m.spread) for n in (27, 39, 59, 89, 1000, 20_000) if n <= blocks)
    low, high = (looks[-1].low, looks[-1].high) if looks else (-math.inf, math.inf)
    centre = six(median(d))
    o, lo = six(math.expm1(centre)), six(math.expm1(low))
    hi = math.inf if math.isinf(high) else six(math.expm1(high))
    verdict = _verdict(lo, hi)
    differences = sorted(six(v - b) for v, b in zip(values, base, strict=True))
    wait = verdict is Verdict.NONE
    p = next(p for p in study().placements if p.name == arm.split("/")[1])
    return Cell(
        arm=arm,
        environment=arm.split("/")[0],
        placement=p.name,
        attachment="veth-bridge" if arm.startswith("container") else "loopback",
        baseline=baseline,
        workload=m.workload,
        metric=m.metric,
        unit=m.unit,
        better=m.better,
        n=blocks,
        failed=0,
        failed_blocks=(),
        baseline_failed_blocks=(),
        baseline_value=_spread_of(base),
        value=_spread_of(values),
        overhead=o,
        low=lo,
        high=hi,
        margin=MARGIN,
        confidence=0.95,
        exploratory=True,
        verdict=verdict,
        reason="" if not wait else "there is no interval yet; the first comes after 27 rounds",
        decided_block=None if wait or not looks else looks[0].n,
        decided_seconds=None if wait or not looks else six(12.0 + 2.2 * looks[0].n),
        smallest_material=six(math.expm1(math.log1p(MARGIN) + (high - low) / 2)),
        blocks_needed=9 if wait and looks else None,
        seconds_needed=20.0 if wait and looks else None,
        difference=Interval(
            centre=six(median(differences)),
            low=differences[len(differences) // 4],
            high=differences[3 * len(differences) // 4],
        ),
        sign=Interval(centre=centre, low=low, high=high),
        mean=Interval(centre=six(sum(d) / len(d)), low=low, high=high),
        p_holm=None if wait else 0.001,
        looks=looks,
        blocks=tuple(range(1, blocks + 1)),
        d=d,
        baseline_values=base,
        values=values,
        quantiles=_quantiles(values, base) if m.workload == "start" else None,
        attribution=_attribution(o, verdict, arm),
    )


def _look(d: tuple[float, ...], spread: float) -> Look:
    centre, half = sum(d) / len(d), 2.4 * spread / math.sqrt(len(d))
    return Look(n=len(d), low=six(centre - half), high=six(centre + half))


def _spread_of(values: tuple[float, ...]) -> Interval:
    s = sorted(values)
    return Interval(centre=six(median(s)), low=s[len(s) // 4], high=s[3 * len(s) // 4])


def _quantiles(values: tuple[float, ...], base: tuple[float, ...]) -> Quantiles:
    s, n = sorted(values), len(values)
    p50 = Interval(centre=s[n // 2], low=s[max(0, n // 2 - 6)], high=s[min(n - 1, n // 2 + 6)])
    p90 = Interval(centre=s[int(0.9 * n)], low=s[int(0.75 * n)], high=s[-1]) if n >= 29 else None
    return Quantiles(n=n, p50=p50, p90=p90, p95=None, p99=None, values=values, baseline_values=base)


def analysis(blocks: int = 39, question: str = "") -> Analysis:
    """Comparisons of the sample study; cg.S in one container is left undecided, one cell is inconsistent."""
    cells = []
    for comparison in study().comparisons():
        for m in METRICS:
            key = f"{m.workload}.{m.metric}"
            o = COSTS.get((comparison.arm, key), 0.0)
            b = COSTS.get((comparison.baseline, key), 0.0)
            sign = 1 if m.better is Better.LOWER else -1
            cells.append(
                cell(
                    comparison.arm,
                    comparison.baseline,
                    m,
                    blocks=blocks,
                    overhead=(1 + o) / (1 + b) - 1,
                    base_value=m.native * (1 + b) ** sign,
                )
            )
    wide = next(i for i, c in enumerate(cells) if c.workload == "cg.S" and c.arm == "container/one")
    cells[wide] = replace(
        cells[wide],
        overhead=0.011,
        low=-0.02,
        high=0.043,
        verdict=Verdict.NONE,
        reason="",
        blocks_needed=9,
        seconds_needed=20.0,
        smallest_material=0.062,
    )
    odd = next(i for i, c in enumerate(cells) if c.workload == "ep.S" and c.arm == "container/two")
    cells[odd] = replace(
        cells[odd],
        verdict=Verdict.INCONSISTENT,
        reason="an earlier and a later interval exclude each other: the machine changed during the run",
    )
    return Analysis(
        study="quick",
        question=question,
        seed=0x7F3A,
        blocks=blocks,
        torn_blocks=1,
        failed_trials=2,
        elapsed=87.4,
        block_seconds=2.2,
        cells=tuple(cells),
        noise_floor=noise_floor(blocks),
        unused=(
            Unused(what="trial 12.container/two", reason="torn by an interruption, run again", count=5),
            Unused(
                what="native-tcp: stream-large.add",
                reason="verification failed: 1.2e-3 > 1e-13",
                count=1,
                failed=True,
            ),
        ),
        disturbance={"flagged": 0.03, "other_cpu": 0.012, "steal": None},
    )


def noise_floor(blocks: int = 39) -> NoiseFloor:
    """The baseline against itself in every metric."""
    return NoiseFloor(
        cells=tuple(cell("native/one", "native/one", m, blocks=blocks) for m in METRICS),
        trusted=True,
        proven=True,
        reason="",
    )


def early_analysis() -> Analysis:
    """After five blocks: every interval is still infinite."""
    return analysis(blocks=5)


def records(blocks: int = 39) -> tuple[TrialRecord, ...]:
    """One trial per arm and block, eight slices per metric, and the places the ranks reported."""
    rng = random.Random(1)
    arms = ("native/one", "native-tcp/one", "container/one", "container/two")
    return tuple(_trial(rng, block, arm) for block in range(1, blocks + 1) for arm in arms)


def _trial(rng: random.Random, block: int, arm: str) -> TrialRecord:
    two = arm == "container/two"
    own = {"mnt": 4026532000 + block, "net": 4026533000 + block, "pid": 4026534000}
    host = {"mnt": 4026531840, "net": 4026531833, "pid": 4026531836}
    tcp: dict[str, JsonValue] = {"pml": "ob1", "btl": "tcp,self"}
    shared: dict[str, JsonValue] = {"pml": "ob1", "btl": "vader,self"}
    return TrialRecord(
        run="7f3a",
        trial=f"{block}.{arm}",
        block=block,
        attempt=1,
        arm=arm,
        aa=False,
        position=0,
        begin=1.79e9 + block * 2.2,
        end=1.79e9 + block * 2.2 + 2.0,
        fold=Fold.PAIRED,
        status=Status.OK,
        reason="",
        rows=tuple(_row(rng, arm, m) for m in METRICS),
        places=tuple(
            RankPlace(
                rank=r,
                host=f"nm-{'ab'[r] if two else 'a'}" if arm.startswith("container") else "metal",
                cpus=(r,),
                namespaces=own if arm.startswith("container") else host,
            )
            for r in (0, 1)
        ),
        transport=tcp if two or arm.startswith("native-tcp") else shared,
        counters={NODE: {"context_switches": 410.0 + block, "interrupts": 900.0, "steal_seconds": None}},
        disturbance={"other_cpu": 0.01 + 0.0005 * block, "steal": None},
        flags=("disturbed: other processes 6.1 % of the CPU",) if block == 7 else (),
    )


def _row(rng: random.Random, arm: str, m: Metric) -> Row:
    sign = 1 if m.better is Better.LOWER else -1
    centre = m.native * (1 + COSTS.get((arm, f"{m.workload}.{m.metric}"), 0.0)) ** sign
    count = 1 if m.workload == "start" else 8
    return Row(
        workload=m.workload,
        metric=m.metric,
        unit=m.unit,
        better=m.better,
        values=tuple(centre * math.exp(rng.gauss(0, 0.03)) for _ in range(count)),
        status=Status.OK,
    )
