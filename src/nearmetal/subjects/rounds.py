"""The arms of one block: which still take part, and in which order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from types import TracebackType

from ..errors import NearmetalError
from ..model.study import Workload
from ..node.guests import keep_consoles
from ..node.trial import Standing


class guarded:
    """A failed arm takes no further part in its block; its neighbours go on. It is around every slice: a
    class takes a tenth of what a generator would."""

    def __init__(self, s: Standing) -> None:
        self._standing = s

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, NearmetalError):
            return False
        s = self._standing
        s.failure = str(error)
        keep_consoles(s)
        if s.job is not None:
            s.job.close()
        return True


def sound(arms: Sequence[Standing]) -> list[Standing]:
    """Those that have not failed."""
    return [s for s in arms if not s.failure]


def shuffled(arms: Sequence[Standing], rng: random.Random) -> list[Standing]:
    """The sound arms in random order; draws for all, so that a failure does not change later orders."""
    return sound(rng.sample(arms, len(arms)))


def rounds(
    arms: Sequence[Standing], rng: random.Random, number: int, after: Standing | None = None
) -> Iterator[Standing]:
    """So many rounds of the sound arms, each in random order, and none twice in a row where there are three
    or more: who follows itself finds its own data in the caches, and STREAM's Triad was 11 % faster for it.
    Of two arms one would have to lead in every round. Draws for all, so that a failure does not change later
    orders: in the place of a failed arm nothing runs. after: which arm ran last."""
    for _ in range(number if arms else 0):
        order = rng.sample(arms, len(arms))
        while order[0] is after and len(arms) > 2:
            order = rng.sample(arms, len(arms))
        after = order[-1]
        yield from sound(order)


def taking(arms: Sequence[Standing], workload: Workload) -> list[Standing]:
    """Those that run the workload."""
    return [s for s in arms if s.takes(workload)]


def borrow_guest(s: Standing, arms: Sequence[Standing]) -> None:
    """Where its instance stands inside a guest, and an arm of the block has that guest on the same placement:
    that one, so that both run on one kernel as it has booted once. Else it boots one of its own."""
    owner = next(
        (
            o
            for o in sound(arms)
            if o.arm.environment.name == s.arm.environment.inside
            and o.arm.placement.name == s.arm.placement.name
            and o.instances
            and not o.trial.aa
        ),
        None,
    )
    if owner is not None:
        s.around, s.alone, owner.alone = owner.instances[0], False, False
