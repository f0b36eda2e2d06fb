"""How benchmarks/lifecycle.py judges moves."""

from __future__ import annotations

import pytest
from benchmarks.guest_moves import GuestMove
from benchmarks.lifecycle import AutoMove, Experience, decide, judged

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
