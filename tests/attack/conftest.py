"""What the attack tests share."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def make_deep() -> Iterator[Callable[[Path], None]]:
    """Nests directories so deep that recursion fails. Python's usual limit of 1000 would take seconds, and
    pytest could not remove what a failed test leaves."""
    usual = sys.getrecursionlimit()

    def make(directory: Path) -> None:
        for _ in range(200):
            directory = directory / "d"
            directory.mkdir()
        sys.setrecursionlimit(len(inspect.stack()) + 150)

    yield make
    sys.setrecursionlimit(usual)
