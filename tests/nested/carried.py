"""What is brought into the outer machine: our sources and what they import, as a disk that is only read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import nearmetal

SOURCES = Path(nearmetal.__file__).parent
SITE = next(p for p in map(Path, sys.path) if p.name == "site-packages")

FOR_TESTS = (
    "playwright",
    "mypy",
    "ruff",
    "statsmodels",
    "pip",
    "uv",
    "hypothesis",
    "_hypothesis",
    "axe_playwright_python",
)
"""Packages of which nothing is imported in a run."""


def make_carried(directory: Path, packages: tuple[str, ...], files: Mapping[str, Path]) -> Path:
    """An erofs image with src, site (these of the Python packages here, all where none are named) and further
    files or directories by name. directory: empty, ours."""
    tree = directory / "tree"
    ignore = shutil.ignore_patterns("__pycache__", "tests")
    shutil.copytree(SOURCES, tree / "src" / "nearmetal", ignore=ignore)
    (tree / "site").mkdir()
    for name in packages or tuple(p.name for p in SITE.iterdir() if not p.name.startswith(FOR_TESTS)):
        found = SITE / name
        if found.is_dir():
            shutil.copytree(found, tree / "site" / name, ignore=ignore, symlinks=True)
        elif found.exists():
            shutil.copy(found, tree / "site" / name)
    for name, path in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, tree / name, symlinks=True)
        else:
            shutil.copy(path, tree / name)
    image = directory / "carried.erofs"
    argv = ["mkfs.erofs", "-zlz4", "--quiet", str(image), str(tree)]
    subprocess.run(argv, check=True, timeout=600, capture_output=True)
    shutil.rmtree(tree)
    return image
