"""What a run does next: which reason to stop wins, what the next block verifies, and what has dropped out."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.change import replace
from nearmetal.model.plan import NextBlock
from nearmetal.model.record import Row, TrialRecord
from nearmetal.model.result import VerdictState
from nearmetal.model.study import Design, Environment, EventSubject, KernelWorkload, Placement, Study
from nearmetal.plan import VERIFIED_EVERY
from nearmetal.run.decide import Clock, RunState, Stop, Verifications, decide, next_block
from nearmetal.subjects.start_stop import START
from nearmetal.testing.simulate import PLAIN

KERNELS = ("ep", "cg", "is")
STUDY = Study(
    name="s",
    question="",
    environments=(
        Environment(name="native", backend="native", placements=("one",)),
        Environment(name="box", backend="namespaces", placements=("one",), workloads=("ep", "cg", "start")),
    ),
    placements=(Placement(name="one", instances=1, tasks=1),),
    workloads=(
        *(KernelWorkload(name=n, kernel=n, params={}) for n in KERNELS),
        EventSubject(name="start", facts=START),
    ),
    design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=2),
)
BOTH = ("native/one", "box/one")


def block(
    number: int,
    *,
    settled: Mapping[str, frozenset[str]] | None = None,
    seen: Verifications | None = None,
    verify_all: bool = False,
    study: Study = STUDY,
) -> NextBlock:
    return next_block(
        study,
        number,
        1,
        slices=dict.fromkeys(KERNELS, 6),
        work={},
        settled=settled or {},
        verifications=seen or Verifications(),
        verify_all=verify_all,
    )


def trials(order: NextBlock, failed: frozenset[tuple[str, str]] = frozenset()) -> list[TrialRecord]:
    """The records of a block. failed: (arm, kernel) whose verification fails."""
    out = []
    for trial in order.block.trials:
        rows: list[Row] = []
        for name in KERNELS:
            if STUDY.arms()[BOTH.index(trial.arm)].environment.takes(name) and order.runs(trial.arm, name):
                ok = (trial.arm, name) not in failed
                checked = {"ok": ok} if order.verifies(trial.arm, name) else {}
                rows.append(replace(PLAIN.rows[0], workload=name, verification=checked))
        out.append(replace(PLAIN, block=order.block.number, arm=trial.arm, aa=trial.aa, rows=tuple(rows)))
    return out


@given(st.integers(1, 10_000))
def test_each_kernel_is_verified_in_every_eighth_block_and_not_all_in_one(number: int) -> None:
    found = [block(n).verified["native/one"] for n in range(number, number + VERIFIED_EVERY)]
    for name in KERNELS:
        assert sum(name in verified for verified in found) == 1
    assert max(len(verified) for verified in found) == 1


def test_the_first_block_after_a_resume_verifies_everything() -> None:
    assert all(block(5, verify_all=True).verifies(arm, name) for arm in BOTH for name in KERNELS)


def test_a_profile_needs_every_kernel_in_full_in_every_block() -> None:
    profiled = replace(STUDY, design=replace(STUDY.design, profile=True))
    assert all(block(3, study=profiled).verifies(arm, name) for arm in BOTH for name in KERNELS)


def test_decided_workload_is_verified_once_more_and_then_left_out() -> None:
    seen, settled = Verifications(), {"box/one": frozenset({"ep"})}
    seen.saw(trials(block(9)))
    leaving = block(10, settled=settled, seen=seen)
    assert leaving.runs("box/one", "ep") and leaving.verifies("box/one", "ep")
    assert not leaving.verifies("native/one", "ep")
    seen.saw(trials(leaving))
    after = block(11, settled=settled, seen=seen)
    assert not after.runs("box/one", "ep") and after.runs("box/one", "cg") and after.runs("native/one", "ep")
    assert after.left_out == {"box/one": {"ep"}}


def test_workload_verified_in_its_last_block_is_left_out_at_once() -> None:
    seen = Verifications()
    seen.saw(trials(block(3, verify_all=True)))
    assert not block(4, settled={"box/one": frozenset({"ep"})}, seen=seen).runs("box/one", "ep")


def test_an_event_needs_no_verification_to_leave() -> None:
    assert not block(4, settled={"box/one": frozenset({"start"})}).runs("box/one", "start")


def test_an_arm_that_has_nothing_left_to_run_is_not_started() -> None:
    seen = Verifications()
    seen.saw(trials(block(3, verify_all=True)))
    gone = block(4, settled={"box/one": frozenset({"ep", "cg", "start"})}, seen=seen)
    assert {t.arm for t in gone.block.trials} == {"native/one"} and len(gone.block.trials) == 2
    with pytest.raises(ValueError, match="rounds"):
        every = {"box/one": frozenset({"ep", "cg", "start"}), "native/one": frozenset({*KERNELS, "start"})}
        block(4, settled=every, seen=seen)


def test_a_failed_verification_is_repeated_in_every_block_until_it_passes() -> None:
    seen, bad = Verifications(), frozenset({("box/one", "cg")})
    seen.saw(trials(block(1, verify_all=True), bad))
    for number in range(2, 7):
        order = block(number, seen=seen)
        assert order.verifies("box/one", "cg"), number
        seen.saw(trials(order, bad))
    assert block(7, settled={"box/one": frozenset({"cg"})}, seen=seen).runs("box/one", "cg")
    seen.saw(trials(block(7, seen=seen)))
    assert not seen.failed("box/one", "cg") and seen.covered("box/one", "cg")


def test_both_runs_of_the_baseline_have_to_be_verified() -> None:
    seen = Verifications()
    seen.saw(trials(block(1, verify_all=True)))
    second = [
        replace(r, rows=tuple(replace(row, verification={}) for row in r.rows)) if r.aa else r
        for r in trials(block(2, verify_all=True))
    ]
    seen.saw(second)
    assert not seen.covered("native/one", "ep") and seen.covered("box/one", "ep")


FINISHED, DONE, FEW, LATE = (
    "every comparison has its verdict",
    "10 rounds are done",
    "10 rounds are done, too few for an interval",
    "the time budget of 90 s is used up",
)


@pytest.mark.parametrize(
    ("finished", "blocks", "unbounded", "elapsed", "overrun", "looked", "reason", "planned"),
    [
        ("", 5, False, 10.0, False, 0, None, None),
        ("", 5, False, 88.0, False, 0, None, None),  # the next round ends just in time
        ("", 5, False, 88.1, False, 0, LATE, True),
        ("", 5, False, 88.1, True, 0, None, None),  # on to the next look
        ("", 8, False, 88.1, True, 8, LATE, True),  # which was just taken
        ("", 9, False, 500.0, True, 8, None, None),
        ("", 10, False, 10.0, False, 0, DONE, True),
        ("", 10, True, 10.0, False, 0, FEW, True),
        ("", 10, False, 88.1, False, 0, DONE, True),  # before the time
        ("", 10, False, 88.1, True, 0, DONE, True),  # overrun is of the time alone
        (FINISHED, 5, False, 10.0, False, 0, FINISHED, False),
        (FINISHED, 10, True, 88.1, False, 0, FINISHED, False),  # before the limits
        (FINISHED, 5, False, 88.1, True, 0, FINISHED, False),
    ],
)
def test_which_reason_to_stop_wins(
    finished: str,
    blocks: int,
    unbounded: bool,
    elapsed: float,
    overrun: bool,
    looked: int,
    reason: str | None,
    planned: bool | None,
) -> None:
    study = replace(STUDY, design=replace(STUDY.design, max_time=90.0, max_blocks=10))
    verdicts = VerdictState(finished=finished, unbounded=unbounded, looked=looked, settled={})
    clock = Clock(elapsed=elapsed, block_seconds=2.0, overrun=overrun)
    found = decide(study, {}, state(blocks, verdicts), clock)
    if reason is None:
        assert isinstance(found, NextBlock) and found.block.number == blocks + 1
    else:
        assert found == Stop(reason=reason, planned=bool(planned))


def state(blocks: int, verdicts: VerdictState | None) -> RunState:
    slices = dict.fromkeys(KERNELS, 6)
    return RunState(verdicts=verdicts, done=range(1, blocks + 1), attempts={}, slices=slices)


@pytest.mark.parametrize(
    ("elapsed", "overrun", "stops"), [(90.0, False, False), (90.1, False, True), (90.1, True, True)]
)
def test_the_first_block_runs_unless_the_time_is_up_before_it(
    elapsed: float, overrun: bool, stops: bool
) -> None:
    study = replace(STUDY, design=replace(STUDY.design, max_time=90.0))
    found = decide(study, {}, state(0, None), Clock(elapsed=elapsed, block_seconds=0.0, overrun=overrun))
    assert (found == Stop(reason=LATE, planned=False)) == stops
    late = Clock(elapsed=elapsed, block_seconds=0.0, first_until=100.0)
    assert isinstance(decide(study, {}, state(0, None), late), NextBlock), "the rest of a series has time"


def test_the_next_block_is_the_first_that_is_not_done() -> None:
    """After a resume, blocks that are whole are skipped, and a torn one is a further attempt."""
    going_on = VerdictState(finished="", unbounded=True, looked=0, settled={"box/one": frozenset({"start"})})
    known = replace(state(0, going_on), done={1, 2, 4}, attempts={1: 1, 2: 1, 3: 2, 4: 1})
    clock = Clock(elapsed=0.0, block_seconds=1.0)
    torn = decide(STUDY, {}, known, clock)
    assert isinstance(torn, NextBlock) and (torn.block.number, torn.attempt) == (3, 3)
    assert torn.left_out == {"box/one": {"start"}}
    after = decide(STUDY, {}, replace(known, done={1, 2, 3, 4}, verify_all=True), clock)
    assert isinstance(after, NextBlock) and (after.block.number, after.attempt) == (5, 1)
    assert after.verifies("native/one", "cg")


def test_blocks_that_are_out_are_not_given_twice_and_missing_ones_never_again() -> None:
    study = replace(STUDY, design=replace(STUDY.design, max_blocks=6))
    open_ = VerdictState(finished="", unbounded=True, looked=0, settled={})
    known = replace(state(0, open_), done={1, 3}, out={2, 4}, attempts={1: 1, 2: 1, 3: 1, 4: 1})
    clock = Clock(elapsed=0.0, block_seconds=1.0)
    found = decide(study, {}, known, clock)
    assert isinstance(found, NextBlock) and (found.block.number, found.attempt) == (5, 1)
    lost = decide(study, {}, replace(known, out={4}), clock)
    assert isinstance(lost, NextBlock) and (lost.block.number, lost.attempt) == (2, 2)
    given_up = decide(study, {}, replace(known, out={4, 5}, missing={2}), clock)
    assert isinstance(given_up, NextBlock) and given_up.block.number == 6
    assert decide(study, {}, replace(known, out={2, 4, 5, 6}), clock) is None, "six are enough"
    ended = decide(study, {}, replace(known, done=range(1, 7), out=()), clock)
    assert ended == Stop(reason="6 rounds are done, too few for an interval", planned=True)


def test_a_limit_waits_for_the_rounds_before_it() -> None:
    """Blocks 2 to 7 ended before block 1: they are no six rounds yet."""
    study = replace(STUDY, design=replace(STUDY.design, max_blocks=6))
    open_ = VerdictState(finished="", unbounded=True, looked=0, settled={})
    known = replace(state(0, open_), done=range(2, 8), out={1})
    clock = Clock(elapsed=0.0, block_seconds=1.0)
    assert decide(study, {}, known, clock) is None
    lost = decide(study, {}, replace(known, out=()), clock)
    assert isinstance(lost, NextBlock) and lost.block.number == 1


def test_a_first_round_that_outlasts_the_time_is_waited_for() -> None:
    study = replace(STUDY, design=replace(STUDY.design, max_time=60.0))
    late = Clock(elapsed=61.0, block_seconds=0.0)
    assert decide(study, {}, replace(state(0, None), out={1}), late) is None
    open_ = VerdictState(finished="", unbounded=True, looked=0, settled={})
    assert isinstance(decide(study, {}, replace(state(1, open_), out={2}), late), Stop)
