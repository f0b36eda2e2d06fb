"""Programs, modules and configurations that leave a mark if anything runs or reads them."""

from __future__ import annotations

import json
from pathlib import Path

PROGRAMS = ("ssh", "squeue", "scancel", "mpirun", "git", "python3", "sh", "nearmetal", "lscpu")
MODULES = ("sitecustomize", "usercustomize", "typer", "multiprocessing", "numpy", "nearmetal", "json")


def lure(directory: Path, outside: Path) -> None:
    """Add programs, modules and configurations that leave a mark if anything runs or reads them."""
    for name in PROGRAMS:
        (directory / name).write_text(f"#!/bin/sh\n: > {outside}/mark-{name}\n")
        (directory / name).chmod(0o755)
    for name in MODULES:
        (directory / f"{name}.py").write_text(f"open({str(outside / f'mark-{name}')!r}, 'w')\n")
    (directory / "config").write_text(f"Host *\n  ProxyCommand {directory}/ssh\n")
    engine = {
        "engine": "ssh",
        "ids": ["n:1:2"],
        "options": {"hosts": "n", "config": str(directory / "config")},
    }
    (directory / "engine.json").write_text(json.dumps(engine))
