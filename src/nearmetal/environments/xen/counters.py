"""The hypervisor's counters of its guests, as a source of counters. One call reads those of all guests."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...host.counters.procfiles import Counters
from .xl import Xl

LEVELS = frozenset({"memory_bytes"})
"""Values that are levels, not counts. They are not recorded as differences."""
FRESH_SECONDS = 0.2
"""Time for which the counters of one call are used for the other guests too. Each call starts a process and
returns the counters of every guest."""


_last: dict[str, tuple[float, dict[str, dict[str, float]]]] = {}
"""By name of the dom0, the time of the last call in seconds of the monotonic clock, and the counters by
domain."""


def _counters(xl: Xl) -> dict[str, dict[str, float]]:
    at, found = _last.get(xl.dom0.name, (-FRESH_SECONDS, {}))
    if time.monotonic() - at > FRESH_SECONDS:
        found = xl.counters()
        _last[xl.dom0.name] = time.monotonic(), found
    return found


@dataclass(frozen=True, kw_only=True)
class HypervisorSource:
    """A source of counters (host.counters.sources.Source) that reads the hypervisor's counters of one guest.

    name: name of its scope in a record.
    """

    name: str
    guest: str
    xl: Xl

    def read(self) -> Counters:
        return {k: v for k, v in _counters(self.xl).get(self.guest, {}).items() if k not in LEVELS}
