"""The study that tries a change: the arm as it was, the arm with it, the baseline; and what it answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.analysis.causes.suggestions import REMEDIES, suggest
from nearmetal.api.adhoc.try_change import answer, chosen, triable, try_study
from nearmetal.api.catalog import catalog
from nearmetal.errors import UsageError
from nearmetal.model.result import Analysis, Attribution, Cell, Change, Suggestion, Verdict
from nearmetal.model.study import (
    Arm,
    Attachment,
    Design,
    Environment,
    KernelWorkload,
    Limits,
    Pinning,
    Placement,
    Storage,
    StorageKind,
    Study,
    Transport,
)
from nearmetal.report.tables.cells import cause_text, next_steps
from nearmetal.study_file import dump_study, load_text

PLACE = Placement(name="one", instances=1, tasks=2, pinning=Pinning.INSTANCE)
TWO = Placement(name="two", instances=2, tasks=1)


def study(**settings: object) -> Study:
    box = Environment(name="box", backend="namespaces", placements=("one",))
    return Study(
        name="first",
        question="",
        environments=(
            Environment(name="metal", backend="native", placements=("one",)),
            replace(box, **settings),  # type: ignore[arg-type]
            Environment(name="other", backend="namespaces", placements=("one",)),
        ),
        placements=(PLACE, TWO),
        workloads=(
            KernelWorkload(name="cg", kernel="cg", params={}),
            KernelWorkload(name="ep", kernel="ep", params={}),
        ),
        design=Design(baselines=("metal",), margin=0.03, confidence=0.95, seed=1),
    )


def cell(change: Change | None, *, arm: str = "box/one", overhead: float = 0.5) -> Cell:
    c = sample.analysis().cells[0]
    told = Attribution(
        parts=(), residual=None, sentence="cause", suggestion=Suggestion(change=change, words="this change")
    )
    return replace(
        c,
        arm=arm,
        environment=arm.split("/")[0],
        baseline="metal/one",
        workload="cg",
        metric="rate",
        overhead=overhead,
        verdict=Verdict.SLOWER,
        attribution=told,
    )


def tried(change: Change, **settings: object) -> Study:
    return try_study(study(**settings), cell(change, arm=settings_arm(settings)), seed=7)


def settings_arm(settings: dict[str, object]) -> str:
    placements = settings.get("placements")
    return f"box/{placements[0]}" if isinstance(placements, tuple) else "box/one"


def arms(made: Study) -> dict[str, Arm]:
    return {a.environment.name: a for a in made.arms()}


def test_just_that_pair_and_its_baseline() -> None:
    made = tried(Change.CPU, limits=Limits(cpu_quota=0.5))
    assert list(arms(made)) == ["metal", "box", "box-tried"]
    assert [w.name for w in made.workloads] == ["cg"]
    assert made.design.baselines == ("box", "metal") and made.design.primary == ("cg.rate",)
    pairs = {(c.arm, c.baseline) for c in made.comparisons()}
    assert ("box-tried/one", "box/one") in pairs and ("box-tried/one", "metal/one") in pairs
    assert made.design.seed == 7


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        (Change.CPU, {"limits": Limits(cpu_quota=0.5, memory=1 << 30)}),
        (Change.CPU_SHARES, {"limits": Limits(cpu_shares=100)}),
        (Change.MEMORY, {"limits": Limits(cpu_quota=0.5, memory=1 << 30)}),
        (Change.RTO_MIN, {"attachment": Attachment.VETH_BRIDGE, "placements": ("two",)}),
        (Change.ATTACHMENT, {"attachment": Attachment.VETH_BRIDGE, "placements": ("two",)}),
        (Change.STORAGE, {"storage": Storage(kind=StorageKind.OVERLAY)}),
        (Change.PINNING, {}),
        (Change.ONE_INSTANCE, {"attachment": Attachment.VETH_BRIDGE, "placements": ("two",)}),
    ],
)
def test_every_change_is_made_and_the_file_says_it(change: Change, settings: dict[str, object]) -> None:
    made = tried(change, **settings)
    before, after = arms(made)["box"], arms(made)["box-tried"]
    assert (replace(after.environment, name="box"), after.placement) != (before.environment, before.placement)
    again = load_text(dump_study(made, catalog()), "try.yaml", catalog(), seed=7)
    assert again.arms() == made.arms() and again.design == made.design


def test_changes_are_what_they_say() -> None:
    freed = arms(tried(Change.CPU, limits=Limits(cpu_quota=0.5, memory=1 << 30)))["box-tried"]
    assert freed.environment.limits == Limits(memory=1 << 30)
    seated = {"attachment": Attachment.VETH_BRIDGE, "placements": ("two",)}
    assert arms(tried(Change.RTO_MIN, **seated))["box-tried"].environment.network.rto_min == 0.002
    assert arms(tried(Change.ATTACHMENT, **seated))["box-tried"].environment.attachment is Attachment.MACVLAN
    assert arms(tried(Change.PINNING))["box-tried"].placement.pinning is Pinning.RANK
    one = tried(Change.ONE_INSTANCE, **seated)
    assert arms(one)["box-tried"].transport is Transport.SHM
    assert {(c.arm, c.baseline) for c in one.comparisons()} >= {("box-tried/two-tried", "box/two")}


def analysis(*cells: Cell) -> Analysis:
    return replace(sample.analysis(), cells=cells)


def test_largest_overhead_is_tried_unless_another_is_named() -> None:
    small, large = cell(Change.CPU, overhead=0.1), cell(Change.CPU, arm="other/one", overhead=0.9)
    plain = cell(None)
    found = analysis(small, large, plain)
    assert triable(found) == [large, small]
    assert chosen(found, "", "d") is large
    assert chosen(found, "box/one:cg.rate", "d") is small
    assert chosen(found, small.key, "d") is small
    with pytest.raises(UsageError, match="nothing to try for 'x'"):
        chosen(found, "x", "d")
    with pytest.raises(UsageError, match="no material overhead"):
        chosen(analysis(plain), "", "d")
    with pytest.raises(UsageError, match="no change"):
        try_study(study(), plain, seed=1)


@pytest.mark.parametrize(
    ("verdict", "helps"),
    [
        (Verdict.FASTER, True),
        (Verdict.SLOWER, False),
        (Verdict.EQUIVALENT, False),
        (Verdict.NONE, None),
        (Verdict.INCONSISTENT, None),
    ],
)
def test_the_answer(verdict: Verdict, helps: bool | None) -> None:
    asked = cell(Change.CPU)
    result = replace(asked, arm="box-tried/one", environment="box-tried", baseline="box/one", verdict=verdict)
    beside = replace(result, baseline="metal/one")
    told = answer(analysis(beside, result), asked)
    assert (told.helps, told.cell) == (helps, result)
    assert answer(analysis(beside), asked).helps is None


def test_every_remedy_with_a_change_can_be_tried() -> None:
    assert {r.change for r in REMEDIES if r.change} == set(Change)
    assert all(r.words for r in REMEDIES)


def test_a_limit_that_the_baseline_has_too_is_no_cause_of_a_difference() -> None:
    made = study(limits=Limits(cpu_quota=0.5))
    box, metal = (Arm(environment=e, placement=PLACE) for e in (made.environments[1], made.environments[0]))
    kernel = made.workloads[0]
    found = suggest(["THROTTLED"], "", box, metal, kernel)
    assert found is not None and found.change is Change.CPU
    assert suggest(["THROTTLED"], "", box, box, kernel) is None
    assert suggest([], "not explained", box, metal, kernel) is None


def test_the_report_says_what_to_try() -> None:
    c = cell(Change.CPU)
    assert cause_text(c) == "cause; try: this change"
    assert next_steps(analysis(c), "results/x")[0].endswith("nearmetal try results/x")
    assert next_steps(analysis(cell(None)), "results/x") == ()
