"""The interface of meters."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from ..model.record import Counters
from ..model.scope import Scope


class Meter(Protocol):
    """Counts the resource use of one running arm, from the creation of the meter until it is closed."""

    def timed(self, workload: str) -> AbstractContextManager[None]:
        """Count the resource use from entry to exit as that of the timed part of a workload."""

    def close(self) -> Mapping[Scope, Counters]:
        """Stop counting, and return the counters by scope."""
