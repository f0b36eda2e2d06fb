"""Which attempts and rows count, and how slices fold to one d per block."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.analysis.fold.comparisons import Paired, fold, pair
from nearmetal.analysis.fold.pieces import fold_request
from nearmetal.model.change import replace
from nearmetal.model.plan import Plan
from nearmetal.model.record import TOO_SHORT, Fold, Row, Status, TrialRecord
from nearmetal.model.study import Better, Design, Environment, EventSubject, Placement, Study
from nearmetal.plan import make_plan
from nearmetal.subjects.start_stop import START

STUDY = Study(
    name="s",
    question="",
    environments=(
        Environment(name="native", backend="native", placements=("one",)),
        Environment(name="box", backend="namespaces", placements=("one",)),
    ),
    placements=(Placement(name="one", instances=1, tasks=2),),
    workloads=(EventSubject(name="start", facts=START),),
    design=Design(baselines=("native",), margin=0.03, confidence=0.95, seed=1),
)
PLAN = make_plan(STUDY, blocks=20)
LIBVIRT_STEP = fold_request(STUDY)
BOX, A1, A2 = ("box/one", False), ("native/one", False), ("native/one", True)
ROW = ("ep", "seconds")


def row(
    values: Sequence[float], *, better: Better = Better.LOWER, unit: str = "s", status: Status = Status.OK
) -> Row:
    return Row(
        workload="ep",
        metric="seconds",
        unit=unit,
        better=better,
        values=tuple(values),
        status=status,
        reason="" if status is Status.OK else "verification",
    )


def trial(
    side: tuple[str, bool],
    values: Sequence[float] | Row,
    *,
    block: int = 1,
    attempt: int = 1,
    how: Fold = Fold.PAIRED,
) -> TrialRecord:
    arm, aa = side
    return TrialRecord(
        run="r",
        trial=f"{block}.{arm}" + ".aa" * aa,
        block=block,
        attempt=attempt,
        arm=arm,
        aa=aa,
        position=0,
        begin=float(block),
        end=block + 0.5,
        fold=how,
        status=Status.OK,
        reason="",
        rows=(values if isinstance(values, Row) else row(values),),
    )


def block(
    number: int, box: Sequence[float] | Row, base: Sequence[float] | Row, *, attempt: int = 1
) -> list[TrialRecord]:
    return [
        trial(BOX, box, block=number, attempt=attempt),
        trial(A1, base, block=number, attempt=attempt),
        trial(A2, base, block=number, attempt=attempt),
    ]


def paired(records: list[TrialRecord], plan: Plan = PLAN) -> Paired | None:
    return pair(fold(LIBVIRT_STEP, plan, records), BOX, A1, ROW)


def test_slices_are_paired_one_by_one() -> None:
    """A disturbance that hits the same slice of both sides cancels; medians first would not see it."""
    found = paired(block(1, [1.1, 11.0, 2.2], [1.0, 10.0, 2.0]))
    assert found is not None
    assert found.d == pytest.approx([math.log(1.1)])
    assert (found.env_values.tolist(), found.base_values.tolist()) == ([2.2], [2.0])
    shifted = paired(block(1, [11.0, 1.1, 2.2], [1.0, 10.0, 2.0]))
    assert shifted is not None and shifted.d == pytest.approx([math.log(1.1)])
    uneven = paired(block(1, [3.0, 1.0], [1.0, 1.0]))
    assert uneven is not None and uneven.d == pytest.approx([math.log(3.0) / 2])


def test_median_first_where_slices_are_not_paired() -> None:
    records = [replace(r, fold=Fold.MEDIAN) for r in block(1, [1.0, 9.0, 2.0, 4.0], [8.0, 1.0, 2.0])]
    found = paired(records)
    assert found is not None and found.d == pytest.approx([math.log(3.0 / 2.0)])
    mixed = [replace(r, fold=Fold.MEDIAN) if r.arm == "box/one" else r for r in records]
    again = paired(mixed)
    assert again is not None and again.d == pytest.approx(found.d)


def test_a_block_counts_by_its_first_attempt_that_is_whole() -> None:
    """The second worker ended first, and the torn first attempt of block 2 does not count."""
    early = [
        replace(r, run="fast", begin=r.begin - 0.5, end=r.begin) for r in block(1, [3.0], [1.0], attempt=2)
    ]
    records = [
        *early,
        *block(1, [2.0], [1.0]),
        *block(2, [9.0], [1.0])[:2],
        *block(2, [4.0], [1.0], attempt=2),
    ]
    found = paired(records)
    assert found is not None and found.d == pytest.approx([math.log(2.0), math.log(4.0)])


def test_rounds_after_one_that_is_still_to_be_run_wait_for_it() -> None:
    records = [r for n in (1, 2, 4, 5) for r in block(n, [2.0 * n], [1.0])]
    folded = fold(LIBVIRT_STEP, PLAN, records)
    assert list(folded.blocks) == [1, 2]
    assert [(u.reason, u.count) for u in folded.unused] == [("an earlier round is incomplete", 6)]
    given_up = fold(LIBVIRT_STEP, replace(PLAN, missing=frozenset({3})), records)
    assert list(given_up.blocks) == [1, 2, 4, 5] and given_up.unused == ()


def test_rounds_do_not_wait_for_one_that_its_worker_left_incomplete() -> None:
    """As after a damaged record was taken out of the file. The open round of another worker is waited for."""
    records = [r for n in (1, 2, 4, 5) for r in block(n, [2.0 * n], [1.0])]
    own = fold(LIBVIRT_STEP, PLAN, [*records, *block(3, [1.0], [1.0])[:2]])
    assert list(own.blocks) == [1, 2, 4, 5] and own.torn == 1
    others = [replace(r, run="other") for r in block(3, [1.0], [1.0])[:2]]
    assert list(fold(LIBVIRT_STEP, PLAN, [*records, *others]).blocks) == [1, 2]


def test_a_late_result_of_a_round_that_was_given_up_counts_for_no_side() -> None:
    records = [r for n in (1, 2, 3) for r in block(n, [2.0], [1.0])]
    folded = fold(LIBVIRT_STEP, replace(PLAN, missing=frozenset({2})), records)
    assert list(folded.blocks) == [1, 3]
    assert [(u.reason, u.count) for u in folded.unused] == [("round lost with its worker", 3)]


def test_rates_turn_the_sign() -> None:
    fast, slow = (
        row([200.0], better=Better.HIGHER, unit="B/s"),
        row([100.0], better=Better.HIGHER, unit="B/s"),
    )
    found = paired(block(1, slow, fast))
    assert found is not None and found.d == pytest.approx([math.log(2.0)])


@given(
    values=st.lists(st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=6), min_size=1, max_size=20),
    factor=st.floats(1e-3, 1e3),
)
def test_a_planted_factor_is_found_in_every_block(values: list[list[float]], factor: float) -> None:
    records = [
        r
        for number, base in enumerate(values, start=1)
        for r in block(number, [factor * v for v in base], base)
    ]
    found = paired(records)
    assert found is not None
    assert found.d == pytest.approx(np.full(len(values), math.log(factor)), abs=1e-9)
    assert found.blocks.tolist() == list(range(1, len(values) + 1))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_value_that_cannot_be_fails_its_row_only(bad: float) -> None:
    records = [*block(1, [1.0, bad], [1.0, 1.0]), *block(2, [1.0, 1.0], [1.0, 1.0])]
    folded = fold(LIBVIRT_STEP, PLAN, records)
    found = pair(folded, BOX, A1, ROW)
    assert found is not None and found.blocks.tolist() == [2]
    assert dict(found.failures) == {"a value is not positive or not finite": 1}
    aa = pair(folded, A2, A1, ROW)
    assert aa is not None and aa.blocks.tolist() == [1, 2] and not aa.failures


def test_failed_rows_and_trials_count_as_infinitely_slow_and_missing_rows_do_not_count() -> None:
    records = [
        *block(1, row([1.0], status=Status.FAILED), [1.0]),
        *block(2, [1.0], [1.0]),
        *block(3, [1.0], [1.0]),
        *block(4, [1.0], [1.0]),
    ]
    records[7] = replace(records[7], status=Status.FAILED, reason="time-out", rows=())
    records[9] = replace(records[9], rows=())
    found = paired(records)
    assert found is not None and found.blocks.tolist() == [2]
    assert (found.judged_blocks.tolist(), found.judged.tolist()) == ([1, 2, 3], [math.inf, 0.0, -math.inf])
    assert found.env_failed == {1} and found.base_failed == {3} and found.failed == {1, 3}
    assert dict(found.failures) == {"verification": 1, "time-out": 1}


def test_a_block_in_which_both_sides_failed_is_counted_and_left_out() -> None:
    bad = row([1.0], status=Status.FAILED)
    found = paired([*block(1, bad, bad), *block(2, [1.0], [1.0])])
    assert found is not None and found.judged_blocks.tolist() == [2]
    assert found.env_failed == found.base_failed == {1}


def test_value_too_short_to_measure_is_no_failure() -> None:
    short = replace(row([], status=Status.FAILED), reason=f"system time: {TOO_SHORT}")
    found = paired([*block(1, short, [1.0]), *block(2, [1.0], short), *block(3, [1.0], [1.0])])
    assert found is not None and found.judged_blocks.tolist() == [3] and not found.failed


def test_workload_left_out_on_purpose_is_no_failure() -> None:
    """A workload that the trial left out, also where the trial then failed, and an arm without a trial."""
    left = [replace(r, left_out=("ep",), rows=()) for r in block(1, [1.0], [1.0])]
    failed = [
        replace(r, left_out=("ep",), rows=(), status=Status.FAILED, reason="died")
        for r in block(2, [1.0], [1.0])
    ]
    without = [replace(r, members=2) for r in block(3, [1.0], [1.0])[1:]]
    folded = fold(LIBVIRT_STEP, PLAN, [*left, *failed, *without, *block(4, [1.0], [1.0])])
    assert folded.blocks == (1, 2, 3, 4)
    found = pair(folded, BOX, A1, ROW)
    assert found is not None and found.judged_blocks.tolist() == [4]
    assert not found.failed and not found.failures and found.left_out == {1, 2, 3}


def verified(ok: bool | None) -> Row:
    """A row of a block in which the kernel was verified, or (None) was not."""
    status = Status.FAILED if ok is False else Status.OK
    return replace(row([1.0], status=status), verification={} if ok is None else {"ok": ok})


@pytest.mark.parametrize(
    ("verifications", "failed"),
    [
        ("....", []),
        ("...+....", []),
        ("+...-...+..", [2, 3, 4, 5, 6, 7, 8]),
        ("..-..+.", [1, 2, 3, 4, 5]),
        ("..+..-...", [4, 5, 6, 7, 8, 9]),
        ("++-++", [3]),
        ("+.-.-.+.", [2, 3, 4, 5, 6]),
    ],
)
def test_failed_verification_fails_all_blocks_since_the_last_good_one(
    verifications: str, failed: list[int]
) -> None:
    """'+' verified, '-' failed, '.' not verified, of the arm, by block. Nothing speaks against the others."""
    told = {"+": True, "-": False, ".": None}
    records = [
        r
        for number, sign in enumerate(verifications, start=1)
        for r in block(number, verified(told[sign]), verified(True))
    ]
    folded = fold(LIBVIRT_STEP, PLAN, records)
    other = pair(folded, A2, A1, ROW)
    assert other is not None and not other.failed
    found = pair(folded, BOX, A1, ROW)
    if found is None:
        assert failed == list(range(1, len(verifications) + 1))
        return
    assert sorted(found.env_failed) == failed
    assert set(found.blocks.tolist()).isdisjoint(failed)
    assert sum(found.failures.values()) == len(failed)


def test_rows_of_a_workload_are_verified_together() -> None:
    """What one metric says of its workload holds for the others; other workloads are not touched."""
    other = replace(row([1.0]), metric="rate", unit="op/s", better=Better.HIGHER)
    apart = replace(row([1.0]), workload="cg")
    records = []
    for number in (1, 2, 3):
        whole = block(number, verified(False if number == 2 else None), [1.0])
        records += [replace(r, rows=(*r.rows, other, apart)) for r in whole]
    folded = fold(LIBVIRT_STEP, PLAN, records)
    rate, cg = pair(folded, BOX, A1, ("ep", "rate")), pair(folded, BOX, A1, ("cg", "seconds"))
    assert rate is None and cg is not None and not cg.failed
    assert set(folded.lost[BOX, ("ep", "rate")].values()) == {"its verification failed in round 2"}


def test_different_numbers_of_slices_are_a_failed_row() -> None:
    found = paired([*block(1, [1.0, 1.0], [1.0]), *block(2, [2.0], [1.0])])
    assert found is not None and found.blocks.tolist() == [2] and sum(found.failures.values()) == 1


def test_different_units_are_never_compared() -> None:
    assert paired(block(1, row([1.0], unit="B/s", better=Better.HIGHER), [1.0])) is None


def test_a_torn_block_is_not_used_and_its_repetition_is() -> None:
    torn = block(1, [5.0], [1.0])[:2]
    whole = block(1, [2.0], [1.0], attempt=2)
    folded = fold(LIBVIRT_STEP, PLAN, [*torn, *whole, *block(2, [2.0], [1.0])[:1]])
    assert (folded.blocks, folded.torn) == ((1,), 1)
    found = pair(folded, BOX, A1, ROW)
    assert found is not None and found.d == pytest.approx([math.log(2.0)])
    assert [(u.reason, u.count) for u in folded.unused] == [("incomplete round", 3)]


def test_trials_of_two_attempts_never_make_one_block() -> None:
    first, second = block(1, [5.0], [1.0])[:2], block(1, [2.0], [1.0], attempt=2)[2:]
    assert fold(LIBVIRT_STEP, PLAN, [*first, *second]).blocks == ()


def test_torn_halves_of_two_runs_never_make_one_block() -> None:
    first = block(1, [5.0], [1.0])[:2]
    second = [replace(r, run="other") for r in block(1, [2.0], [1.0])[2:]]
    folded = fold(LIBVIRT_STEP, PLAN, [*first, *second])
    assert (folded.blocks, folded.torn) == ((), 1)


def test_trials_of_two_runs_with_the_same_attempt_are_never_mixed() -> None:
    late = [replace(r, run="late", begin=r.begin + 1) for r in block(1, [5.0], [1.0])]
    early = [replace(r, run="early") for r in block(1, [20.0], [10.0])]
    for mixed in ([*late, *early], [*early, *late], [late[0], *early, *late[1:]]):
        found = paired(mixed)
        assert found is not None and found.d == pytest.approx([math.log(2.0)])
        assert (found.env_values.tolist(), found.base_values.tolist()) == ([20.0], [10.0])


def test_a_single_torn_block_does_not_count() -> None:
    """Also where no whole block says what a block holds: the plan does."""
    folded = fold(LIBVIRT_STEP, PLAN, block(1, [2.0], [1.0])[:2])
    assert (folded.blocks, folded.torn) == ((), 1)


def test_the_rehearsal_never_counts() -> None:
    folded = fold(LIBVIRT_STEP, PLAN, [*block(0, [9.0], [1.0]), *block(1, [2.0], [1.0])])
    assert folded.blocks == (1,)
    assert [(u.reason, u.count) for u in folded.unused] == [("rehearsal, discarded by rule", 3)]


def test_order_of_records_does_not_matter() -> None:
    records = [r for k in range(1, 9) for r in block(k, [1.0 + k], [1.0, 2.0, 3.0][:1])]
    found, turned = paired(records), paired(records[::-1])
    assert found is not None and turned is not None
    assert found.d.tolist() == turned.d.tolist() and found.blocks.tolist() == turned.blocks.tolist()
