"""Five words from an interval, and what is still missing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.analysis.looks import look_and_carry
from nearmetal.analysis.multiplicity import e_bh, holm, smallest_alpha
from nearmetal.analysis.published import published_overhead, rate_loss, time_equivalent
from nearmetal.analysis.verdict import blocks_needed, judge, reason, smallest_material
from nearmetal.model.result import Verdict
from nearmetal.model.study import Better

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
    assert judge(low, high, n=12, margin=0.03, min_blocks=12) is verdict
    assert judge(low, high, n=11, margin=0.03, min_blocks=12) is Verdict.NONE


@given(low=st.floats(-1, 1), width=st.floats(0, 1), margin=st.floats(0.001, 0.5))
def test_slower_and_faster_mirror_each_other(low: float, width: float, margin: float) -> None:
    mirror = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
    verdict = judge(low, low + width, n=12, margin=margin, min_blocks=12)
    turned = judge(-low - width, -low, n=12, margin=margin, min_blocks=12)
    assert turned is mirror.get(verdict, verdict)


def test_smallest_material() -> None:
    assert smallest_material(-0.01, 0.03, 0.03) == pytest.approx(math.exp(D + 0.02) - 1)
    assert smallest_material(-math.inf, math.inf, 0.03) == math.inf
    assert smallest_material(0.02, 0.01, 0.03) == pytest.approx(0.03)


def needed(d: list[float], *, margin: float = 0.03, expected: int = 12) -> int | None:
    carried = look_and_carry(np.array(d), expected=expected, alpha=0.05)
    return blocks_needed(carried, n=len(d), expected=expected, alpha=0.05, margin=margin, min_blocks=12)


def test_blocks_needed_foresees_the_look_that_decides() -> None:
    """Held against what then happens: over 300 series the median need foreseen at 12 is near the median
    need."""
    rng = np.random.default_rng(1)
    foreseen, true = [], []
    for _ in range(300):
        d = math.log(1.012) + 0.02 * rng.normal(size=400)
        guess = needed(d[:12].tolist())
        carried = look_and_carry(d, expected=12, alpha=0.05)
        decided = next(
            (
                look.n
                for look in carried.looks
                if judge(look.low, look.high, n=look.n, margin=0.03, min_blocks=12) is not Verdict.NONE
            ),
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
    # Ten quiet blocks lack only two.
    assert needed([0.001 * (-1) ** i for i in range(10)]) == 2


def words(verdict: Verdict, **changes: object) -> str:
    given_: dict[str, object] = {
        "low": -0.01,
        "high": 0.05,
        "n": 20,
        "margin": 0.03,
        "min_blocks": 12,
        "expected": 40,
        "needed": None,
        **changes,
    }
    return reason(verdict, **given_)  # type: ignore[arg-type]  # a table of keyword arguments


def test_reasons_are_words() -> None:
    assert words(Verdict.SLOWER) == "the whole interval lies above +3 %"
    assert words(Verdict.EQUIVALENT) == "the whole interval lies within ±3 %"
    assert words(Verdict.NONE, n=5) == "5 of at least 12 blocks"
    assert words(Verdict.NONE, low=-math.inf, high=math.inf, needed=7).startswith("the first look")
    assert "27 blocks" in words(Verdict.NONE, low=-math.inf, high=math.inf)
    assert (
        words(Verdict.NONE, needed=9) == "the interval reaches across 3 %; about 9 more at the present spread"
    )
    assert "no near end" in words(Verdict.NONE)


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
    """At any alpha the running interval gives a verdict exactly if its p is at most alpha."""
    d = shift + 0.03 * np.random.default_rng(seed).normal(size=n)
    carried = look_and_carry(d, expected=12, alpha=alpha)
    verdict = judge(carried.low, carried.high, n=n, margin=margin, min_blocks=1)
    if verdict is Verdict.INCONSISTENT:
        assert smallest_alpha(d, expected=12, margin=margin, verdict=verdict) is None
        return
    p = smallest_alpha(d, expected=12, margin=margin, verdict=verdict)
    if n < 8:
        assert p is None and verdict is Verdict.NONE
        return
    assert p is not None
    assert (p <= alpha) == (verdict is not Verdict.NONE)


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
def test_published_formula_turns_into_time_and_back(f: float) -> None:
    assert rate_loss(time_equivalent(f)) == pytest.approx(f, abs=1e-9)
    base = 100.0
    env = base * (1 - f)
    assert published_overhead(base, env, Better.HIGHER) == pytest.approx(f)
    assert time_equivalent(f) == pytest.approx(base / env - 1, rel=1e-6)


def test_published_edges() -> None:
    assert rate_loss(math.inf) == 1.0 and rate_loss(-1.0) == -math.inf
    assert published_overhead(10.0, 12.0, Better.LOWER) == pytest.approx(0.2)
    with pytest.raises(ValueError):
        time_equivalent(1.0)
    with pytest.raises(ValueError):
        rate_loss(-1.1)
    with pytest.raises(ValueError):
        published_overhead(0, 1, Better.LOWER)
