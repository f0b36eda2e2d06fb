"""The option that writes the golden files anew: pytest tests/golden --update-golden, then read the diff."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

EXPECTED = Path(__file__).parent / "expected"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): the bytes of text are those of expected/<name>."""

    def check(name: str, text: str) -> None:
        file = EXPECTED / name
        # Absent where pytest met this file only while collecting; then nothing may be rewritten either.
        if request.config.getoption("--update-golden", default=False):
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(text.encode())
        assert file.is_file(), f"{name} is missing: pytest tests/golden --update-golden"
        assert text.encode() == file.read_bytes(), f"{name} differs: pytest tests/golden --update-golden"

    return check
