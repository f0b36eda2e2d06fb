"""What the hypervisor counts of its guests, as a source of counters: one look for all of them at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ...host.counters.procfiles import Counters
from .xl import Xl

LEVELS = frozenset({"memory_bytes"})
"""What is no count."""
FRESH_SECONDS = 0.2
"""A look costs a process, and tells of every guest; so long it serves for the others."""


@dataclass
class Looks:
    """The last look at a dom0. Mutable: shared by the guests on it."""

    at: float = -FRESH_SECONDS
    found: dict[str, dict[str, float]] = field(default_factory=dict)

    def counters(self, xl: Xl, *, fresh: bool) -> dict[str, dict[str, float]]:
        """By domain. fresh: of now, not of a moment ago."""
        if fresh or time.monotonic() - self.at > FRESH_SECONDS:
            self.found = xl.counters()
            self.at = time.monotonic()
        return self.found


_looks: dict[str, Looks] = {}
"""By the name of the dom0."""


def look(xl: Xl, name: str, *, fresh: bool = False) -> dict[str, float]:
    """What is counted of one guest since its start (output.counters); empty where nothing is known."""
    return _looks.setdefault(xl.dom0.name, Looks()).counters(xl, fresh=fresh).get(name, {})


@dataclass(frozen=True, kw_only=True)
class HypervisorSource:
    """A host.sources.Source.

    name: of its scope.
    guest: the domain.
    """

    name: str
    guest: str
    xl: Xl

    def read(self) -> Counters:
        return {k: v for k, v in look(self.xl, self.guest).items() if k not in LEVELS}
