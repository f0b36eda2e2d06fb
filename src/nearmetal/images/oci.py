"""Writes an image as an archive that podman, Docker, skopeo and umoci can read: it is both an OCI image
layout (index.json) and a Docker archive (manifest.json)."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from datetime import UTC, datetime
from pathlib import Path

from ..model.record import JsonValue

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "loongarch64": "loong64"}
"""Names of architectures: the kernel's -> Go's, which images use. Architectures with equal names are left
out."""
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OCI = "application/vnd.oci.image"


def write_oci(layer: Path, archive: Path, name: str, epoch: int) -> None:
    """Write an archive of an image with one layer.

    layer: an uncompressed tar file with the tree.
    archive: path of the archive, which must not exist.
    name: name under which programs load the image.
    epoch: date of all entries in Unix seconds.
    Raises OSError.
    """
    created = datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z")
    reference = f"localhost/{name.lower()}:latest"
    layer_digest, layer_size = _digest_of(layer), layer.stat().st_size
    config = _json(
        {
            "created": created,
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Env": [PATH], "Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            "history": [{"created": created, "created_by": "nearmetal"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor(f"{_OCI}.config.v1+json", _sha(config), len(config)),
            "layers": [_descriptor(f"{_OCI}.layer.v1.tar", layer_digest, layer_size)],
        }
    )
    index = _json(
        {
            "schemaVersion": 2,
            "manifests": [
                {
                    **_descriptor(f"{_OCI}.manifest.v1+json", _sha(manifest), len(manifest)),
                    "annotations": {
                        "io.containerd.image.name": reference,
                        "org.opencontainers.image.ref.name": "latest",
                    },
                }
            ],
        }
    )
    docker = _json(
        [{"Config": _blob(_sha(config)), "RepoTags": [reference], "Layers": [_blob(layer_digest)]}]
    )
    with tarfile.open(archive, "x", format=tarfile.PAX_FORMAT) as out:
        for text, file in (
            (_json({"imageLayoutVersion": "1.0.0"}), "oci-layout"),
            (index, "index.json"),
            (docker, "manifest.json"),
            (config, _blob(_sha(config))),
            (manifest, _blob(_sha(manifest))),
        ):
            out.addfile(_member(file, len(text), epoch), io.BytesIO(text))
        with layer.open("rb") as content:  # trusted: of the store
            out.addfile(_member(_blob(layer_digest), layer_size, epoch), content)


def _member(name: str, size: int, epoch: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, epoch, 0o644
    return member


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _descriptor(kind: str, digest: str, size: int) -> dict[str, JsonValue]:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _json(value: JsonValue) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _sha(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _digest_of(file: Path) -> str:
    with file.open("rb") as content:  # trusted: of the store
        return hashlib.file_digest(content, "sha256").hexdigest()
