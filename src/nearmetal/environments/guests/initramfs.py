"""Builds the initramfs of a guest: nm-guest as init, the kernel modules for disk, network and agent, and the
tools. Archives are cached by kernel and tools."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
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
"""Names of all kernel modules that a guest may need. Their dependencies are included as well. Modules that
the kernel does not have, or has built in, are left out."""

LAST = ("mlx5_core", "iavf", "ixgbevf", "igbvf", "vfio", "squashfs", "tcp_bbr", "tcp_dctcp")
"""Modules of WANTED that are included only if a guest needs them: they are large, or change the behaviour of
others."""

_FORMAT = b"2"
"""Version of the archives' layout. It is part of their digest, so a new version makes cached archives
unused."""

USUAL = tuple(m for m in WANTED if m not in LAST)


def kernel_version(kernel: Path) -> str:
    """Return the version string of a bzImage (Documentation/arch/x86/boot.rst, kernel_version).

    Raises UnavailableError for a file that is not a Linux kernel of this architecture.
    """
    try:
        with kernel.open("rb") as file:
            head = file.read(0x10000)
    except OSError as e:
        raise UnavailableError(f"kernel {kernel}: {e.strerror}", remedy="guest: kernel: another path") from e
    words: list[str] = []
    if head[0x202:0x206] == b"HdrS" and head[0x1FE:0x200] == b"\x55\xaa":
        version = int.from_bytes(head[0x20E:0x210], "little") + 0x200
        words = head[version:].partition(b"\0")[0].decode(errors="replace").split()
        kind = "incomplete"
    else:
        elf = head.startswith(b"\x7fELF")
        kind = "an ELF file, not a bzImage" if elf else "of another architecture, or no kernel"
    if not words:
        raise UnavailableError(
            f"kernel {kernel} is {kind}", remedy="a vmlinuz of Linux for x86-64, such as /boot/vmlinuz-*"
        )
    return words[0]


def modules_of(directory: Path, wanted: Sequence[str]) -> list[Path]:
    """Return the files of the wanted modules and of all modules on which they depend, in the order of
    loading.

    Returns an empty list if the kernel has none of them, or no modules.dep.
    directory: lib/modules/<version> of the kernel, with the file modules.dep of depmod.
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
        by_name[module_name(file)] = file
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


def module_name(file: str) -> str:
    """Return the name of the kernel module in a file, as the kernel spells it."""
    return file.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def initramfs(cache: Path, modules: Path | None, tools: Tools, wanted: Sequence[str] = USUAL) -> Path:
    """Return the path of the archive for a kernel. It is made if the cache does not contain it.

    cache: directory of the cache.
    modules: lib/modules/<version> of the kernel; None if the kernel has no modules.
    wanted: names of the modules.
    """
    files = modules_of(modules, wanted) if modules is not None else []
    own = sorted(p for p in tools.directory.iterdir() if p.is_file())
    key = hashlib.sha256(_FORMAT)
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


def _uncompressed(module: Path) -> bytes:
    """Return the uncompressed content of a module file. Distributions compress modules in different
    formats."""
    data = module.read_bytes()
    match module.suffix:
        case ".xz":
            return lzma.decompress(data)
        case ".gz":
            return gzip.decompress(data)
        case ".zst":
            import zstandard  # here, since the import takes several milliseconds

            return zstandard.ZstdDecompressor().stream_reader(data).read()
        case _:
            return data


def _members(files: Sequence[Path], own: Sequence[Path], tools: Tools) -> Iterator[cpio.Member]:
    for name in ("dev", "proc", "sys", "modules", "tools"):
        yield cpio.directory(name)
    yield cpio.file("init", Path(tools / "nm-guest").read_bytes(), 0o755)
    names = []
    for path in files:
        names.append(path.name.partition(".ko")[0] + ".ko")
        yield cpio.file(f"modules/{names[-1]}", _uncompressed(path))
    yield cpio.file("modules/list", "".join(f"{n}\n" for n in names).encode())
    for path in own:
        if path.name != "nm-guest":
            yield cpio.file(f"tools/{path.name}", path.read_bytes(), path.stat().st_mode & 0o777)
