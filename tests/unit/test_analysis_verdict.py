"""Five words from an interval, and what is still missing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.analysis.intervals.looks import look_and_carry
from nearmetal.analysis.intervals.multiplicity import e_bh, holm, smallest_alpha
from nearmetal.analysis.published import rate_loss
from nearmetal.analysis.verdict import blocks_needed, disagreement, judge, reason, smallest_material
from nearmetal.model.plan import GROWING, ExpectedLooks, GrowingLooks, Schedule
from nearmetal.model.result import Interval, Verdict

D = math.log1p(0.03)


@pytest.mark.parametrize(
    "low, high, verdict",
    [
        (1.01 * D, 5.0, Verdict.SLOWER),
        (D, 5.0, Verdict.NONE),
        (-5.0, -1.01 * D, Verdict.FASTER),
        (-5.0, -D, Verdict.NONE),
        (-0.99 * D, 0.99 * D, Verdict.EQUIVALENT),
        (-D, 0.5 * D, Verdict.NONE),
        (-0.5 * D, D, Verdict.NONE),
        (0.001, 0.002, Verdict.EQUIVALENT),
        (-math.inf, math.inf, Verdict.NONE),
        (0.02, 0.01, Verdict.INCONSISTENT),
    ],
)
def test_judge(low: float, high: float, verdict: Verdict) -> None:
    assert judge(low, high, margin=0.03) is verdict


@given(low=st.floats(-1, 1), width=st.floats(0, 1), margin=st.floats(0.001, 0.5))
def test_slower_and_faster_mirror_each_other(low: float, width: float, margin: float) -> None:
    mirror = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
    verdict = judge(low, low + width, margin=margin)
    turned = judge(-low - width, -low, margin=margin)
    assert turned is mirror.get(verdict, verdict)


def test_smallest_material() -> None:
    assert smallest_material(-0.01, 0.03, 0.03) == pytest.approx(math.exp(D + 0.02) - 1)
    assert smallest_material(-math.inf, math.inf, 0.03) == math.inf
    assert smallest_material(0.02, 0.01, 0.03) == pytest.approx(0.03)


def needed(
    d: list[float], *, margin: float = 0.03, min_blocks: int = 0, schedule: Schedule = GROWING
) -> int | None:
    carried = look_and_carry(np.array(d), schedule=schedule, alpha=0.05)
    return blocks_needed(carried, n=len(d), margin=margin, min_blocks=min_blocks)


def test_blocks_needed_foresees_the_look_that_decides() -> None:
    """Held against what then happens: over 300 series the median need foreseen at 12 is near the median
    need."""
    rng = np.random.default_rng(1)
    foreseen, true = [], []
    for _ in range(300):
        d = math.log(1.012) + 0.02 * rng.normal(size=400)
        guess = needed(d[:12].tolist())
        carried = look_and_carry(d, schedule=GROWING, alpha=0.05)
        decided = next(
            (look.n for look in carried.looks if judge(look.low, look.high, margin=0.03) is not Verdict.NONE),
            None,
        )
        if decided is not None and decided > 12:
            true.append(decided - 12)
            foreseen.append(guess if guess is not None else 400)
    assert len(true) > 100
    assert 0.5 < np.median(foreseen) / np.median(true) < 2


def test_blocks_needed_knows_its_limits() -> None:
    assert needed([0.0, 0.001]) is None
    # On the margin itself no number of blocks helps.
    assert needed([D + 0.01 * sign * i for i in range(20) for sign in (-1, 1)]) is None
    # Ten quiet blocks lack only those that the study asks for besides, or an old directory.
    quiet = [0.001 * (-1) ** i for i in range(10)]
    assert needed(quiet, min_blocks=12) == 2
    assert needed(quiet[:5]) == 3


def words(
    verdict: Verdict, *, n: int = 20, blocks: int = 20, least: int = 0, needed: int | None = None
) -> str:
    d = np.linspace(-0.01, 0.05, blocks)
    carried = look_and_carry(d, schedule=GROWING, alpha=0.05)
    return reason(verdict, carried, n=n, margin=0.03, min_blocks=least, needed=needed)


def test_reasons_are_words() -> None:
    assert words(Verdict.SLOWER) == "the whole interval lies above +3 %"
    assert words(Verdict.EQUIVALENT) == "the whole interval lies within ±3 %"
    assert words(Verdict.NONE, n=5, least=12) == "5 of at least 12 rounds"
    assert words(Verdict.NONE, n=5, blocks=5) == "there is no interval yet; the first comes after 8 rounds"
    assert words(Verdict.NONE, needed=9) == "the interval reaches across 3 %"
    assert "a longer run will not help" in words(Verdict.NONE)


@pytest.mark.parametrize(
    ("low", "high", "sign", "verdict", "said"),
    [
        (0.05, 0.06, (0.04, 0.08), Verdict.SLOWER, ""),
        (0.05, 0.06, (0.0, 0.08), Verdict.SLOWER, ""),  # a wider interval contradicts nothing
        (0.05, 0.06, (0.0, 0.04), Verdict.SLOWER, "the sign interval of the median has no value in common"),
        (0.04, 0.06, (-0.01, 0.04), Verdict.SLOWER, ""),
        (-0.02, 0.02, (0.02, 0.03), Verdict.EQUIVALENT, ""),
        (-0.02, 0.029, (0.0291, 0.2), Verdict.EQUIVALENT, "the sign interval of the median has no value"),
        (0.06, 0.05, (0.0, 0.01), Verdict.INCONSISTENT, ""),
        (-math.inf, math.inf, (0.1, 0.2), Verdict.NONE, ""),
    ],
)
def test_disagreement_with_the_sign_interval_is_reported(
    low: float, high: float, sign: tuple[float, float], verdict: Verdict, said: str
) -> None:
    other = Interval(centre=0.0, low=sign[0], high=sign[1])
    found = disagreement(low, high, other, verdict, margin=0.03)
    assert found.startswith(said) and bool(found) is bool(said)


def test_sign_interval_with_another_verdict_is_reported() -> None:
    """Where failures were refused a verdict, or ends meet at the margin, intervals may touch."""
    other = Interval(centre=0.0, low=D * 1.01, high=0.2)
    assert disagreement(-0.01, D * 1.02, other, Verdict.EQUIVALENT, margin=0.03) == (
        "by the sign interval of the median it is material: slower"
    )


def test_a_level_that_is_not_attainable_announces_no_interval() -> None:
    """A fifth of 5 % is attained after 12 blocks at the earliest."""
    carried = look_and_carry(np.zeros(5), schedule=GROWING, alpha=0.01)
    said = reason(Verdict.NONE, carried, n=5, margin=0.03, min_blocks=0, needed=None)
    assert said == "there is no interval yet; the first comes after 12 rounds"


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    shift=st.floats(-0.1, 0.1),
    margin=st.floats(0.005, 0.1),
    alpha=st.floats(0.001, 0.3),
)
def test_smallest_alpha_is_where_the_verdict_begins(
    seed: int, n: int, shift: float, margin: float, alpha: float
) -> None:
    """Where nothing is carried the running interval gives a verdict exactly if its p is at most alpha."""
    d = shift + 0.03 * np.random.default_rng(seed).normal(size=n)
    schedule = ExpectedLooks(expected=12)
    carried = look_and_carry(d, schedule=schedule, alpha=alpha)
    verdict = judge(carried.low, carried.high, margin=margin)
    p = smallest_alpha(d, schedule=schedule, margin=margin, verdict=verdict)
    if verdict is Verdict.INCONSISTENT:
        assert p is None
    elif n < 8:
        assert p is None and verdict is Verdict.NONE
    else:
        assert p is not None
        assert (p <= alpha) == (verdict is not Verdict.NONE)


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(8, 80),
    shift=st.floats(-0.1, 0.1),
    closing=st.lists(st.integers(1, 80), max_size=3),
    alpha=st.floats(0.001, 0.3),
)
def test_carried_looks_only_add_verdicts(
    seed: int, n: int, shift: float, closing: list[int], alpha: float
) -> None:
    """Holm's column leaves out what looks carry: where its p is at most alpha the interval has a verdict."""
    d = shift + 0.03 * np.random.default_rng(seed).normal(size=n)
    schedule = GrowingLooks(closing=tuple(sorted(closing)))
    carried = look_and_carry(d, schedule=schedule, alpha=alpha)
    verdict = judge(carried.low, carried.high, margin=0.03)
    p = smallest_alpha(d, schedule=schedule, margin=0.03, verdict=verdict)
    if p is not None and p <= alpha:
        assert verdict is not Verdict.NONE


@given(p=st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_and_keeps_the_order(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(a >= b and a <= 1 for a, b in zip(adjusted, p, strict=True))
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_e_bh() -> None:
    assert e_bh([], 0.05) == ()
    assert e_bh([100.0, 45.0, 1.0, 0.2], 0.05) == (True, True, False, False)
    assert e_bh([70.0, 30.0, 30.0, 0.0], 0.05) == (True, True, True, False)
    assert e_bh([25.0, 1.0], 0.05) == (False, False)


@given(f=st.floats(-50, 0.99))
def test_rate_loss_is_the_published_overhead_of_a_rate(f: float) -> None:
    base = 100.0
    env = base * (1 - f)
    assert rate_loss(base / env - 1) == pytest.approx((base - env) / base, abs=1e-9)


def test_rate_loss_at_the_ends_of_its_range() -> None:
    assert rate_loss(math.inf) == 1.0 and rate_loss(-1.0) == -math.inf
    with pytest.raises(ValueError):
        rate_loss(-1.1)
