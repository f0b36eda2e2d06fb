"""The configuration that an OCI or Docker image states for its programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import msgspec

from ..errors import RunError
from ..host.untrusted import UntrustedDirectory

_DIGEST = re.compile(r"(sha256|sha512):[0-9a-f]{64,128}")
_VARIABLE = re.compile(r"[^=\0]+=[^\0]*", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """What an image states for its programs.

    env: variables that its programs get (ENV).
    directory: directory in which they run (WORKDIR); '' for none.
    user, entrypoint: the user that they run as, and the words before a command. They are not applied, since
        programs run in all environments as the user of nearmetal, by the command that is typed.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    user: str = ""
    entrypoint: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """Return what is not applied, and how to have it."""
        found = []
        if self.user not in ("", "0", "root", "0:0", "root:root"):
            found.append(f"USER {self.user} is left out: programs run as you, or by setpriv in the command")
        if self.entrypoint:
            words = " ".join(self.entrypoint)
            found.append(f"ENTRYPOINT is left out: begin the command with it (-- {words} ...)")
        return found


class _Blob(msgspec.Struct):
    digest: str


class _Index(msgspec.Struct):
    manifests: list[_Blob]


class _Manifest(msgspec.Struct):
    config: _Blob


class _Config(msgspec.Struct, rename="pascal"):
    env: list[str] | None = None
    working_dir: str | None = None
    user: str | None = None
    entrypoint: list[str] | None = None


class _Image(msgspec.Struct):
    config: _Config | None = None


def read_config(layout: Path, tree: Path) -> ImageConfig:
    """Return the configuration of the only image of an OCI layout. A directory that the tree lacks is left
    out.

    tree: its root tree.
    Raises RunError if the layout does not describe an image.
    """
    own = UntrustedDirectory(layout)

    def blob(of: _Blob) -> bytes:
        if not _DIGEST.fullmatch(of.digest):
            raise ValueError(f"{of.digest[:80]!r} is no digest")
        return own.read_bytes(f"blobs/{of.digest.replace(':', '/')}")

    try:
        index = msgspec.json.decode(own.read_bytes("index.json"), type=_Index)
        manifest = msgspec.json.decode(blob(index.manifests[0]), type=_Manifest)
        found = msgspec.json.decode(blob(manifest.config), type=_Image).config or _Config()
        variables = [v for v in found.env or () if _VARIABLE.fullmatch(v)]
    except (OSError, ValueError, IndexError) as e:
        raise RunError(f"the image has no readable configuration: {e}") from e
    directory = PurePosixPath(found.working_dir or "")
    known = directory.is_absolute() and UntrustedDirectory(tree, as_root=True).is_directory(directory)
    return ImageConfig(
        env=dict(v.partition("=")[::2] for v in variables),
        directory=str(directory) if known and directory != PurePosixPath("/") else "",
        user=found.user or "",
        entrypoint=tuple(found.entrypoint or ()),
    )
