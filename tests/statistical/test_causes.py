"""Causes of planted overheads: who was throttled, lost segments or waited for a CPU is told so; who was slow
for no cause that was counted, or only noisy, is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import pytest

from nearmetal.analysis import analyse
from nearmetal.model.change import replace
from nearmetal.model.record import TrialRecord
from nearmetal.model.result import Cell, Change, Verdict
from nearmetal.model.scope import Scope
from nearmetal.model.study import (
    Attachment,
    Better,
    CommandWorkload,
    Design,
    Environment,
    KernelWorkload,
    Limits,
    Mode,
    Pages,
    Pinning,
    Placement,
    Study,
)
from nearmetal.plan import make_plan
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

ARM, BLOCKS, SECONDS, SLICES = "box/two", 18, 0.05, 4
Timed = Mapping[str, float | None]
Counted = Callable[[float, Random], tuple[Timed, Timed]]
"""Extra seconds of a trial -> what its timed part counted: counters, network."""

NOTHING: tuple[Timed, Timed] = (
    {"run_delay": 0.0, "throttled": 0.0, "dtlb_misses": 1e6, "page_faults": 100.0},
    {},
)


def study(environment: Environment, *, pinning: Pinning = Pinning.RANK, pages: Pages = Pages.HUGE) -> Study:
    native = Environment(name="native", backend="native", attachment=Attachment.LOOPBACK, placements=("one",))
    return Study(
        name="why",
        question="",
        environments=(native, environment),
        placements=(
            Placement(name="one", instances=1, tasks=2),
            Placement(name="two", instances=2, tasks=1, pinning=pinning),
        ),
        workloads=(KernelWorkload(name="cg", kernel="cg", params={}, pages=pages),),
        design=Design(
            baselines=("native",), margin=0.03, confidence=0.95, seed=11, mode=Mode.SLICES, slices=SLICES
        ),
    )


def box(**settings: object) -> Environment:
    return replace(
        Environment(name="box", backend="namespaces", attachment=Attachment.VETH_BRIDGE, placements=("two",)),
        **settings,
    )


def told(
    asked: Study,
    counted: Counted,
    *,
    overhead: float,
    spread: Spread,
    comm: float | None = None,
    in_mpi: float | None = None,
    seed: str = "",
) -> Cell:
    """The one cell of a simulated run whose arm counted that beside its extra seconds. comm: as
    SimulatedMetric; in_mpi: seconds of each slice in MPI on both sides, whatever the overhead."""
    plan = make_plan(asked, blocks=BLOCKS)
    metric = SimulatedMetric(
        workload="cg", metric="time", unit="s", better=Better.LOWER, value=SECONDS, comm=comm
    )
    overheads = {ARM: overhead}
    records = simulate(asked, plan, metrics=[metric], overheads=overheads, spread=spread, run=f"nm{seed}")
    rng = Random(f"{seed}counted")

    def with_counters(r: TrialRecord) -> TrialRecord:
        seconds = sum(r.rows[0].values)
        timed, network = NOTHING
        if r.arm == ARM:
            timed, network = counted(seconds - seconds / (1 + overhead), rng)
            timed = {**NOTHING[0], **timed}
        row = r.rows[0]
        if in_mpi is not None:
            row = replace(row, parts={"comm": (in_mpi,) * len(row.values)})
        network = {"TcpExtTCPTimeouts": 0.0, **network}
        return replace(
            r, rows=(row,), counters={Scope.timed("cg"): timed}, network={Scope.timed("cg"): network}
        )

    (cell,) = analyse(asked, plan, [with_counters(r) for r in records]).cells
    return cell


def causes(cell: Cell) -> dict[str, float]:
    assert cell.attribution is not None
    return {p.name: p.overhead.centre for p in cell.attribution.causes}


def change(cell: Cell) -> Change | None:
    assert cell.attribution is not None
    return cell.attribution.suggestion.change if cell.attribution.suggestion else None


def test_a_throttled_arm_is_told_as_throttling() -> None:
    """Two ranks are throttled at once: the kernel adds their seconds up, and counts them as run delay too."""
    asked = study(box(limits=Limits(cpu_quota=0.5)))
    cell = told(asked, lambda s, _: ({"throttled": 2 * s, "run_delay": s}, {}), overhead=0.5, spread=Spread())
    assert cell.verdict is Verdict.SLOWER and cell.attribution is not None
    assert cell.attribution.sentence == "throttled by the CPU quota: 0.1 s of 0.1 s"
    assert change(cell) is Change.CPU
    assert list(causes(cell)) == ["throttled by the CPU quota"] or causes(cell)[
        "waiting for a CPU (steal, run delay)"
    ] == pytest.approx(0, abs=0.01)
    assert causes(cell)["throttled by the CPU quota"] == pytest.approx(0.5, rel=0.05)
    assert cell.attribution.unexplained is not None
    assert cell.attribution.unexplained.low < 0.01 and cell.attribution.unexplained.high > -0.01


def test_a_lossy_link_is_told_as_time_outs() -> None:
    cell = told(
        study(box()),
        lambda s, _: ({}, {"TcpExtTCPTimeouts": s / 0.2}),
        overhead=3.0,
        spread=Spread(),
        comm=0.1,
    )
    assert cell.attribution is not None
    assert cell.attribution.sentence.startswith("communication; TCP time-outs: 3 × 0.2 s = 0.6 s of 0.6 s")
    assert change(cell) is Change.RTO_MIN
    assert causes(cell)["TCP time-outs"] == pytest.approx(3.0, rel=0.05)


def test_an_rto_that_is_short_already_is_not_suggested_again() -> None:
    short = box(network=replace(box().network, rto_min=0.002))
    cell = told(
        study(short), lambda s, _: ({}, {"TcpExtTCPTimeouts": s / 0.2}), overhead=3.0, spread=Spread()
    )
    assert change(cell) is None


def test_waiting_for_a_cpu_is_told_and_pinning_suggested() -> None:
    asked = study(box(), pinning=Pinning.NONE)
    cell = told(asked, lambda s, _: ({"run_delay": 0.9 * s}, {}), overhead=0.4, spread=Spread())
    assert cell.attribution is not None
    assert cell.attribution.sentence.startswith("waiting for a CPU (steal, run delay)")
    assert change(cell) is Change.PINNING


def test_a_small_part_is_named_beside_what_it_leaves() -> None:
    cell = told(study(box()), lambda s, _: ({"run_delay": 0.3 * s}, {}), overhead=0.4, spread=Spread())
    assert cell.attribution is not None and cell.attribution.unexplained is not None
    assert cell.attribution.unexplained.low > 0.2
    assert ": 0.024 s of 0.08" in cell.attribution.sentence


def test_slow_for_no_cause_that_was_counted_is_not_explained() -> None:
    cell = told(study(box()), lambda _, __: ({}, {}), overhead=0.4, spread=Spread())
    assert cell.verdict is Verdict.SLOWER and cell.attribution is not None
    assert (cell.attribution.sentence, change(cell)) == ("not explained", None)


def test_tlb_misses_are_told_beside_a_slower_computation_alone() -> None:
    asked = study(box(), pages=Pages.SMALL)

    def many(_: float, rng: Random) -> tuple[Timed, Timed]:
        return {"dtlb_misses": 3e6 * rng.uniform(0.9, 1.1)}, {}

    slower = told(asked, many, overhead=0.3, spread=Spread(), in_mpi=0.1 * SECONDS)
    assert slower.attribution is not None
    assert slower.attribution.sentence.startswith("computation; TLB misses ×")
    assert slower.attribution.suggestion is not None
    assert slower.attribution.suggestion.words == "huge pages (pages: huge)"
    talking = told(asked, many, overhead=0.3, spread=Spread(), comm=0.1).attribution
    assert talking is not None and "TLB" not in talking.sentence


def test_page_faults_are_told_where_they_are_clearly_more() -> None:
    def faults(times: float) -> Counted:
        return lambda _, rng: ({"page_faults": 100 * times * rng.uniform(0.8, 1.2)}, {})

    for times, said in ((8.0, True), (1.3, False)):
        cell = told(study(box()), faults(times), overhead=0.3, spread=Spread(), in_mpi=0.1 * SECONDS)
        assert cell.attribution is not None
        assert ("page faults ×" in cell.attribution.sentence) is said


@pytest.mark.parametrize("seed", [str(n) for n in range(20)])
def test_a_noisy_arm_is_told_as_nothing(seed: str) -> None:
    """Counts that come and go with no relation to an overhead that is none: no verdict rests on them, no
    cause, no suggestion."""
    asked = study(box(limits=Limits(cpu_quota=0.5)), pinning=Pinning.NONE)

    def noisy(_: float, rng: Random) -> tuple[Timed, Timed]:
        waits = {"run_delay": rng.expovariate(200), "throttled": rng.expovariate(200)}
        return waits, {"TcpExtTCPTimeouts": float(rng.random() < 0.05)}

    cell = told(asked, noisy, overhead=0.0, spread=Spread(instance=0.05, run=0.1), seed=seed)
    assert cell.verdict not in (Verdict.SLOWER, Verdict.FASTER)
    assert cell.attribution is None or (cell.attribution.sentence, change(cell)) == ("", None)


@pytest.mark.parametrize("seed", [str(n) for n in range(10)])
def test_noise_beside_a_true_overhead_is_not_blamed(seed: str) -> None:
    """Both sides wait for CPUs alike; the overhead has another cause."""

    def little(_: float, rng: Random) -> tuple[Timed, Timed]:
        return {"run_delay": 0.002 * rng.random()}, {}

    cell = told(study(box()), little, overhead=0.4, spread=Spread(), seed=seed)
    assert cell.attribution is not None
    assert (cell.attribution.sentence, change(cell)) == ("not explained", None)


@pytest.mark.parametrize(
    ("slower", "words"), [("user", "user code"), ("system", "system calls"), ("wait", "waiting")]
)
def test_a_command_without_mpi_is_divided_by_the_kernel_s_accounts(slower: str, words: str) -> None:
    design = replace(study(box()).design, mode=Mode.PLAIN, runs=3)
    command = CommandWorkload(name="cg", argv=("app",))
    asked = replace(study(box()), workloads=(command,), design=design)
    plan = make_plan(asked, blocks=BLOCKS)
    metric = SimulatedMetric(workload="cg", metric="wall", unit="s", better=Better.LOWER, value=SECONDS)
    records = simulate(asked, plan, metrics=[metric], overheads={ARM: 0.5}, spread=Spread())

    def divided(r: TrialRecord) -> TrialRecord:
        row = r.rows[0]
        usual = {"user": 0.5, "system": 0.3, "wait": 0.2}
        parts = {kind: tuple(share * SECONDS for _ in row.values) for kind, share in usual.items()}
        parts[slower] = tuple(v - (1 - usual[slower]) * SECONDS for v in row.values)
        return replace(r, rows=(replace(row, parts=parts),))

    (cell,) = analyse(asked, plan, [divided(r) for r in records]).cells
    assert cell.attribution is not None
    assert cell.attribution.sentence == words
    found = {p.name: p.overhead.centre for p in cell.attribution.parts}
    assert found[words] == pytest.approx(0.5, abs=0.03)
    assert sum(found.values()) == pytest.approx(0.5, abs=0.03)
