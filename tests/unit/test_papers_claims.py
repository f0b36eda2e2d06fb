"""Claims of papers against our intervals: known answers, the sentence on what differs, and the report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.unit import test_containers_2015 as containers
from tests.unit import test_two_vm_2009 as two_vm

from nearmetal.analysis.papers.claims import ClaimAnswer, ClaimOutcome, OwnOverhead, hold, unlike, wanted
from nearmetal.analysis.papers.differences import OwnConditions, difference
from nearmetal.analysis.published import rate_loss, speed_gain
from nearmetal.model.change import replace
from nearmetal.model.papers.published import Bound, Direction, MeasurementConditions, PaperClaim, Quantity
from nearmetal.model.series import Series
from nearmetal.published import PHASES, published, read
from nearmetal.report.series import PartResult, series_json, series_text
from nearmetal.report.series_page import write_series

SLOWER, FASTER, SAME = Direction
HOLDS, FAILS, OPEN, IMPOSSIBLE = ClaimOutcome
NOTHING = (-1.0, math.inf)


def claim(
    direction: Direction = SLOWER,
    numbers: tuple[float, float] | None = None,
    *,
    bound: Bound = Bound.ABOUT,
    quantity: Quantity = Quantity.OVERHEAD,
    exact: bool = False,
    workloads: tuple[str, ...] = ("cg",),
    above: tuple[str, ...] = (),
    cannot: str = "",
) -> PaperClaim:
    low, high = numbers or (None, None)
    return PaperClaim(
        what="a claim",
        source="section 1",
        quantity=quantity,
        direction=direction,
        workloads=workloads,
        low=low,
        high=high,
        exact=exact,
        bound=bound,
        above=above,
        printed="" if numbers is None else "a number",
        cannot=cannot,
    )


@pytest.mark.parametrize(
    ("shares", "held", "words"),
    [
        ({"cg": 0.5, "ep": 0.9}, HOLDS, ""),
        ({"cg": 0.39, "ep": 0.99}, HOLDS, ""),  # near enough
        ({"cg": 0.05, "ep": 0.9}, OPEN, "cg computes for 5 % of its time, in the paper 50 %"),
        ({"cg": 0.05, "ep": 0.4}, IMPOSSIBLE, "ep computes for 40 % of its time, in the paper 90 to 95 %"),
        ({"cg": None, "ep": None}, IMPOSSIBLE, "cg was not profiled; ep was not profiled"),
    ],
)
def test_claim_is_checked_only_if_the_share_of_computation_is_as_in_the_paper(
    shares: dict[str, float | None], held: ClaimOutcome, words: str
) -> None:
    conditions = MeasurementConditions(computation={"cg": (0.5, 0.5), "ep": (0.9, 0.95)})
    asked = replace(claim(SLOWER, workloads=("cg", "ep")), conditions=conditions)
    ours = [own(0.01, 0.2), own(0.01, 0.2, "ep")]
    told = hold(asked, ours, unasked=unlike(asked, shares))
    assert told.held is held and words in told.reason
    fails = hold(
        asked, [own(-0.2, -0.1), own(0.01, 0.2, "ep")], unasked=unlike(asked, {"cg": 0.5, "ep": 0.1})
    )
    assert fails.held is FAILS, "one that can be asked fails"
    assert fails.reason.startswith(
        "does not hold for cg; cannot be checked for the others: ep computes for 10 %"
    )
    assert unlike(claim(SLOWER), {"cg": 0.01}) == {}, "the paper says nothing of it"


def own(low: float, high: float, workload: str = "cg", margin: float = 0.03) -> OwnOverhead:
    return OwnOverhead(what=workload, workload=workload, low=low, high=high, margin=margin)


@pytest.mark.parametrize(
    ("asked", "interval", "held"),
    [
        # Directions.
        (claim(SLOWER), (0.01, 0.20), HOLDS),
        (claim(SLOWER), (-0.20, -0.01), FAILS),
        (claim(SLOWER), (-0.05, 0.20), OPEN),
        (claim(SLOWER), (-0.01, 0.02), FAILS),  # equal within the margin
        (claim(FASTER), (-0.20, -0.01), HOLDS),
        (claim(FASTER), (0.01, 0.20), FAILS),
        (claim(FASTER), (-0.01, 0.02), FAILS),
        (claim(SAME), (-0.02, 0.02), HOLDS),
        (claim(SAME), (0.01, 0.02), HOLDS),
        (claim(SAME), (0.04, 0.05), FAILS),
        (claim(SAME), (0.01, 0.05), OPEN),
        # A range.
        (claim(SLOWER, (0.145, 0.675)), (0.15, 0.67), HOLDS),
        (claim(SLOWER, (0.145, 0.675)), (0.145, 0.675), HOLDS),
        (claim(SLOWER, (0.145, 0.675)), (0.68, 0.90), FAILS),
        (claim(SLOWER, (0.145, 0.675)), (0.01, 0.14), FAILS),
        (claim(SLOWER, (0.145, 0.675)), (0.10, 0.20), OPEN),
        (claim(SLOWER, (0.145, 0.675)), (-0.9, -0.78), FAILS),
        # A single number is widened by the margin.
        (claim(SLOWER, (0.095, 0.105), exact=True), (0.07, 0.13), HOLDS),
        (claim(SLOWER, (0.095, 0.105), exact=True), (0.06, 0.13), OPEN),
        (claim(SLOWER, (0.095, 0.105), exact=True), (0.14, 0.20), FAILS),
        (claim(SLOWER, (0.025, 0.035), exact=True), (0.001, 0.060), HOLDS),
        (claim(SLOWER, (0.025, 0.035), exact=True), (-0.010, 0.010), FAILS),
        # The largest and the smallest.
        (claim(SLOWER, (0.0596, 0.0598), bound=Bound.AT_MOST, exact=True), (0.01, 0.05), HOLDS),
        (claim(SLOWER, (0.0596, 0.0598), bound=Bound.AT_MOST, exact=True), (-0.5, -0.4), HOLDS),
        (claim(SLOWER, (0.0596, 0.0598), bound=Bound.AT_MOST, exact=True), (0.06, 0.07), FAILS),
        (claim(SLOWER, (0.0095, 0.0105), bound=Bound.AT_MOST, exact=True), (-0.01, 0.02), OPEN),
        (claim(SLOWER, (0.295, 0.305), bound=Bound.AT_LEAST, exact=True), (0.30, 4.0), HOLDS),
        (claim(SLOWER, (0.295, 0.305), bound=Bound.AT_LEAST, exact=True), (0.01, 0.29), FAILS),
        (claim(SLOWER, (0.295, 0.305), bound=Bound.AT_LEAST, exact=True), (0.01, 0.40), OPEN),
        # Rates: half of the rate lost is twice the time, and twice the speed half of it.
        (claim(SLOWER, (0.49, 0.51), quantity=Quantity.LOSS), (0.97, 1.03), HOLDS),
        (claim(SLOWER, (0.49, 0.51), quantity=Quantity.LOSS), (0.47, 0.53), FAILS),
        (claim(FASTER, (0.99, 1.01), quantity=Quantity.GAIN), (-0.501, -0.499), HOLDS),
        (claim(FASTER, (15.77, 15.78), quantity=Quantity.GAIN), (-0.99, -0.95), FAILS),
        # No interval yet, blocks with failures, blocks that contradict each other.
        (claim(SLOWER), NOTHING, OPEN),
        (claim(FASTER), NOTHING, OPEN),
        (claim(SLOWER), (0.3, math.inf), OPEN),
        (claim(FASTER), (0.3, math.inf), OPEN),
        (claim(SLOWER), (0.3, 0.2), OPEN),
    ],
)
def test_a_claim_is_answered_by_the_interval(
    asked: PaperClaim, interval: tuple[float, float], held: ClaimOutcome
) -> None:
    assert hold(asked, [own(*interval)]).held is held


def test_a_number_can_fail_where_its_direction_holds() -> None:
    answer = hold(claim(SLOWER, (1.795, 1.805), exact=True), [own(0.2, 0.3)])
    assert (answer.held, answer.direction) == (FAILS, HOLDS)
    assert answer.reason == "its direction (slower) holds"


def test_a_claim_on_several_workloads_is_one_on_each() -> None:
    asked = claim(SLOWER, workloads=("cg", "ft", "is"))

    def answer(*overheads: OwnOverhead) -> ClaimAnswer:
        return hold(asked, overheads)

    slow = [own(0.1, 0.2, w) for w in asked.workloads]
    assert (answer(*slow).held, answer(*slow).reason) == (HOLDS, "")
    assert answer(*slow, own(-0.5, -0.4, "ep")).held is HOLDS, "not meant"
    one = answer(*slow[:2], own(-0.2, -0.1, "is"))
    assert (one.held, one.reason) == (FAILS, "holds for cg, ft; does not hold for is")
    assert answer(*slow[:2], own(-0.2, 0.1, "is")).reason == "holds for cg, ft; no verdict yet for is"
    part = answer(*slow[:2])
    assert (part.held, part.direction, part.reason) == (OPEN, OPEN, "not measured: is")
    assert answer(own(-0.2, -0.1)).held is FAILS, "one is enough"
    assert hold(asked, (), why="stopped").reason == "stopped"


def test_a_ranking_needs_intervals_that_do_not_overlap() -> None:
    asked = claim(workloads=("mg", "ft"), above=("cg", "ep"))
    others = [own(0.1, 0.2, "cg"), own(-0.1, 0.1, "ep")]
    assert hold(asked, [own(0.3, 0.4, "mg"), own(0.21, 0.3, "ft"), *others]).held is HOLDS
    overlapping = hold(asked, [own(0.3, 0.4, "mg"), own(0.15, 0.3, "ft"), *others])
    assert (overlapping.held, overlapping.reason) == (OPEN, "their intervals overlap")
    less = hold(asked, [own(0.3, 0.4, "mg"), own(0.01, 0.05, "ft"), *others])
    assert (less.held, less.reason) == (FAILS, "cg is affected more than ft")
    assert hold(asked, [own(0.3, 0.4, "mg"), *others]).reason == "not all of them were measured"
    assert hold(asked, [own(0.3, math.inf, "mg"), own(0.3, 0.4, "ft"), *others]).held is OPEN


def test_what_cannot_be_asked_says_why() -> None:
    assert hold(claim(cannot="one kernel"), [own(0.1, 0.2)]).held is IMPOSSIBLE
    answer = hold(claim(), [own(0.1, 0.2)], cannot="no such environment")
    assert (answer.held, answer.reason) == (IMPOSSIBLE, "no such environment")


def test_the_range_of_a_loss_of_the_whole_rate_is_unbounded() -> None:
    asked = claim(SLOWER, (0.9, 1.0), quantity=Quantity.LOSS)
    low, high = wanted(asked, 0.03)
    assert low == pytest.approx(9.0) and high == math.inf


PAPER = MeasurementConditions(
    ranks=(128, 128),
    nodes=8,
    classes={"cg": "B", "is": "C"},
    link=10e9 / 8,
    kernel="4.0",
    environment="LXC",
)


@pytest.mark.parametrize(
    ("ours", "sentence"),
    [
        (OwnConditions(conditions=PAPER), ""),
        (OwnConditions(conditions=MeasurementConditions()), ""),
        (
            OwnConditions(
                conditions=MeasurementConditions(
                    ranks=(2, 2),
                    nodes=2,
                    classes={"cg": "S", "is": "S", "mg": "S"},
                    link=1e9 / 8,
                    kernel="6.1.0",
                    environment="namespaces",
                ),
                emulated=True,
            ),
            "Here: 2 ranks instead of 128; 2 emulated nodes instead of 8; class S instead of B (CG); links "
            "of 1 Gbit/s instead of 10 Gbit/s; Linux 6.1.0 instead of 4.0; namespaces instead of LXC.",
        ),
        # One node has no links that matter.
        (
            OwnConditions(conditions=MeasurementConditions(nodes=1, link=1e9 / 8), guest="TCG, no KVM"),
            "Here: 1 node instead of 8; TCG, no KVM.",
        ),
        (
            OwnConditions(conditions=MeasurementConditions(nodes=8), emulated=True),
            "Here: nodes emulated on one machine.",
        ),
        (
            OwnConditions(
                conditions=MeasurementConditions(kernel="4.0.9", environment="lxc"), explained="cg: waiting"
            ),
            "Our largest overhead, of cg: waiting.",
        ),
    ],
)
def test_one_sentence_names_what_differs(ours: OwnConditions, sentence: str) -> None:
    assert difference(replace(claim(), conditions=PAPER), ours) == sentence


def told(asked: Series, found: tuple[PartResult, ...]) -> dict[tuple[str, str], dict[str, Any]]:
    form: Any = series_json(asked, found, published(asked.paper), results_dir="r", report="r/report.html")
    json.dumps(form, allow_nan=False)
    return {(p["part"], c["what"]): c for p in form["parts"] for c in p["claims"]}


@pytest.fixture(scope="module")
def measured() -> tuple[Series, tuple[PartResult, ...]]:
    """25 % planted in the packed containers and in those of one machine."""
    asked = containers.series(8)
    kernel: dict[str, Any] = {"kernel": {"release": "6.1.0-18-amd64"}}
    return asked, tuple(replace(r, provenance=kernel) for r in containers.results(asked))


def test_the_report_answers_every_claim(
    measured: tuple[Series, tuple[PartResult, ...]], tmp_path: Path
) -> None:
    asked, found = measured
    claims = told(asked, found)
    paper = published(asked.paper)
    assert paper is not None and len(claims) == len(paper.claims)
    packing = claims["q1", "8 containers on each machine against as many bare machines"]
    assert packing["held"] == "holds here" and set(packing["each"]) == {"cg", "ep", "ft", "is", "lu", "mg"}
    assert "8 ranks instead of 64" in packing["differs"]
    assert "class W instead of B (CG, EP, FT, LU); class W instead of C (IS); class A" in packing["differs"]
    assert "Linux 6.1.0 instead of 4.0; namespaces instead of LXC" in packing["differs"]
    assert all(0.15 < o["low"] < o["high"] < 0.67 for o in packing["ours"])
    ranking = claims["q1", "the benchmarks that suffer most from packing are MG, LU and FT"]
    assert ranking["held"] == "no verdict yet", "all of them suffer alike"
    gain = claims["q1", "largest gain from Linux 3.2 to 3.16, less the gain without containers"]
    assert gain["held"] == "cannot be checked here" and "a run has one kernel" in gain["reason"]
    largest = claims[
        "q2", "containers of one machine against shared memory: the largest overhead (MG, class C)"
    ]
    assert (largest["held"], largest["direction_held"]) == ("does not hold here", "holds here")
    apart = claims["q2", "MG, LU and EP take less time on several machines than on one"]
    assert apart["held"] == "does not hold here", "they are equal within the margin"
    assert "LXC" not in apart["differs"] and "4 emulated nodes instead of 8" in apart["differs"]

    page, markdown = write_series(tmp_path, asked, found, paper)
    terminal = series_text(asked, found, paper)
    for text in (page.read_text().replace("\u00a0", " "), markdown.read_text(), terminal):
        assert text.count("claims hold here?") >= 4
        assert "cannot be checked here: a run has one kernel" in text
        assert "no verdict yet: their intervals overlap" in text
        assert "What does not follow from the paper" in text and "81 %" in text


def test_a_machine_or_a_part_that_cannot_ask_says_so() -> None:
    asked = containers.series(1)
    nothing = tuple(
        PartResult(part=p, directory=None, study=None, analysis=None, records=(), why="no time was left")
        for p in asked.parts
    )
    claims = told(asked, nothing)
    packing = claims["q1", "8 containers on each machine against as many bare machines"]
    assert packing["held"] == "cannot be checked here" and "1 core" in packing["reason"]
    third = claims["q3", "CG with 128 processes, one container on each machine"]
    assert third["held"] == "no verdict yet" and third["reason"] == "not measured: no time was left"
    assert third["ours"] == [] and third["differs"].startswith(
        "Here: 1 rank instead of 128; 1 node instead of 8"
    )
    third_part = next(r for r in nothing if r.part.key == "q3")
    claims = told(asked, (replace(third_part, part=replace(third_part.part, places={})),))
    assert {c["held"] for c in claims.values()} == {"cannot be checked here"}
    assert 'no environment "container" on this machine' in next(iter(claims.values()))["reason"]


def test_a_claim_on_an_arm_that_the_run_left_out_says_why(
    measured: tuple[Series, tuple[PartResult, ...]],
) -> None:
    asked, found = measured
    q2 = next(r for r in found if r.part.key == "q2")
    assert q2.study is not None and q2.analysis is not None
    gone = q2.part.places["container"]
    kept = [a.name for a in q2.study.arms() if a.name != gone]
    cells = tuple(c for c in q2.analysis.cells if gone not in (c.arm, c.baseline))
    left = replace(
        q2,
        study=q2.study.with_arms(kept),
        analysis=replace(q2.analysis, cells=cells),
        provenance={"not_here": {gone: "lxc-start: exit status 1"}},
    )
    claims = told(asked, (left,))
    about = claims[
        "q2", "containers of one machine against shared memory: the largest overhead (MG, class C)"
    ]
    assert (about["held"], about["ours"]) == ("no verdict yet", [])
    assert about["reason"] == "not measured: lxc-start: exit status 1"


def test_the_claim_of_2009_is_answered_in_its_part() -> None:
    asked = two_vm.series(2)
    found = two_vm.result(asked.parts[0])
    claims = told(asked, (found,))
    (only,) = claims.values()
    # 10 % were planted; 3 % are printed.
    assert (only["held"], only["direction_held"]) == ("does not hold here", "holds here")
    assert only["printed"] == "3 %" and "2 ranks instead of 16" in only["differs"]
    assert "Linux" not in only["differs"], "a guest has a kernel of its own"


def test_printed_numbers_enter_no_estimate(measured: tuple[Series, tuple[PartResult, ...]]) -> None:
    asked, found = measured
    with_paper: Any = series_json(asked, found, published(asked.paper), results_dir="r", report="x")
    without: Any = series_json(asked, found, None, results_dir="r", report="x")
    for key in ("result", "instances", "why"):
        assert [p[key] for p in with_paper["parts"]] == [p[key] for p in without["parts"]]
    assert all(p["claims"] == [] for p in without["parts"]) and without["paper"] is None


def test_shares_and_times_of_table_1_are_shown_side_by_side() -> None:
    paper = published("containers-2015")
    assert paper is not None
    cells = [f for f in paper.of_part("q2") if f.source == "Table 1"]
    assert {f.phase for f in cells} == set(PHASES)
    assert {f.quantity for f in cells} == {Quantity.TIME, Quantity.TIME_SHARE}


OWN = """\
[paper]
key = "own"
title = "Own"
authors = "us"
year = 2025
where = "here"
setting = "one machine"
[[number]]
name = "loss"
what = "loss"
source = "Table 1"
value = 20
unit = "%"
[[number]]
name = "gain"
what = "gain"
source = "Table 1"
value = -20
unit = "%"
[[claim]]
what = "rate lost by packing"
source = "Table 1"
direction = "slower"
quantity = "loss of rate"
number = "loss"
part = "q1"
workloads = ["mg"]
arm = "packed"
baseline = "spread"
[[claim]]
what = "speed gained by packing"
source = "Table 1"
direction = "slower"
quantity = "gain"
number = "gain"
part = "q1"
workloads = ["mg"]
arm = "packed"
baseline = "spread"
[[claim]]
what = "packing of another program"
source = "Table 1"
direction = "slower"
part = "q1"
workloads = ["hpl"]
arm = "packed"
baseline = "spread"
"""


def test_a_table_of_ones_own_is_shown_in_its_own_quantities(
    measured: tuple[Series, tuple[PartResult, ...]],
) -> None:
    """25 % more time is 20 % of the rate lost, and a speed of 80 %."""
    asked, found = measured
    form: Any = series_json(asked, found, read(OWN, "own.toml"), results_dir="r", report="x")
    (part,) = [p for p in form["parts"] if p["part"] == "q1"]
    loss, gain = part["published"]
    for shown, value in ((loss, 0.2), (gain, -0.2)):
        (ours,) = shown["ours"]
        assert ours["low"] < ours["value"] < ours["high"] and ours["value"] == pytest.approx(value, abs=0.01)
    assert [c["held"] for c in part["claims"]] == ["holds here", "holds here", "cannot be checked here"]
    assert part["claims"][2]["reason"] == "the study does not run hpl"


SHOWN = """\
[[table]]
name = "times"
what = "time"
source = "Table 2"
unit = "s"
columns = ["compute"]
rows = { CG-S = [1.0] }
shown.rows = "benchmark"
shown.part = "q2"
shown.quantity = "time"
shown.arm = "multinode"
shown.likeness = "like it"
shown.differs = "all"
[[table]]
name = "starts"
what = "boot"
source = "Table 3"
unit = "s"
columns = ["mean"]
rows = { "our machine" = [43.5] }
shown.rows = "environment"
shown.part = "q2"
shown.quantity = "boot time"
shown.of = "boot"
shown.likeness = "like it"
shown.differs = "all"
[[number]]
name = "a time"
what = "time of a process"
source = "section 3"
value = 12
unit = "s"
shown = { part = "q2", quantity = "time", arm = "multinode", likeness = "like it", differs = "all" }
"""


def test_a_figure_that_no_profile_has_says_so_and_a_boot_time_may_be_a_mean_alone(
    measured: tuple[Series, tuple[PartResult, ...]],
) -> None:
    asked, found = measured
    paper = read(OWN + SHOWN, "own.toml")
    form: Any = series_json(asked, found, paper, results_dir="r", report="x")
    (part,) = [p for p in form["parts"] if p["part"] == "q2"]
    lacking = {b["what"]: b["lacking"] for b in part["published"]}
    assert lacking["compute of CG-S, multinode"] == (
        'not measured: "compute" is not one of computation, communication, start of MPI'
    )
    assert lacking["time of a process"] == "not measured: no profile"
    assert "43.5" in series_text(asked, found, paper)


@pytest.mark.parametrize("overhead", [-0.5, 0.0, 0.25, 4.0])
def test_the_printed_quantities_are_those_of_the_overhead(overhead: float) -> None:
    for quantity, printed in ((Quantity.LOSS, rate_loss(overhead)), (Quantity.GAIN, speed_gain(overhead))):
        low, high = wanted(claim(SAME, (printed, printed), quantity=quantity), 9.0)
        assert low == pytest.approx(overhead) and high == pytest.approx(overhead)
    with pytest.raises(ValueError, match="at least -1"):
        speed_gain(-1.5)
    assert speed_gain(-1.0) == math.inf and speed_gain(math.inf) == -1.0
