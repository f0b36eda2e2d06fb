"""Checksums and the RO-Crate 1.1 description of a closed results directory."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import quote

from ..errors import RecordsError
from ..host.durable import is_temporary
from ..host.untrusted import UntrustedDirectory
from .disk import resume_line

SUMS, CRATE = "SHA256SUMS", "ro-crate-metadata.json"
_MARK = "\\"
MOST_BYTES = 64 << 30
"""Largest size of all files whose checksums are computed."""

_FORMATS = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".tex": "application/x-tex",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".zst": "application/zstd",
}


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Result of a check of all files; paths are relative to the directory.

    changed: files whose contents have changed since the directory was closed.
    missing: files that no longer exist.
    unlisted: files without a checksum, which were added later (for example a report).
    """

    checked: int
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    unlisted: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.changed and not self.missing


def files_below(directory: UntrustedDirectory) -> list[str]:
    """Return the relative paths of all regular files, sorted. Temporary files left by an ended process are
    left out."""
    return sorted(name for name in directory.files() if not is_temporary(PurePath(name).name))


def write_sums(directory: UntrustedDirectory) -> None:
    """Write SHA256SUMS in the format of sha256sum(1), so that `sha256sum -c SHA256SUMS` can check it too."""
    digests = _digests(directory, (name for name in files_below(directory) if name != SUMS))
    lines = (_line(digest, name) for name, digest in digests.items())
    directory.replace_file(SUMS, os.fsencode("".join(lines)))


def _line(digest: str, name: str) -> str:
    """Return the line of a file. Like sha256sum, escape backslashes and line feeds in the name, and mark the
    line then by a backslash."""
    escaped = name.replace("\\", r"\\").replace("\n", r"\n")
    return f"{_MARK if escaped != name else ''}{digest}  {escaped}\n"


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], name)


def verify_sums(directory: UntrustedDirectory) -> Verification:
    """Check all files.

    Raises RecordsError if there is no SHA256SUMS, or if one of its lines is not a checksum.
    """
    try:
        sums = _read_sums(directory)
        there = set(files_below(directory)) - {SUMS}
        digests = _digests(directory, (name for name in sums if name in there))
    except FileNotFoundError as e:
        raise RecordsError(
            f"not closed: no {SUMS}",
            where=str(directory.path),
            remedy=f"{resume_line(directory.path)} ends the run",
        ) from e
    except OSError as e:
        raise RecordsError(
            f"cannot be checked: {e.strerror or e}",
            where=e.filename or str(directory.path),
            remedy=f"check the other files by hand: sha256sum -c {SUMS}",
        ) from e
    return Verification(
        checked=len(sums),
        changed=tuple(name for name, digest in digests.items() if digest != sums[name]),
        missing=tuple(n for n in sums if n not in there),
        unlisted=tuple(sorted(there - sums.keys())),
    )


def _read_sums(directory: UntrustedDirectory) -> dict[str, str]:
    """Return the digests in SHA256SUMS by name. Raises OSError, and RecordsError for a line that is not a
    checksum."""
    sums: dict[str, str] = {}
    for number, text in enumerate(directory.lines(SUMS), 1):
        line = os.fsdecode(text).removesuffix("\n")
        unmarked = line.removeprefix(_MARK)
        digest, gap, name = unmarked[:64], unmarked[64:66], unmarked[66:]
        if gap != "  " or not name:
            raise RecordsError(
                "not a checksum line",
                where=f"{directory.path_to(SUMS)}:{number}",
                remedy="take the file from a copy",
            )
        sums[_unescaped(name) if unmarked != line else name] = digest
    return sums


def write_crate(directory: UntrustedDirectory, *, study: str, created: float) -> None:
    """Write ro-crate-metadata.json: the descriptor, the root data set and one entity per file
    (https://www.researchobject.org/ro-crate/specification/1.1/).

    study: name of the study.
    created: Unix seconds when the run was planned.
    """
    files = [n for n in files_below(directory) if n not in (SUMS, CRATE)]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": directory.path.name,
        "description": f"Raw measurements of the nearmetal study '{study}': one JSON line per trial, the"
        " study, the plan with its seed, the provenance of the machine, and what the samplers saw",
        "datePublished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "dateCreated": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created)),
        "license": "Not stated; ask the owner of the data",
        "hasPart": [{"@id": _address(n)} for n in files],
    }
    descriptor = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    entities = [_file_entity(directory, n) for n in files]
    crate = {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": [descriptor, root, *entities]}
    directory.replace_file(CRATE, json.dumps(crate, indent=1).encode() + b"\n")


def _file_entity(directory: UntrustedDirectory, name: str) -> dict[str, str]:
    size = directory.status(name).st_size
    entity = {"@id": _address(name), "@type": "File", "name": name, "contentSize": str(size)}
    if (suffix := PurePath(name).suffix) in _FORMATS:
        entity["encodingFormat"] = _FORMATS[suffix]
    return entity


def _address(name: str) -> str:
    """Return the name of a file as a relative URI. Names that are not UTF-8 are supported."""
    return quote(os.fsencode(name))


def _digests(directory: UntrustedDirectory, names: Iterable[str]) -> dict[str, str]:
    """Return the digest of each file. Raises OSError, also if the files are too large."""
    digests, left = {}, MOST_BYTES
    for name in names:
        with directory.open_file(name) as file:
            left -= os.fstat(file.fileno()).st_size
            if left < 0:  # a planted sparse file needs no space on the disk, but hours to read
                what = f"has more than {MOST_BYTES >> 30} GiB with the files before it"
                raise OSError(errno.EFBIG, what, str(directory.path_to(name)))
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests
