"""The steps of the ranks of a job while one of them is moved."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, kw_only=True)
class RankSteps:
    """The steps of one rank of nm-keeper (kernels/keeper/nm_keeper.c), and the errors that the rank found.

    passes: how often it has verified all its memory.
    wrong: pages whose content was wrong.
    strange: how often the file of its record did not contain what it had written.
    ends: when each step ended, in seconds of the rank's clock plus `ahead` of read_steps().
    """

    passes: int
    wrong: int
    strange: int
    ends: tuple[float, ...]


class _Head(msgspec.Struct, frozen=True):
    """The line with the steps of a rank. first: end of the first step by the rank's clock, in ns."""

    steps: int
    first: int
    passes: int
    wrong: int
    strange: int


def read_steps(text: str, ahead: float = 0.0) -> RankSteps:
    """Parse the output that nm-keeper prints for a rank when it is ended.

    ahead: seconds that are added to all times, to convert them from the rank's clock to another one.

    Raises ValueError for any other text.
    """
    lines = iter(text.splitlines())
    head = next((line for line in lines if line.startswith('{"steps"')), None)
    if head is None:
        raise ValueError("no line with the steps of a rank")
    said = msgspec.json.decode(head, type=_Head)
    between = [int(word) for line in lines for word in line.split()]
    if len(between) + 1 != max(said.steps, 1):
        raise ValueError(f"{len(between)} times of {said.steps} steps")
    try:
        whole = tuple(itertools.accumulate((us / 1e6 for us in between), initial=said.first / 1e9 + ahead))
    except OverflowError as e:
        raise ValueError(str(e)) from e
    return RankSteps(
        passes=said.passes,
        wrong=said.wrong,
        strange=said.strange,
        ends=whole if said.steps > 0 else (),
    )


def steps_within(ends: Sequence[float], begin: float, end: float) -> int:
    """Return how many steps ended between two times."""
    return sum(begin < at <= end for at in ends)


def longest_gap(ends: Sequence[float], begin: float, end: float) -> float:
    """Return the longest time between two successive steps that overlaps a time window.

    Raises ValueError if there is no such time: the rank took no step.
    """
    gaps = [b - a for a, b in itertools.pairwise(ends) if b > begin and a < end]
    if not gaps:
        raise ValueError("a rank without steps")
    return max(gaps)
