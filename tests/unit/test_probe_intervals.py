"""How often the probe of a move asks: as often as it can for less than 1 % of a core."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from nearmetal.environments import Tools
from nearmetal.host import LocalHost
from nearmetal.lifecycle import RESTS, ProbeLog, ProbeTimes
from nearmetal.network.build import Network
from nearmetal.subjects.events.probing import Client, Intervals, Probe


@dataclass(frozen=True, kw_only=True)
class Planted(Probe):
    """A probe on a machine where each request takes `cost` seconds of CPU time, and where the instance loses
    requests that come more often than every `fits` seconds, or answers late, so that the client asks for
    `silent` seconds as in a silence."""

    cost: float
    fits: float = 0.0
    silent: float = 0.0
    asked: list[Intervals] = field(default_factory=list)

    def begin(self, intervals: Intervals, seconds: float = 0.0) -> Client:
        self.asked.append(intervals)
        lost = intervals.period < self.fits
        step = intervals.period if lost else intervals.rest
        count = round(seconds / step)
        sent = [ProbeTimes(sent=i * step, answers=(i * step + 1e-4,), step=step) for i in range(count)]
        often = round(self.silent / intervals.period)
        sent += [ProbeTimes(sent=seconds, answers=(seconds + 1.0,), step=intervals.period)] * often
        sent += [ProbeTimes(sent=seconds, step=step)] if lost else []
        return cast(
            "Client",
            _Ended(ProbeLog(udp=tuple(sent), tcp=tuple(sent), cpu=len(sent) * self.cost, broken=None)),
        )


@dataclass(frozen=True)
class _Ended:
    log: ProbeLog

    def end(self, *, early: bool) -> ProbeLog:
        assert not early
        return self.log


def planted(cost: float, fits: float = 0.0, silent: float = 0.0) -> Planted:
    nowhere = Path("/nonexistent")
    return Planted(
        host=LocalHost(),
        tools=Tools(directory=nowhere),
        network=cast("Network", None),
        address="10.0.0.1",
        directory=nowhere,
        cost=cost,
        fits=fits,
        silent=silent,
    )


@pytest.mark.parametrize(
    ("cost", "rest"), [(45e-6, 10e-3), (79e-6, 10e-3), (150e-6, 20e-3), (300e-6, 40e-3), (2e-3, 40e-3)]
)
def test_it_asks_as_often_as_it_can_for_little_of_a_core(cost: float, rest: float) -> None:
    """At 2 ms for each request no interval is long enough, and the longest is taken."""
    rests = list(RESTS)
    first = planted(cost)
    found = first.floor(rests)
    assert found.intervals == Intervals(period=0.5e-3, rest=rest) and found.udp.lost == 0
    assert found.tcp.period == max(rest, 20e-3)
    for other in (45e-6, 2e-3):
        later = planted(other)
        assert later.floor(rests).intervals.rest == rest and len(later.asked) == 1, "all of a run ask alike"


def test_answers_that_come_late_do_not_count_as_cost() -> None:
    """An emulated guest answers late, and the client asks every 0.5 ms for a tenth of the time."""
    late = planted(50e-6, silent=0.1)
    assert late.floor(list(RESTS)).intervals == Intervals(period=0.5e-3, rest=10e-3)


def test_requests_that_are_lost_do_not_count_as_cost() -> None:
    """The client asks every 0.5 ms while none is answered, which takes 15 % of a core here."""
    rests = list(RESTS)
    asking = planted(75e-6, fits=2e-3)
    assert asking.floor(rests).intervals == Intervals(period=2e-3, rest=10e-3)
    assert rests == [10e-3] and [p.period for p in asking.asked] == [0.5e-3, 2e-3]
    always, others = planted(75e-6, fits=1.0), list(RESTS)
    found = always.floor(others).intervals
    assert found == Intervals(period=20e-3, rest=20e-3), "the longest, at which some are lost too"
    assert others == list(RESTS), "what a probe costs at 10 ms was not seen"


def test_each_floor_has_as_many_requests_whatever_its_interval() -> None:
    assert [planted(cost).floor(list(RESTS)).udp.requests for cost in (45e-6, 150e-6, 300e-6)] == [100] * 3
