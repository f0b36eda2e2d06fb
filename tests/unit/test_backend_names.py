"""No code outside the backends depends on which backend it has: it asks the backend's capabilities."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nearmetal
from nearmetal.api.catalog import catalog
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.model.capabilities import Capabilities
from nearmetal.study_file import json_schema

SOURCE = Path(nearmetal.__file__).parent
NAMES = frozenset(backend_names())
#: Rooms and files that may name backends, and why.
MAY = {
    "environments": "the backends themselves",
    "model/series_file.py": "the example of a rule has a backend to replace",
    "study_file/sections/__init__.py": "the example of a section has an environment called native",
}


def strings(node: ast.expr) -> Iterator[str]:
    """The texts in an expression, also in a tuple, a list or a set."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def decisions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every backend by which the code decides: compared, matched, or a key of a table."""
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Dict):
            parts = [k for k in node.keys if k is not None]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        for part in parts:
            yield from ((part.lineno, text) for text in strings(part) if text in NAMES)


@pytest.mark.parametrize(
    "code",
    [
        'if environment.backend == "native": pass',
        'quick = backend in ("runc", "crun")',
        'TITLES = {"podman": "Podman"}',
        'match backend:\n    case "qemu" | "xen": pass',
        'DEFAULTS["lxc"]',
    ],
)
def test_a_decision_by_name_is_seen(code: str) -> None:
    assert list(decisions(ast.parse(code)))
    assert not list(decisions(ast.parse('Environment(name="e", backend="native")')))


def test_no_code_decides_by_the_name_of_a_backend() -> None:
    assert len(NAMES) > 10
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not any(path.is_relative_to(SOURCE / place) for place in MAY)
        for line, name in decisions(ast.parse(path.read_text()))
    ]
    assert not found, "ask the capabilities of the backend instead"


def without_docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return (node for node in ast.walk(tree) if id(node) not in texts)


def test_no_message_names_a_backend() -> None:
    named = re.compile(rf"backends?:? ({'|'.join(sorted(NAMES, reverse=True))})\b")
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}: {node.value}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.is_relative_to(SOURCE / "environments")
        for node in without_docstrings(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and named.search(node.value)
    ]
    assert not found, "take the names from the backends' declarations: backends_with(), backends_that()"


@pytest.mark.parametrize("place", sorted(MAY))
def test_every_exception_is_still_needed(place: str) -> None:
    below = SOURCE / place
    files = [below] if below.is_file() else list(below.rglob("*.py"))
    assert any(list(decisions(ast.parse(path.read_text()))) for path in files), f"{place} names no backend"


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("guest", lambda can: can.virtual),
        ("inside", lambda can: can.stands_inside),
        ("extra_work", lambda can: can.plants_work),
    ],
)
def test_the_documentation_of_a_key_names_the_backends_that_take_it(
    name: str, takes: Callable[[Capabilities], bool]
) -> None:
    doc = json_schema(catalog())["$defs"]["Environment"]["properties"][name]["description"]
    (named,) = re.findall(r"\bbackends? ([\w, ]+)", doc)
    takers = {b.name for b in map(get_backend, backend_names()) if takes(b.capabilities)}
    assert set(re.findall(r"\w+", named)) & NAMES == takers
