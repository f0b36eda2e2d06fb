"""The table of methods and backends in the documentation is the one that the backends declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearmetal.environments import Checkpoints, Migrates
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.lifecycle import Method

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "checkpoints.md"
HEAD = "| method | backends |\n|---|---|\n"


def declared() -> str:
    """The rows of the table: a method, and the backends that declare it."""
    takers: dict[Method, list[str]] = {}
    for name in backend_names():
        backend = get_backend(name)
        methods = backend.checkpoints_by if isinstance(backend, Checkpoints) else ()
        methods += backend.moves_by if isinstance(backend, Migrates) else ()
        for method in methods:
            takers.setdefault(method, []).append(f"`{name}`")
    return "".join(f"| `{m}` | {', '.join(takers[m])} |\n" for m in Method if m in takers)


def test_the_table_of_the_page_is_what_backends_declare(request: pytest.FixtureRequest) -> None:
    before, _, rest = PAGE.read_text().partition(HEAD)
    found = rest[: rest.index("\n\n") + 1] if rest.startswith("|") else ""
    if request.config.getoption("--update-golden"):
        PAGE.write_text(before + HEAD + declared() + rest[len(found) :])
        found = declared()
    assert found == declared(), "pytest tests/unit/test_lifecycle_table.py --update-golden"
    assert "`criu-lazy` | `namespaces`, `native`, `runc`" in found
