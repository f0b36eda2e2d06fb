"""The arms of one block: which still take part, and in which order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..errors import NearmetalError
from ..model.study import Workload
from .guests import keep_consoles
from .standing import Standing


@contextmanager
def guarded(s: Standing) -> Iterator[None]:
    """A failed arm takes no further part in its block; its neighbours go on."""
    try:
        yield
    except NearmetalError as e:
        s.failure = str(e)
        keep_consoles(s)
        if s.job is not None:
            s.job.close()


def sound(arms: Sequence[Standing]) -> list[Standing]:
    """Those that have not failed."""
    return [s for s in arms if not s.failure]


def shuffled(arms: Sequence[Standing], rng: random.Random) -> list[Standing]:
    """The sound arms in random order; draws for all, so that a failure does not change later orders."""
    return sound(rng.sample(arms, len(arms)))


def taking(arms: Sequence[Standing], workload: Workload) -> list[Standing]:
    """Those that run the workload."""
    return [s for s in arms if s.arm.environment.takes(workload.name)]
