"""How often block 0 is rehearsed, and what the plan rests on."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.execute import run
from nearmetal.plan.slices import LONGEST_BLOCK


def rehearsed(
    patch: pytest.MonkeyPatch, lengths: Sequence[float], max_time: float | None
) -> tuple[float, int]:
    """Seconds of a block that the plan rests on, and the number of blocks. lengths: of blocks, in order."""
    clock, attempts = 0.0, list[int]()

    def block(session: Any, attempt: int, audit: Any) -> tuple[()]:
        nonlocal clock
        assert (audit is not None) == (attempt == 1), "parity is audited once"
        attempts.append(attempt)
        clock += lengths[attempt - 1]
        return ()

    patch.setattr(run, "_rehearsed", block)
    patch.setattr(run, "time", SimpleNamespace(monotonic=lambda: clock))
    session: Any = SimpleNamespace(study=SimpleNamespace(design=SimpleNamespace(max_time=max_time)))
    found = run._rehearse(session)
    assert attempts == list(range(1, len(attempts) + 1))
    assert len(found.warm) == max(1, len(attempts) - 1)
    return found.seconds, len(attempts)


@pytest.mark.parametrize(
    ("lengths", "max_time", "seconds", "blocks"),
    [
        ([1.0, 0.5, 0.7, 0.1], 90.0, 0.6, 3),  # cheap: three, and the cold one tells no length
        ([3.0, 2.0, 2.0, 2.0], 90.0, 2.0, 3),  # 4.5 s hold two more
        ([5.0], 90.0, 5.0, 1),  # dearer than a twentieth: that one alone
        ([9.0, 6.0], 200.0, 6.0, 2),  # what is left holds no other
        ([LONGEST_BLOCK + 1], None, LONGEST_BLOCK + 1, 1),  # without a budget a block's own limit counts
    ],
)
def test_further_rehearsals_are_those_that_a_twentieth_of_the_time_holds(
    monkeypatch: pytest.MonkeyPatch,
    lengths: Sequence[float],
    max_time: float | None,
    seconds: float,
    blocks: int,
) -> None:
    found = rehearsed(monkeypatch, lengths, max_time)
    assert found[0] == pytest.approx(seconds)
    assert found[1] == blocks
