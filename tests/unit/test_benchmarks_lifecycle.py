"""How benchmarks/lifecycle.py judges moves."""

from __future__ import annotations

import pytest
from benchmarks.guest_moves import GuestMove
from benchmarks.lifecycle import AutoMove, Experience, Judged, Outcome, decide, exit_status, judged, report

from nearmetal.lifecycle import Conditions, Estimate, Method, predict
from nearmetal.subjects.events.move_choice import Predictions


def made(method: Method, total: float, stopped: float, used: Method | None = None) -> AutoMove:
    move = GuestMove(total=total, gap=stopped, floor=0.01, known=0.0045, stopped=stopped)
    return AutoMove(move=move, method=used or method, sampled=1.6)


def cell(auto: AutoMove) -> dict[str, list[AutoMove]]:
    return {
        "offline": [made(Method.OFFLINE, 0.5, 0.4)],
        "precopy": [made(Method.PRECOPY, 1.0, 0.05)],
        "postcopy": [made(Method.POSTCOPY, 0.6, 0.01)],
        "auto": [auto],
    }


@pytest.mark.parametrize(
    ("bound", "total", "stopped", "good"),
    [
        (0.1, 1.2, 0.06, True),  # 1.2 times pre-copy, since post-copy may lose the guest
        (0.1, 1.3, 0.06, False),
        (0.1, 0.5, 0.4, False),  # shorter, but the guest stands still for too long
        (1.0, 0.6, 0.4, True),  # offline keeps a bound of a second
        (1.0, 1.0, 0.05, False),
        (0.02, 0.7, 0.01, True),  # only post-copy keeps this bound
        (0.001, 0.7, 0.012, True),  # nothing keeps it: the standstill counts
        (0.001, 0.5, 0.05, False),
    ],
)
def test_auto_is_compared_with_the_best_method_that_keeps_the_bound(
    bound: float, total: float, stopped: float, good: bool
) -> None:
    assert judged("a load", bound, cell(made(Method.AUTO, total, stopped, Method.PRECOPY))) is good


def test_intervals_are_those_that_were_predicted_before_the_move() -> None:
    known = Conditions(
        memory=Estimate(value=1e8, low=0.9e8, high=1.1e8),
        working_set=Estimate.exactly(0.0),
        dirty_rate=Estimate.exactly(0.0),
        bandwidth=Estimate.exactly(1e9),
        fixed=Estimate.exactly(0.05),
    )
    raw = {m: predict(m, known) for m in (Method.OFFLINE, Method.POSTCOPY)}
    expected = Predictions(corrected=raw, uncorrected=raw)
    experience = Experience()
    experience.add(Method.OFFLINE, expected, 0.15, 0.15)
    experience.add(Method.OFFLINE, expected, 0.5, 0.15)
    assert (experience.totals, experience.standstills) == ([True, False], [True, True])
    assert [p.total for p in experience.past] == [0.15, 0.5]
    assert decide(expected, 0.2) is Method.OFFLINE and decide(expected, 0.1) is Method.POSTCOPY


@pytest.mark.parametrize(
    ("times", "outcome"),
    [
        ((1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.03, 0.97), Outcome.MET),
        ((1.0, 1.2, 0.9, 1.3, 1.0, 1.25, 1.05, 1.1), Outcome.UNDECIDED),
        ((1.3, 1.31, 1.29, 1.32, 1.28, 1.3, 1.33, 1.27), Outcome.MISSED),
        ((1.3, 1.3), Outcome.UNDECIDED),  # no interval is finite with two rounds
    ],
)
def test_a_ratio_is_met_only_if_its_whole_interval_is(
    times: tuple[float, ...], outcome: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [GuestMove(total=t, gap=t, floor=0.01, known=0.0045, stopped=t) for t in times]
    hand = [GuestMove(total=1.0, gap=1.0, floor=0.01, known=0.0045, stopped=1.0)] * len(times)
    limits = report("idle", own, hand, most=10.0)
    assert [(one.name, one.outcome) for one in limits] == [
        ("idle: ratio of the total", outcome),
        ("idle: ratio of the gap", outcome),
        ("idle: median gap", Outcome.MET),
    ]
    assert exit_status(limits) == (outcome is Outcome.MISSED)
    printed = capsys.readouterr().out
    assert f"limit 1.1: {outcome}" in printed
    if outcome is not Outcome.MET:
        assert f"{outcome}: 2 (idle: ratio of the total; idle: ratio of the gap)" in printed


def test_what_compared_nothing_has_met_no_limit() -> None:
    assert exit_status([]) == 1
    assert exit_status([Judged("a", Outcome.MET), Judged("b", Outcome.MISSED)]) == 1
