"""The parts of nested guests, made once in a session."""

from __future__ import annotations

import pytest
from tests.nested.parts import Parts, make_parts


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return make_parts(tmp_path_factory.mktemp("nested"))
