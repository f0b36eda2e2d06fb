"""How long tests wait, so that they pass on a busy machine and on an emulated one.

A limit of wall time only guards against a hang, so it is generous. A test of a measured time passes if one of
several attempts fits: other work can only make an attempt miss, while a defect makes all of them miss.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 600.0
"""Seconds after which something that takes less than a second on a quiet machine is taken to hang."""
_LOOK_AGAIN = 0.005

Value = TypeVar("Value")


def until(condition: Callable[[], Value], what: str = "the condition", within: float = PATIENCE) -> Value:
    """Wait until a condition holds, and return its value. Fails the test after `within` seconds.

    The condition need not hold any more when it is asked again, so use the value.
    """
    end = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not come true within {within:g} s"
        time.sleep(_LOOK_AGAIN)
    return value


def one_fits(measure: Callable[[], Value], fits: Callable[[Value], bool], attempts: int) -> Value:
    """Return the first measured value that fits. Fails the test if none of so many attempts does."""
    values = []
    for _ in range(attempts):
        values.append(measure())
        if fits(values[-1]):
            return values[-1]
    raise AssertionError(f"none of {attempts} attempts fits: {values}")
