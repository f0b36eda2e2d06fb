"""Check that modules which read files of others open them by host/untrusted.py only. `make lint` runs this.

A line that opens a file in another way for a good reason ends with a comment: `# trusted: REASON`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "nearmetal"
MODULES = (
    "environments/criu_images.py",
    "environments/external/*.py",
    "images/*.py",
    "records/*.py",
    "samplers/*.py",
    "study_file/**/*.py",
    "published/reading.py",
    "report/*.py",
    "report/forms/*.py",
    "run/fold*.py",
    "api/comparing*.py",
    "api/papers.py",
    "api/results.py",
    "api/series/*.py",
    "cli/read/*.py",
    "subjects/launches/staging.py",
)
"""Modules that read results directories, studies, papers, lists of nodes, images, checkpoints, and what
programs write."""
MARK = "# trusted: "
ALWAYS = {"glob", "rglob", "iterdir", "read_text", "write_text", "touch"}
"""Methods of Path that UntrustedDirectory lacks."""
ARGUMENTS = {"read_bytes": 1, "write_bytes": 2}
"""Number of arguments with which a method of this name is one of UntrustedDirectory, and not of Path."""
OF_OS = {"open", "scandir", "listdir", "walk", "fwalk"}
OF_SHUTIL = {"copy", "copy2", "copyfile", "copytree", "move"}


def opens(call: ast.Call) -> bool:
    """Return whether a call opens or lists files other than by UntrustedDirectory."""
    match call.func:
        case ast.Name(id="open"):
            return True
        case ast.Attribute(value=ast.Name(id="os"), attr=name):
            return name in OF_OS
        case ast.Attribute(value=ast.Name(id="shutil"), attr=name):
            return name in OF_SHUTIL
        case ast.Attribute(attr="open"):
            return not call.args or isinstance(call.args[0], ast.Constant)  # Path.open("rb")
        case ast.Attribute(attr=name):
            return name in ALWAYS or len(call.args) < ARGUMENTS.get(name, 0)
    return False


def problems(file: Path) -> Iterator[str]:
    """Yield the place of each call in a module that opens files in another way."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and opens(node) and MARK not in lines[node.lineno - 1]:
            yield f"{file}:{node.lineno}: {lines[node.lineno - 1].strip()}"


def main() -> int:
    files = [file for pattern in MODULES for file in sorted(PACKAGE.glob(pattern))]
    found = [problem for file in files for problem in problems(file)]
    for problem in found:
        print(problem)
    if found:
        print(f"files of others are opened by host/untrusted.py only; else say why: {MARK}REASON")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
