"""The analysis between blocks: never later than a look, and cheap where blocks are short."""

import time
from pathlib import Path

import pytest

from nearmetal.host.untrusted import UntrustedDirectory
from nearmetal.model.study import Design, Environment, EventSubject, Placement, Study
from nearmetal.plan import make_plan
from nearmetal.records import Trials
from nearmetal.run.decide import Clock, should_stop
from nearmetal.run.running import RunningAnalysis
from nearmetal.subjects.start_stop import START

STUDY = Study(
    name="s",
    question="",
    environments=(Environment(name="native", backend="native", placements=("one",)),),
    placements=(Placement(name="one", instances=1, tasks=1),),
    workloads=(EventSubject(name="start", facts=START),),
    design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=1, max_blocks=30),
)


def no_trials() -> Trials:
    return Trials(UntrustedDirectory(Path()), (), (), 0)


def test_running_analysis_is_renewed_at_looks_and_when_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.001  # every reading: an analysis takes 1 ms
        return now[0]

    monkeypatch.setattr(time, "monotonic", clock)
    kept = RunningAnalysis(STUDY, make_plan(STUDY))
    fresh = [n for n in range(30) if kept.after(no_trials, n)[1]]
    # The schedule looks after 8, 12, 18 and 27 blocks; else 20 ms must pass, 1 ms at each reading.
    assert {0, 8, 12, 18, 27} <= set(fresh) and len(fresh) <= 7
    now[0] += 1
    assert kept.after(no_trials, 29)[1]


def test_stop_rule_counts_blocks_that_the_analysis_lacks() -> None:
    kept = RunningAnalysis(STUDY, make_plan(STUDY))
    verdicts = kept.verdicts(kept.after(no_trials, 0)[0])
    clock = Clock(elapsed=0.0, block_seconds=0.0)
    assert should_stop(STUDY.design, verdicts, 29, clock) is None
    stop = should_stop(STUDY.design, verdicts, 30, clock)
    assert stop is not None and stop.reason == "30 rounds are done"
