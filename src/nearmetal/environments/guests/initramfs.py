"""Builds the initramfs of a guest: nm-guest as init, the kernel modules for disk, network and agent, and the
tools. Archives are cached by kernel and tools."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...errors import UnavailableError
from ...host import cpio
from ...host.untrusted import UntrustedDirectory
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

_MODULE_LIMIT = 128 << 20
"""Largest size of a kernel module, compressed or not, in bytes; those with debugging symbols have a few tens
of MiB."""

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
        lines = UntrustedDirectory(directory).read_bytes("modules.dep").decode(errors="replace").splitlines()
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


def initramfs(
    cache: Path,
    modules: Path | None,
    tools: Tools,
    wanted: Sequence[str] = USUAL,
    *,
    tree: Path = Path("/"),
) -> Path:
    """Return the path of the archive for a kernel. It is made if the cache does not contain it.

    cache: directory of the cache.
    modules: lib/modules/<version> of the kernel; None if the kernel has no modules.
    wanted: names of the modules.
    tree: root directory that contains the modules. Links do not lead out of it: the author of an image must
        not read files of this machine in a guest.
    Raises UnavailableError if a module cannot be read.
    """
    files = modules_of(modules, wanted) if modules is not None else []
    own = sorted(p for p in tools.directory.iterdir() if p.is_file())
    root = UntrustedDirectory(tree.resolve(), as_root=True)
    key = hashlib.sha256(_FORMAT)
    for path, status in (*((m, _status(root, m)) for m in files), *((p, p.stat()) for p in own)):
        key.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    target = cache / "guests" / f"{key.hexdigest()[:32]}.cpio"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.{os.getpid()}")
        aside.write_bytes(cpio.pack(_members(root, files, own, tools)))
        aside.replace(target)
    return target


def _inside(root: UntrustedDirectory, module: Path) -> Path:
    """Return the path of a module relative to the root directory. modules.dep may contain absolute paths,
    which begin there."""
    path = module.absolute()
    return path.relative_to(root.path) if path.is_relative_to(root.path) else path


def _status(root: UntrustedDirectory, module: Path) -> os.stat_result:
    status = root.stat(_inside(root, module))
    if status is None:
        raise UnavailableError(f"kernel module {module}: there is no such file in {root.path}")
    return status


def _read_module(root: UntrustedDirectory, module: Path) -> bytes:
    """Return the uncompressed content of a module file. Distributions compress modules in different formats.

    Raises UnavailableError.
    """
    try:
        data = root.read_bytes(_inside(root, module), _MODULE_LIMIT)
        content = _uncompressed(data, module.suffix)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as e:
        raise UnavailableError(f"kernel module {module}: {getattr(e, 'strerror', None) or e}") from e
    if len(content) > _MODULE_LIMIT:
        raise UnavailableError(f"kernel module {module} has more than {_MODULE_LIMIT} bytes")
    return content


def _uncompressed(data: bytes, suffix: str) -> bytes:
    """Return at most _MODULE_LIMIT bytes and one more."""
    most = _MODULE_LIMIT + 1
    match suffix:
        case ".xz":
            return lzma.LZMADecompressor(memlimit=_MODULE_LIMIT).decompress(data, most)
        case ".gz":
            return gzip.GzipFile(fileobj=io.BytesIO(data)).read(most)
        case ".zst":
            import zstandard  # here, since the import takes several milliseconds

            try:
                return (
                    zstandard.ZstdDecompressor(max_window_size=_MODULE_LIMIT).stream_reader(data).read(most)
                )
            except zstandard.ZstdError as e:
                raise ValueError(str(e)) from e
        case _:
            return data


def _members(
    root: UntrustedDirectory, files: Sequence[Path], own: Sequence[Path], tools: Tools
) -> Iterator[cpio.Member]:
    for name in ("dev", "proc", "sys", "modules", "tools"):
        yield cpio.directory(name)
    yield cpio.file("init", Path(tools / "nm-guest").read_bytes(), 0o755)
    names = []
    for path in files:
        names.append(path.name.partition(".ko")[0] + ".ko")
        yield cpio.file(f"modules/{names[-1]}", _read_module(root, path))
    yield cpio.file("modules/list", "".join(f"{n}\n" for n in names).encode())
    for path in own:
        if path.name != "nm-guest":
            yield cpio.file(f"tools/{path.name}", path.read_bytes(), path.stat().st_mode & 0o777)
