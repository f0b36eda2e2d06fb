"""The hypervisor's counters of its guests, as a source of counters. One call reads those of all guests."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ...host.counters.procfiles import Counters
from .xl import Xl

LEVELS = frozenset({"memory_bytes"})
"""Values that are levels, not counts. They are not recorded as differences."""
FRESH_SECONDS = 0.2
"""Time for which the counters of one call are used for the other guests too. Each call starts a process and
returns the counters of every guest."""


@dataclass
class Looks:
    """The counters that were last read on a dom0. Mutable, and shared by all guests on this dom0.

    at: time of the call, in seconds of the monotonic clock.
    """

    at: float = -FRESH_SECONDS
    found: dict[str, dict[str, float]] = field(default_factory=dict)

    def counters(self, xl: Xl, *, fresh: bool) -> dict[str, dict[str, float]]:
        """Return the counters by domain.

        fresh: whether they must be read now, even if the last call was less than FRESH_SECONDS ago.
        """
        if fresh or time.monotonic() - self.at > FRESH_SECONDS:
            self.found = xl.counters()
            self.at = time.monotonic()
        return self.found


_looks: dict[str, Looks] = {}
"""The last counters by name of the dom0."""


def look(xl: Xl, name: str, *, fresh: bool = False) -> dict[str, float]:
    """Return the counters of one guest since its start (output.counters); empty if none are known.

    fresh: as in Looks.counters().
    """
    return _looks.setdefault(xl.dom0.name, Looks()).counters(xl, fresh=fresh).get(name, {})


@dataclass(frozen=True, kw_only=True)
class HypervisorSource:
    """A source of counters (host.counters.sources.Source) that reads the hypervisor's counters of one guest.

    name: name of its scope in a record.
    """

    name: str
    guest: str
    xl: Xl

    def read(self) -> Counters:
        return {k: v for k, v in look(self.xl, self.guest).items() if k not in LEVELS}
