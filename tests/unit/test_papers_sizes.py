"""Classes and links that the baseline alone chooses, by how long it computes in comparison with a paper's."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.test_series_files import read, written

from nearmetal.analysis.papers.sizes import choose, distance, printed_shares, wanted_shares, with_sizes
from nearmetal.errors import StudyError
from nearmetal.model.environments.placement import NodeLink
from nearmetal.model.study import Design, Environment, KernelWorkload, Placement, Study
from nearmetal.model.workloads.kernel import Pages
from nearmetal.published import published

FAST = NodeLink(rate=10e9 / 8, delay=0.0)
PLACES = (
    Placement(name="slow", nodes=2, instances=1, tasks=1),
    Placement(name="fast", nodes=2, instances=1, tasks=1, link=FAST),
)
NATIVE = Environment(name="native", backend="native", placements=("slow", "fast"))
DESIGN = Design(baselines=("native",), margin=0.03, confidence=0.95, seed=1)


def kernel(name: str, size: str, kernel: str = "") -> KernelWorkload:
    return KernelWorkload(name=name, kernel=kernel or name.partition("-")[0], params={"class": size})


def study(*workloads: KernelWorkload) -> Study:
    return Study(
        name="s", question="", environments=(NATIVE,), placements=PLACES, workloads=workloads, design=DESIGN
    )


CANDIDATES = study(kernel("cg-s", "S"), kernel("cg-w", "W"), kernel("ep-s", "S"), kernel("ft-s", "S"))
SHARES = {
    ("native/slow", "cg-s"): 0.03,
    ("native/slow", "cg-w"): 0.2,
    ("native/slow", "ep-s"): 0.97,
    ("native/fast", "cg-s"): 0.3,
    ("native/fast", "cg-w"): 0.6,
    ("native/fast", "ep-s"): 0.99,
}
PRINTED = {"cg": (0.55, 0.55), "ep": (0.9, 0.97), "lu": (0.8, 0.8)}


def test_classes_and_links_are_those_nearest_the_printed_shares() -> None:
    chosen = choose(CANDIDATES, SHARES, PRINTED)
    assert chosen is not None and chosen.arm.name == "native/fast"
    assert {k: w.name for k, w in chosen.chosen.items()} == {"cg": "cg-w", "ep": "ep-s"}
    assert chosen.shares == {"cg": 0.6, "ep": 0.99}
    said = chosen.words(PRINTED)
    assert "cg class W (60 %, in the paper 55 %); ep class S (99 %, in the paper 90 to 97 %)" in said
    assert "links of 10 Gbit/s and 0 us" in said and "not near" not in said


def test_links_with_more_kernels_near_the_paper_win_over_a_smaller_distance_in_total() -> None:
    two = {("native/slow", "cg-s"): 0.42, ("native/slow", "ep-s"): 0.8}  # .13 and .10, both near
    one = {("native/fast", "cg-s"): 0.55, ("native/fast", "ep-s"): 0.72}  # 0 and .18
    chosen = choose(CANDIDATES, two | one, PRINTED)
    assert chosen is not None and chosen.arm.name == "native/slow"


def test_links_with_which_a_kernel_failed_do_not_win_by_its_missing_distance() -> None:
    both = {("native/slow", "cg-s"): 0.5, ("native/slow", "ep-s"): 0.5}  # one near, the other .4 away
    failed = {("native/fast", "cg-s"): 0.55}
    chosen = choose(CANDIDATES, both | failed, PRINTED)
    assert chosen is not None and chosen.arm.name == "native/slow"


def test_a_kernel_that_is_near_with_no_candidate_is_named() -> None:
    chosen = choose(CANDIDATES, {("native/slow", "cg-s"): 0.03}, PRINTED)
    assert chosen is not None and "cg class S (3 %, in the paper 55 %, not near)" in chosen.words(PRINTED)


@pytest.mark.parametrize(
    ("shares", "printed"), [({}, PRINTED), (SHARES, {}), ({("other/slow", "cg-s"): 0.5}, PRINTED)]
)
def test_without_a_share_or_a_printed_one_nothing_is_chosen(
    shares: dict[tuple[str, str], float], printed: dict[str, tuple[float, float]]
) -> None:
    assert choose(CANDIDATES, shares, printed) is None


def test_a_study_gets_the_chosen_classes_and_links_and_keeps_its_names() -> None:
    one = Placement(name="one", instances=2, tasks=1)
    asked = study(kernel("cg", "S"), kernel("mg", "S"))
    asked = Study(**{**vars(asked), "placements": (PLACES[0], one)})
    chosen = choose(CANDIDATES, SHARES, PRINTED)
    assert chosen is not None
    sized = with_sizes(asked, chosen)
    assert [(w.name, w.params["class"]) for w in sized.kernels] == [("cg", "W"), ("mg", "S")]
    assert [p.link for p in sized.placements] == [FAST, NodeLink()], "one node has no links"
    assert [p.name for p in sized.placements] == ["slow", "one"]


def test_a_workload_keeps_its_pages_and_metrics_and_several_of_a_kernel_stay_as_they_are() -> None:
    own = KernelWorkload(name="c", kernel="cg", params={"class": "S"}, pages=Pages.SMALL, metrics=("rate",))
    asked = study(own, kernel("ep-s", "S"), kernel("ep-b", "B"))
    wanted = wanted_shares(asked, PRINTED)
    assert wanted == {"cg": PRINTED["cg"]}
    chosen = choose(CANDIDATES, SHARES, wanted)
    assert chosen is not None
    cg, *others = with_sizes(asked, chosen).kernels
    assert cg == KernelWorkload(
        name="c", kernel="cg", params={"class": "W"}, pages=Pages.SMALL, metrics=("rate",)
    )
    assert others == list(asked.kernels[1:])


def test_the_shares_of_the_paper_are_those_of_its_claims() -> None:
    found = printed_shares(published("containers-2015"), "q1")
    assert found["cg"] == pytest.approx((0.547, 0.547), abs=1e-3)
    assert found.keys() == {"cg", "ep", "ft", "is", "lu", "mg"}
    assert printed_shares(published("containers-2015"), "q3") == printed_shares(None, "q1") == {}
    assert distance(0.5, (0.55, 0.6)) == pytest.approx(0.05) and distance(0.57, (0.55, 0.6)) == 0.0


def test_sizes_come_from_a_part_that_measures_the_baseline_alone(tmp_path: Path) -> None:
    changes = [
        ("series.yaml", "notes: [Two", "sizes_from: cpu\n    notes: [Two"),
        ("cpu.yaml", "{baseline: native}", "{baseline: native, profile: true}"),
    ]
    with pytest.raises(StudyError) as told:
        read(written(tmp_path, *changes))
    what = "parts.net.sizes_from: sizes are chosen by the baseline alone; take box out of cpu"
    assert str(told.value).splitlines()[0] == f"{tmp_path}/series.yaml:17:17  {what}"
    alone = ("cpu.yaml", "  box: {backend: lxc, attachment: veth-bridge}\n", "")
    places = ("series.yaml", ", boxed: [box/2x1, box/1x1]", "")
    assert read(written(tmp_path, *changes, alone, places)).head.parts[1].sizes_from == "cpu"
