"""What the contract suites share: the launcher and the first process of instances, compiled once."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from nearmetal.environments import Tools

BOX = Path(__file__).parents[2] / "kernels" / "box"


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """nm-box and nm-init, compiled as kernels/box/CMakeLists.txt does it, but without the MPI of the rest."""
    directory = tmp_path_factory.mktemp("tools")
    common = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-static"]
    direct = [
        "-DNM_FREESTANDING",
        "-ffreestanding",
        "-fno-stack-protector",
        "-fno-pie",
        "-nostdlib",
        "-no-pie",
    ]
    box = [str(p) for p in sorted(BOX.glob("*.c")) if p.name != "nm-init.c"]
    init = [*(direct if platform.machine() == "x86_64" else []), str(BOX / "nm-init.c")]
    for name, rest in (("nm-box", box), ("nm-init", init)):
        subprocess.run(["cc", *common, "-o", str(directory / name), *rest], check=True, timeout=120)
    return Tools(directory=directory)
