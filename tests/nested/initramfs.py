"""An initramfs for the outer machine: busybox, the modules that reach its disks, and what it is given."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path

from nearmetal.environments.guests.initramfs import modules_of
from nearmetal.host import cpio

EMPTY = ("proc", "sys", "dev", "lower", "written", "root", "given", "bin", "modules")
MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "erofs", "ext4", "overlay")


def write_initramfs(tree: Path, kernel: str, init: Path, given: Mapping[str, bytes], to: Path) -> None:
    """tree: of the image; kernel: its version; given: contents by name, seen in /given."""
    to.write_bytes(gzip.compress(cpio.pack(_members(tree, kernel, init, given)), 1, mtime=0))


def _members(tree: Path, kernel: str, init: Path, given: Mapping[str, bytes]) -> Iterator[cpio.Member]:
    for name in EMPTY:
        yield cpio.directory(name)
    yield cpio.file("init", init.read_bytes(), 0o755)
    yield cpio.file("bin/busybox", (tree / "bin/busybox").read_bytes(), 0o755)
    modules = modules_of(tree / "lib/modules" / kernel, MODULES)
    yield cpio.file("modules/list", "".join(f"{m.name}\n" for m in modules).encode())
    for module in modules:
        yield cpio.file(f"modules/{module.name}", module.read_bytes())
    for name, data in given.items():
        yield cpio.file(f"given/{name}", data, 0o600)
