"""The initramfs of a guest: nm-guest, the kernel modules for disk, network and agent, and the tools. It is
made once for each kernel and each set of tools."""

from __future__ import annotations

import hashlib
import lzma
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...errors import UnavailableError
from ...host import cpio
from ..contract import Tools

WANTED = (
    *("virtio_pci", "virtio_mmio", "virtio_blk", "virtio_net", "virtio_console"),
    *("crc32c_generic", "crc32c_intel", "erofs", "ext4", "overlay", "virtiofs", "squashfs"),
    *("e1000", "8139cp", "vfio", "mlx5_core", "iavf", "ixgbevf", "igbvf"),
    *("xen-blkfront", "xen-netfront"),
    *("tcp_bbr", "tcp_dctcp"),
)
"""Names of modules to include, with those that they depend on. Modules that the kernel lacks or has built in
are left out."""

LAST = ("mlx5_core", "iavf", "ixgbevf", "igbvf", "vfio", "squashfs", "tcp_bbr", "tcp_dctcp")
"""Modules that are included only if a guest needs them: they are large, or affect other modules."""

USUAL = tuple(m for m in WANTED if m not in LAST)


def kernel_version(kernel: Path) -> str:
    """Return the version string of a bzImage (Documentation/arch/x86/boot.rst, kernel_version).

    Raises UnavailableError for a file that is no Linux kernel of this architecture.
    """
    try:
        with kernel.open("rb") as file:
            head = file.read(0x10000)
    except OSError as e:
        raise UnavailableError(f"kernel {kernel}: {e.strerror}", remedy="guest: kernel: another path") from e
    if head[0x202:0x206] != b"HdrS" or head[0x1FE:0x200] != b"\x55\xaa":
        kind = (
            "of another architecture, or no kernel"
            if head[:4] != b"\x7fELF"
            else "an ELF file, not a bzImage"
        )
        raise UnavailableError(
            f"kernel {kernel} is {kind}", remedy="a vmlinuz of Linux for x86-64, such as /boot/vmlinuz-*"
        )
    offset = struct.unpack_from("<H", head, 0x20E)[0] + 0x200
    return head[offset : head.index(b"\0", offset)].decode(errors="replace").split()[0]


def modules_of(directory: Path, wanted: Sequence[str]) -> list[Path]:
    """Return the files of the wanted modules and of all that they depend on, in the order of loading; empty
    if there are none.

    directory: lib/modules/<version>, with a modules.dep as made by depmod.
    """
    needs: dict[str, tuple[str, ...]] = {}
    by_name: dict[str, str] = {}
    try:
        lines = (directory / "modules.dep").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        file, _, others = line.partition(":")
        needs[file] = tuple(others.split())
        by_name[_name(file)] = file
    found: dict[str, None] = {}

    def add(file: str) -> None:
        if file not in found:
            for other in reversed(needs.get(file, ())):
                add(other)
            found[file] = None

    for name in wanted:
        if (known := by_name.get(name.replace("-", "_"))) is not None:
            add(known)
    return [directory / file for file in found]


def _name(file: str) -> str:
    return file.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def initramfs(cache: Path, modules: Path | None, tools: Tools, wanted: Sequence[str] = USUAL) -> Path:
    """Return the archive. It is made unless one with the same digest exists.

    modules: lib/modules/<version>; None if the kernel has everything built in.
    """
    files = modules_of(modules, wanted) if modules is not None else []
    own = sorted(p for p in tools.directory.iterdir() if p.is_file())
    key = hashlib.sha256()
    for path in (*files, *own):
        status = path.stat()
        key.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    target = cache / "guests" / f"{key.hexdigest()[:32]}.cpio"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.{os.getpid()}")
        aside.write_bytes(cpio.pack(_members(files, own, tools)))
        aside.replace(target)
    return target


def _members(files: Sequence[Path], own: Sequence[Path], tools: Tools) -> Iterator[cpio.Member]:
    for name in ("dev", "proc", "sys", "modules", "tools"):
        yield cpio.directory(name)
    yield cpio.file("init", Path(tools / "nm-guest").read_bytes(), 0o755)
    names = []
    for path in files:
        name = path.name
        data = path.read_bytes()
        if name.endswith(".xz"):
            name, data = name.removesuffix(".xz"), lzma.decompress(data)
        names.append(name)
        yield cpio.file(f"modules/{name}", data)
    yield cpio.file("modules/list", "".join(f"{n}\n" for n in names).encode())
    for path in own:
        if path.name != "nm-guest":
            yield cpio.file(f"tools/{path.name}", path.read_bytes(), path.stat().st_mode & 0o777)
