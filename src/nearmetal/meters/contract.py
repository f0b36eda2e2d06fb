"""The interface of meters."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

Counters = Mapping[str, float | None]
"""Values in base units by name; None for a counter that could not be read."""


class Meter(Protocol):
    """Counts the resource use of one running arm, from the creation of the meter until it is closed."""

    def timed(self, workload: str) -> AbstractContextManager[None]:
        """Count the resource use from entry to exit as that of the timed part of a workload."""

    def close(self) -> Mapping[str, Counters]:
        """Stop counting, and return the counters by scope (model.scope)."""
