"""The hypervisor's counters of a guest, as a source of counters. They are read by xentop, which always reads
the counters of all guests."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...host.counters.procfiles import Counters
from ...model.scope import Scope
from .xl import Xl

LEVELS = frozenset({"memory_bytes"})
"""Names of values that are current levels. They are left out, because the values of a source are recorded as
differences."""
FRESH_SECONDS = 0.2
"""Seconds for which the result of one xentop call is used for the other guests too, since each call starts a
process."""


_last: dict[str, tuple[float, dict[str, dict[str, float]]]] = {}
"""The last call by name of the dom0: (time in seconds of CLOCK_MONOTONIC, counters by domain and name)."""


def _counters(xl: Xl) -> dict[str, dict[str, float]]:
    at, found = _last.get(xl.dom0.name, (-FRESH_SECONDS, {}))
    if time.monotonic() - at > FRESH_SECONDS:
        found = xl.counters()
        _last[xl.dom0.name] = time.monotonic(), found
    return found


@dataclass(frozen=True, kw_only=True)
class HypervisorSource:
    """A source of counters (host.counters.sources.Source) that reads the hypervisor's counters of one guest.

    scope: its scope in a record.
    guest: name of the guest's domain.
    """

    scope: Scope
    guest: str
    xl: Xl

    def read(self) -> Counters:
        return {k: v for k, v in _counters(self.xl).get(self.guest, {}).items() if k not in LEVELS}
