"""Imports an image that was made elsewhere, in one of several formats, into the store."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path

from ..errors import RunError, UnavailableError, UsageError
from ..host import Host
from ..host.untrusted import UntrustedDirectory
from .build import finished
from .build_errors import disk_full, failure
from .config import ImageConfig, read_config
from .digest import entries
from .find import builtin_names
from .store import Image, ImageStore, TreeDescription, checked_name

IMPORT_SECONDS = 1800.0
_OUTPUT = 32 << 20
"""Bytes that are kept of what a program prints: the names of several hundred thousand files."""
_SQUASHFS = b"hsqs"
#: Singularity image format: the position of its magic number, its header, one of its descriptors.
_SIF_MAGIC, _SIF_AT = b"SIF_MAGIC\0", 32
_SIF_HEADER = struct.Struct("<32s10s3s3s16sqqqqqqqq")
_SIF_DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")
_SIF_PARTITION = 0x4004
_PLAIN = ("--no-same-owner", "--no-same-permissions")
_DEV = ("--exclude=./dev/*", "--exclude=dev/*")


class SourceKind(StrEnum):
    """Formats from which an image can be imported."""

    DIRECTORY = "directory"
    OCI_LAYOUT = "OCI layout"
    OCI_ARCHIVE = "OCI archive"
    DOCKER_ARCHIVE = "Docker archive"
    SIF = "SIF"
    SQUASHFS = "squashfs"
    TAR = "tar"


def import_image(
    host: Host, store: ImageStore, path: Path, name: str, *, progress: Callable[[str], None]
) -> Image:
    """Import an image into the store.

    path: directory or file of the image.
    name: name for the image in the store.
    progress: is called with a message before every long step.
    Raises UsageError if the path is not an image or the name belongs to a built-in image, UnavailableError if
    the program that reads the format is missing, BusyError, DiskFullError, RunError.
    """
    if checked_name(name) in builtin_names():
        raise UsageError(f"image {name} comes with nearmetal", remedy="give yours another name")
    kind = kind_of(host, path)
    if kind is SourceKind.DIRECTORY and store.directory.absolute().is_relative_to(path.resolve()):
        raise UsageError(
            f"{path} holds the images themselves", remedy="image: host is the machine's own root"
        )
    with store.making(name, f"import-{name}") as work:
        progress(f"image {name}: taking it from {kind} {path}")
        tree = work / "tree"
        tree.mkdir()
        try:
            _unpack(host, name, kind, path.absolute(), work)
            root = UntrustedDirectory(tree, as_root=True)
            if tree.is_symlink() or not any(root.is_directory(top) for top in ("usr", "bin")):
                what = f"{path} contains no root tree: it has neither /usr nor /bin"
                raise UsageError(what, where=str(path))
            progress(f"image {name}: computing the digest")
            made = finished(tree, f"{kind} {path.name}", None)
            if (layout := work / "layout").is_dir():
                made = replace(made, config=read_config(layout, tree))
        except OSError as e:
            if e.errno == errno.ENOSPC:
                raise disk_full(name, "not imported") from e
            where = f" ({e.filename})" if e.filename else ""
            raise RunError(f"image {name}: not imported: {e.strerror}{where}", where=str(path)) from e
        return store.adopt(name, import_key(made), work, made)


def import_key(made: TreeDescription) -> str:
    """Return the key of the entry of an imported image: its tree, and its configuration if it has one."""
    if made.config == ImageConfig():
        return f"import-{made.digest}"
    config = json.dumps(asdict(made.config), sort_keys=True)
    return f"import-{hashlib.sha256((made.digest + config).encode()).hexdigest()}"


def kind_of(host: Host, path: Path) -> SourceKind:
    """Return the format of an image. It is determined from the content, not from the file name.

    Raises UsageError if the path cannot be read or has no known format.
    """
    if path.is_dir():
        return SourceKind.OCI_LAYOUT if (path / "oci-layout").is_file() else SourceKind.DIRECTORY
    if path.exists() and not path.is_file():
        raise UsageError("neither a file nor a directory", where=str(path))
    try:
        with path.open("rb") as file:  # trusted: a regular file that the user names
            head = file.read(_SIF_AT + len(_SIF_MAGIC))
    except OSError as e:
        raise UsageError(f"cannot be read: {e.strerror}", where=str(path)) from e
    if head[_SIF_AT:] == _SIF_MAGIC:
        return SourceKind.SIF
    if head.startswith(_SQUASHFS):
        return SourceKind.SQUASHFS
    argv = ["tar", "--list", "--file", str(path.absolute())]
    listed = host.run(argv, timeout=IMPORT_SECONDS, most=_OUTPUT)
    if not listed.ok:
        what = f"no directory, OCI layout, archive, SIF, squashfs or tar: {listed.failure()}"
        raise UsageError(what, where=str(path))
    names = {line.removeprefix("./") for line in listed.stdout.splitlines()}
    if "oci-layout" in names:
        return SourceKind.OCI_ARCHIVE
    return SourceKind.DOCKER_ARCHIVE if "manifest.json" in names else SourceKind.TAR


def _unpack(host: Host, name: str, kind: SourceKind, path: Path, work: Path) -> None:
    for argv, package in unpack_argvs(kind, path, work, root=host.is_root()):
        if host.which(argv[0]) is None:
            raise UnavailableError(
                f"image {name}: {argv[0]}, which reads {kind}, is not installed",
                remedy=f"apt-get install {package}",
            )
        env = {"LC_ALL": "C", "TMPDIR": str(work)}
        done = host.run(argv, timeout=IMPORT_SECONDS, env=env, cwd=work, most=_OUTPUT)
        if not done.ok:
            raise failure(name, f"no {kind}", argv[0], done.returncode, done.stdout + done.stderr)


def unpack_argvs(kind: SourceKind, path: Path, work: Path, *, root: bool) -> Iterator[tuple[list[str], str]]:
    """Yield the commands that unpack an image to work/tree, in order, each with the package of its program.

    path: path of the image.
    work: directory in which the commands must be run; it contains an empty directory `tree`.
    root: whether nearmetal runs as root, so that the owners of files are kept.
    Raises RunError if the image cannot be unpacked.
    """
    tree = str(work / "tree")
    match kind:
        case SourceKind.DIRECTORY:
            how = ["--archive", "--one-file-system", "--reflink=auto", "--no-target-directory"]
            yield ["cp", *how, "--", str(path), tree], "coreutils"
        case SourceKind.TAR:
            owner = ["--numeric-owner"] if root else ["--no-same-owner", "--same-permissions", *_DEV]
            what = ["--file", str(path), "--directory", tree]
            yield ["tar", "--extract", "--xattrs", *owner, *what], "tar"
        case SourceKind.SIF | SourceKind.SQUASHFS:
            offset = sif_offset(path) if kind is SourceKind.SIF else 0
            how = ["-no-progress", "-quiet", "-force", "-offset", str(offset)]
            yield ["unsquashfs", *how, "-dest", tree, str(path)], "squashfs-tools"
        case SourceKind.OCI_LAYOUT | SourceKind.OCI_ARCHIVE | SourceKind.DOCKER_ARCHIVE:
            source = work / "source"
            if kind is SourceKind.OCI_ARCHIVE:
                source.mkdir()
                yield ["tar", "--extract", "--file", str(path), "--directory", str(source), *_PLAIN], "tar"
            else:
                # A link in work, so that the name has no colon, which would separate path and tag.
                source.symlink_to(path)
            transport = "docker-archive" if kind is SourceKind.DOCKER_ARCHIVE else "oci"
            if transport == "oci":
                _require_files(source.resolve())
            copy = ["copy", "--insecure-policy", "--quiet", f"{transport}:source", "oci:layout:image"]
            yield ["skopeo", *copy], "skopeo"
            rootless = [] if root else ["--rootless"]
            yield ["umoci", "raw", "unpack", *rootless, "--image", "layout:image", tree], "umoci"


def _require_files(layout: Path) -> None:
    """Check that an OCI layout contains nothing but directories, regular files, and links to those. skopeo
    would wait for the other end of a FIFO.

    Raises UsageError.
    """
    for name, entry in entries(layout):
        try:
            mode = entry.stat().st_mode
        except OSError as e:
            raise UsageError(f"cannot be read: {e.strerror}", where=str(layout / name)) from e
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UsageError("not a regular file, so this is no OCI layout", where=str(layout / name))


def sif_offset(path: Path) -> int:
    """Return the offset in bytes of the squashfs in a SIF file.

    Raises RunError if the file contains none.
    """
    # An offset may be negative (OSError).
    with path.open("rb") as file, contextlib.suppress(struct.error, OSError):  # trusted: see kind_of()
        header = os.pread(file.fileno(), _SIF_HEADER.size, 0)
        total, at = _SIF_HEADER.unpack(header)[8:10]
        size = _SIF_DESCRIPTOR.size * min(max(total, 0), 1000)
        for descriptor in _SIF_DESCRIPTOR.iter_unpack(os.pread(file.fileno(), size, at)):
            kind, used, _, _, _, offset, *_ = descriptor
            wanted = kind == _SIF_PARTITION and used
            if wanted and os.pread(file.fileno(), len(_SQUASHFS), offset) == _SQUASHFS:
                return int(offset)
    raise RunError("this SIF contains no squashfs", where=str(path), remedy="it may be encrypted")
