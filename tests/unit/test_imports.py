"""Heavy libraries are imported where they are used, so that the tool answers at once."""

import ast
import subprocess
import sys
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
    "report/charts": {"altair", "vl_convert"},
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


def behind(first: str) -> set[str]:
    """The modules that a module imports, directly or not. None of them imports a heavy library."""
    seen: set[str] = set()
    queue = [first]
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
    return seen


def rooms(modules: set[str]) -> set[str]:
    found = {name.split(".")[1] for name in modules - {"nearmetal"}}
    return {name for name in found if (SOURCE / name).is_dir()}


def test_help_imports_nothing_heavy() -> None:
    seen = behind("nearmetal.cli")
    assert "nearmetal.cli.commands" in seen
    assert rooms(seen) == {"cli"}, "only the module of the command that is run imports other rooms"


@pytest.mark.parametrize("command", ["measure.runs", "measure.weigh"])
def test_help_of_a_command_that_measures_imports_no_machine(command: str) -> None:
    seen = behind(f"nearmetal.cli.{command}")
    assert rooms(seen) <= {"cli", "model", "lifecycle", "studies"}


MEASURING = "what measures: half a second, and most commands only read"
ALTAIR = "Altair: only where a page or figures are written"
NUMPY = "analysis and what imports it: numpy and scipy"
HELP = "what runs a study: half a second, which --help of the command does not need"
RICH = "rich: a pipe gets no colours and no live picture"
YAML = "pydantic and ruamel.yaml: a process that only runs blocks reads no study file"
#: How many imports the functions of a file or a room may have at most, and what starts earlier without them.
IN_FUNCTIONS = {
    "__init__.py": (1, "the library, which 'import nearmetal' does not need"),
    "api/catalog.py": (2, MEASURING),
    "api/checking.py": (25, "everything that can be checked, which only 'nearmetal check' asks for"),
    "api/engines.py": (9, MEASURING),
    "api/kernels.py": (3, MEASURING),
    "api/measuring.py": (11, MEASURING),
    "api/results.py": (8, f"{NUMPY}; {ALTAIR}"),
    "api/series": (11, f"{MEASURING}; {NUMPY}; {ALTAIR}"),
    "api/trust.py": (1, MEASURING),
    "api/workload_names.py": (1, MEASURING),
    "cli/read/comparing.py": (3, NUMPY),
    "cli/output.py": (2, RICH),
    "cli/read/present.py": (4, NUMPY),
    "cli/measure/runs.py": (13, HELP),
    "cli/series.py": (2, ALTAIR),
    "cli/measure/try_change.py": (1, MEASURING),
    "cli/measure/weigh.py": (4, HELP),
    "cli/view.py": (3, RICH),
    "engines": (1, "ruamel.yaml: only engines of the table need it"),
    "environments": (3, "qemu.qmp, with asyncio, and zstandard: only guests of QEMU need them"),
    "inventory": (2, "ldap3: an optional package"),
    "host/cards.py": (2, "pyroute2: only network cards of the machine need it"),
    "model/keys.py": (1, "difflib: most files have no mistake"),
    "model/expression.py": (2, "regex: only programs of a user's own need it"),
    "network/worker.py": (
        1,
        "pyroute2: the worker answers what is wrong with a request before it imports it",
    ),
    "published": (2, "pydantic: a report without a paper reads none"),
    "records/export.py": (1, "polars: only Parquet needs it"),
    "report/forms/columns.py": (1, RICH),
    "report/forms/summary.py": (2, RICH),
    "report/forms/terminal.py": (4, RICH),
    "report/forms/upgrade.py": (1, RICH),
    "report/sheet.py": (1, ALTAIR),
    "run": (5, NUMPY),
    "samplers": (2, "zstandard: only samples are compressed"),
    "study_file": (21, YAML),
}


@pytest.mark.parametrize(
    "module", ["api.results", "report.series", "cli.read.results", "cli.measure.run_block"]
)
def test_only_pages_and_figures_import_altair(module: str) -> None:
    code = f"import sys, nearmetal.{module}; sys.exit('altair' in sys.modules or 'vl_convert' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def function_imports(tree: ast.AST) -> int:
    """How many import statements stand in functions."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = {n for f in functions for n in ast.walk(f) if isinstance(n, ast.Import | ast.ImportFrom)}
    return len(found)


def test_functions_import_only_what_start_up_time_asks_for() -> None:
    counted: dict[str, int] = {}
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE)
        around = [str(name), *map(str, name.parents)]
        place = next((p for p in around if p in IN_FUNCTIONS), name.parts[0])
        counted[place] = counted.get(place, 0) + function_imports(ast.parse(path.read_text()))
    expected = {p: n for p, (n, _) in IN_FUNCTIONS.items()}
    assert {p: n for p, n in counted.items() if n} == expected, (
        "import at the top, or say here what starts earlier"
    )
