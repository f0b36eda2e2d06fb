"""Builds the root directory of a Docker container from the tree of an image.

The container runs a skeleton image, which contains only the symbolic links and, as empty directories, the
directories at the top level of the tree. The daemon mounts an overlay over each directory of the tree there,
as a volume."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import RunError
from ...host import Host
from .docker_daemon import COMMAND_TIMEOUT, address

FRESH = {"tmp": 0o1777, "run": 0o755}
NEVER = frozenset({"proc", "sys", "dev", "lost+found", *FRESH})
"""Names of top-level directories that are not taken from the tree: the container runtime provides them, or
they are new in each instance."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The entries at the top level of a root directory.

    links: name of a symbolic link -> its target.
    directories: name of a directory -> its mode.
    full: names of the directories that are not empty. An overlay is mounted over each of them.
    """

    root: Path
    links: Mapping[str, str]
    directories: Mapping[str, int]
    full: tuple[str, ...]

    def skeleton(self) -> bytes:
        """Return a tar file with the links and the directories, which are empty. Equal entries give equal
        bytes."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, mode in sorted(self.directories.items()):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, mode
                tar.addfile(entry)
            for name, target in sorted(self.links.items()):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
        return out.getvalue()


def look_at(root: Path) -> Tree:
    """Read the top level of a tree. Regular files there are left out."""
    links: dict[str, str] = {}
    directories: dict[str, int] = dict.fromkeys(("proc", "sys", "dev"), 0o755) | FRESH
    full = []
    for entry in sorted(os.scandir(root), key=lambda e: e.name):
        if entry.is_symlink():
            links[entry.name] = str(Path(entry.path).readlink())
        elif entry.is_dir() and entry.name not in NEVER:
            directories[entry.name] = stat.S_IMODE(entry.stat().st_mode)
            if any(Path(entry.path).iterdir()):
                full.append(entry.name)
    return Tree(root=root, links=links, directories=directories, full=tuple(full))


def overlays(tree: Tree, state: Path) -> list[str]:
    """Return arguments of `docker run` and `docker create` that mount an overlay over each directory of the
    tree that is not empty.

    state: directory with the upper and work directories of the overlays, which are created if missing.
    Raises RunError for a path that overlayfs or Docker does not accept.
    """
    words = []
    for name in tree.full:
        lower, upper, work = tree.root / name, state / "upper" / name, state / "work" / name
        if set(f"{lower}{state}") & set(',:\\"'):
            raise RunError(f"{lower}: overlay paths must not contain comma, colon, quote or backslash")
        for directory in (upper, work):
            directory.mkdir(parents=True, exist_ok=True)
        # The directory of an overlay gets mode and owner from the upper directory.
        os.chown(upper, lower.stat().st_uid, lower.stat().st_gid)
        upper.chmod(tree.directories[name])
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mount = (
            f"type=volume,volume-driver=local,dst=/{name},volume-opt=type=overlay,volume-opt=device=overlay"
        )
        words += ["--mount", f'{mount},"volume-opt=o={options}"']
    return words


def skeleton_image(host: Host, tree: Tree, state: Path) -> str:
    """Return the name of the skeleton image of a tree. If the daemon does not have this image, `docker
    import` makes it.

    state: directory for the temporary tar file.
    Raises RunError.
    """
    content = tree.skeleton()
    name = f"nearmetal-skeleton:{hashlib.sha256(content).hexdigest()[:12]}"
    key = (address(), name)
    if key not in _known:
        if not host.run(["docker", "image", "inspect", name], timeout=COMMAND_TIMEOUT).ok:
            file = state / "skeleton.tar"
            file.write_bytes(content)
            host.run(["docker", "import", str(file), name], timeout=COMMAND_TIMEOUT).require("docker import")
        _known.add(key)
    return name


_known: set[tuple[str, str]] = set()
"""Images that are known to exist: (address of the daemon, name of the image). To check each time would
lengthen every start."""
