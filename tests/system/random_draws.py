"""Draws random faults until enough of each kind have hit, and judges them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

HITS = 25
"""Hits of a seed."""
MOST = 5 * HITS
"""Most faults that are drawn for a seed, hits and misses."""
LEAST = 2
"""Fewest hits of each kind of fault for a seed."""

Fault = tuple[str, bool, list[str]]
"""The description of an event with a fault, whether the fault hit, and what is wrong."""


def faults(
    rng: Random, kinds: Sequence[str], make: Callable[[str], Fault], hits: int = HITS, most: int = MOST
) -> Iterator[tuple[str, Fault]]:
    """Make faults until `hits` of them have hit, and yield each with its kind. Each kind is wanted equally
    often, in random order; one that misses is drawn again after the others.

    most: most faults that are made.
    """
    wanted = [*list(kinds) * (hits // len(kinds)), *rng.sample(kinds, hits % len(kinds))]
    rng.shuffle(wanted)
    for _ in range(most):
        if not wanted:
            return
        kind = wanted.pop(0)
        made = make(kind)
        if not made[1]:
            wanted.append(kind)
        yield kind, made


def judge(seed: int, kinds: Sequence[str], made: Iterable[tuple[str, Fault]], least: int = LEAST) -> None:
    """Print faults and fail if one ended wrongly, or if fewer than `least` of a kind have hit."""
    hits, bad = Counter[str](), []
    for number, (kind, (words, hit, wrong)) in enumerate(made):
        hits[kind] += hit
        print(f"{seed}.{number} {'hit' if hit else 'missed'} {words}{f'; WRONG: {wrong}' if wrong else ''}")
        if wrong:
            bad.append((words, wrong))
    assert not bad, bad
    assert all(hits[kind] >= least for kind in kinds), f"too few faults met their event: {dict(hits)}"
