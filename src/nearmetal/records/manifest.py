"""Checksums and the RO-Crate 1.1 description of a closed results directory."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ..errors import RecordsError
from .disk import resume_line, write_file

SUMS, CRATE = "SHA256SUMS", "ro-crate-metadata.json"
_MARK = "\\"

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


def files_below(directory: Path) -> list[str]:
    """Return the relative paths of all regular files, sorted. Temporary files left by an ended process are
    left out."""
    return sorted(
        p.relative_to(directory).as_posix()
        for p in directory.rglob("*")
        if p.is_file() and not p.is_symlink() and not (p.name.startswith(".") and p.name.endswith(".tmp"))
    )


def write_sums(directory: Path) -> None:
    """Write SHA256SUMS in the format of sha256sum(1), so that `sha256sum -c SHA256SUMS` can check it too."""
    lines = [_line(_digest(directory / name), name) for name in files_below(directory) if name != SUMS]
    write_file(directory / SUMS, os.fsencode("".join(lines)))


def _line(digest: str, name: str) -> str:
    """Return the line of a file. Like sha256sum, escape backslashes and line feeds in the name, and mark the
    line then by a backslash."""
    escaped = name.replace("\\", r"\\").replace("\n", r"\n")
    return f"{_MARK if escaped != name else ''}{digest}  {escaped}\n"


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], name)


def verify_sums(directory: Path) -> Verification:
    """Check all files.

    Raises RecordsError if there is no SHA256SUMS, or if one of its lines is not a checksum.
    """
    file = directory / SUMS
    try:
        # Not splitlines(), which also splits at other characters that a name may contain.
        lines = os.fsdecode(file.read_bytes()).removesuffix("\n").split("\n")
    except OSError as e:
        raise RecordsError(
            f"not closed: no {SUMS}", where=str(directory), remedy=f"{resume_line(directory)} ends the run"
        ) from e
    sums: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        unmarked = line.removeprefix(_MARK)
        digest, gap, name = unmarked[:64], unmarked[64:66], unmarked[66:]
        if gap != "  " or not name:
            raise RecordsError("not a checksum line", where=f"{file}:{number}")
        sums[_unescaped(name) if unmarked != line else name] = digest
    there = set(files_below(directory)) - {SUMS}
    return Verification(
        checked=len(sums),
        changed=tuple(n for n in sums if n in there and _digest(directory / n) != sums[n]),
        missing=tuple(n for n in sums if n not in there),
        unlisted=tuple(sorted(there - sums.keys())),
    )


def write_crate(directory: Path, *, study: str, created: float) -> None:
    """Write ro-crate-metadata.json: the descriptor, the root data set and one entity per file
    (https://www.researchobject.org/ro-crate/specification/1.1/).

    study: name of the study.
    created: Unix seconds when the run was planned.
    """
    files = [n for n in files_below(directory) if n not in (SUMS, CRATE)]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": directory.name,
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
    write_file(directory / CRATE, json.dumps(crate, indent=1).encode() + b"\n")


def _file_entity(directory: Path, name: str) -> dict[str, str]:
    path = directory / name
    entity = {"@id": _address(name), "@type": "File", "name": name, "contentSize": str(path.stat().st_size)}
    if path.suffix in _FORMATS:
        entity["encodingFormat"] = _FORMATS[path.suffix]
    return entity


def _address(name: str) -> str:
    """Return the name of a file as a relative URI. Names that are not UTF-8 are supported."""
    return quote(os.fsencode(name))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
