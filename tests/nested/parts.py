"""What guests inside the outer machine boot from: its own kernel, tools for any processor, a root of
busybox."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.nested.machine import outer_image

from nearmetal.environments import GuestBase, Tools
from nearmetal.environments.guests.initramfs import initramfs

KERNELS = Path(__file__).parents[2] / "kernels"
PROGRAMS = ("nm-box", "nm-guest", "nm-init")
ANY_CPU = "-O2 -march=x86-64"
COMMANDS = ("sh", "cat", "dmesg", "free", "ls", "mount", "sleep", "true")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """tools: what the agent needs; base: of a guest; modules: of its kernel."""

    tools: Tools
    base: GuestBase
    modules: Path


def make_parts(directory: Path) -> Parts:
    """directory: empty, ours."""
    build, cache = directory / "build", directory / "cache"
    configure = ["cmake", "-S", str(KERNELS), "-B", str(build), "-DBUILD_TESTING=OFF"]
    for step in (
        [*configure, f"-DNEARMETAL_FLAGS={ANY_CPU}"],
        ["cmake", "--build", str(build), "--target", *PROGRAMS],
    ):
        subprocess.run(step, check=True, timeout=600, capture_output=True)
    tools = Tools(directory=build / "bin")
    tree = outer_image().tree
    kernel = next(tree.glob("boot/vmlinuz-*"))
    modules = tree / "lib/modules" / kernel.name.removeprefix("vmlinuz-")
    root = directory / "root.erofs"
    make = ["mkfs.erofs", "-zlz4", "--quiet", str(root), str(_tree(directory / "root", tree / "bin/busybox"))]
    subprocess.run(make, check=True, timeout=600, capture_output=True)
    ready = initramfs(cache, modules, tools)
    return Parts(
        tools=tools, base=GuestBase(kernel=kernel, initramfs=ready, root=root, cache=cache), modules=modules
    )


def _tree(root: Path, busybox: Path) -> Path:
    for name in ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var/tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    for name in COMMANDS:
        (root / "bin" / name).symlink_to("busybox")
    return root
