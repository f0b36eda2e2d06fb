"""The order in which the trials of a group take turns."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from ..node.trial import Trial


def sound(trials: Sequence[Trial]) -> list[Trial]:
    return [t for t in trials if t.sound]


def shuffled(trials: Sequence[Trial], rng: random.Random) -> list[Trial]:
    """Return the trials that have not failed, in random order.

    The order is drawn for all trials, including failed ones, so that a failure does not change the random
    numbers of later orders.
    """
    return sound(rng.sample(trials, len(trials)))


def rounds(
    trials: Sequence[Trial], rng: random.Random, number: int, after: Trial | None = None
) -> Iterator[Trial]:
    """Yield the trials that have not failed in rounds, each round in random order.

    With three trials or more, the last trial of a round is never the first of the next: it would find its own
    data in the caches, which made STREAM's Triad 11 % faster. With two trials this is allowed, since
    otherwise the same trial would begin every round. The order is drawn for all trials, including failed
    ones, so that a failure does not change later orders. A failed trial is skipped.

    number: number of rounds.
    after: the trial that ran last before the first round; None if none did.
    """
    for _ in range(number if trials else 0):
        order = rng.sample(trials, len(trials))
        while order[0] is after and len(trials) > 2:
            order = rng.sample(trials, len(trials))
        after = order[-1]
        yield from sound(order)
