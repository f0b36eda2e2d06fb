"""Heavy libraries are imported where they are used, so that the tool answers at once."""

import ast
from pathlib import Path

import pytest

import nearmetal

SOURCE = Path(nearmetal.__file__).parent
HEAVY = {
    "altair",
    "numpy",
    "pandas",
    "polars",
    "pydantic",
    "pyroute2",
    "rich",
    "ruamel",
    "scipy",
    "statsmodels",
    "vl_convert",
    "zstandard",
}
#: What may import a heavy library at its top: rooms and modules that are themselves imported where used, and
#: the program that builds networks, a process of its own.
MAY = {
    "analysis": {"numpy", "scipy"},
    "study_file/sections": {"pydantic"},
    "study_file/fields.py": {"pydantic"},
    "network/making.py": {"pyroute2"},
    "network/facts.py": {"pyroute2"},
}


def top_level_imports(tree: ast.Module) -> set[str]:
    """Names of packages that importing the module imports."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_heavy_import_at_the_top(path: Path) -> None:
    inside = path.relative_to(SOURCE)
    allowed = set().union(*(MAY.get(str(p), set()) for p in (inside, *inside.parents)))
    heavy = top_level_imports(ast.parse(path.read_text())) & HEAVY - allowed
    assert not heavy, f"{path} imports {sorted(heavy)} when it is imported"


def test_help_imports_nothing_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules behind `nearmetal --help`, followed import by import."""
    seen: set[str] = set()
    queue = ["nearmetal.cli"]
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        path = SOURCE.parent / Path(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if not file.exists():
            continue
        tree = ast.parse(file.read_text())
        assert not top_level_imports(tree) & HEAVY, f"{name} is behind --help and imports a heavy library"
        package = name.split(".") if path.is_dir() else name.split(".")[:-1]
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.level:
                base = package[: len(package) - node.level + 1]
                module = ".".join([*base, *(node.module.split(".") if node.module else [])])
                queue.append(module)
                queue += [f"{module}.{a.name}" for a in node.names]
    rooms = {name for name in seen - {"nearmetal"} if (SOURCE.parent / Path(*name.split("."))).is_dir()}
    assert "nearmetal.cli.commands" in seen
    assert rooms == {"nearmetal.cli"}, "only the module of the command that is run imports other rooms"
