"""Stores the folded pieces of long runs in the user's cache; a piece holds one value per block for part of
the records. When `analyze`, `report`, `compare` or `resume` analyses the same records again, the pieces are
read instead of being computed.

A piece is found by the digest of its records, so that it can never be out of date. A piece is not used if it
is damaged, was written by another version of the program, or belongs to another user."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ..analysis.fold.pieces import FoldRequest, Piece
from ..host.runtime import cache_directory

MOST_BYTES = 1 << 30
"""Largest size of the cache. The pieces that were used least recently are removed."""
_PACKAGE = Path(__file__).parent.parent
_SOURCES = (
    *("analysis/fold/*.py", "analysis/intervals/variance_components.py"),
    *("model/*.py", "records/codec.py"),
)
"""Files of this package that determine the content of a piece."""


@dataclass(frozen=True, kw_only=True)
class PieceCache:
    """The stored pieces of one request, written by one version of the program.

    directory: holds the pieces of all requests.
    request: text of the request and of the version.
    """

    directory: Path
    request: str

    def name(self, used: Iterable[bytes], others: Iterable[bytes]) -> str:
        """Return the file name of the piece that was computed from these lines: a digest of them and of the
        request."""
        digest = hashlib.sha256(self.request.encode())
        for lines in (used, others):
            for line in lines:
                digest.update(line)
            digest.update(b"\n\n")
        return digest.hexdigest()

    def read(self, name: str) -> Piece | None:
        """Return a piece; None if it is not stored, or cannot be trusted."""
        path = self.directory / name
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                facts = os.fstat(fd)
                if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                    return None
                digest, content = file.read(hashlib.sha256().digest_size), file.read()
        except OSError:
            return None
        if hashlib.sha256(content).digest() != digest:
            return None
        with suppress(OSError):
            os.utime(path)
        found = pickle.loads(content)
        return found if isinstance(found, Piece) else None

    def write(self, name: str, piece: Piece) -> None:
        """Store a piece. If the cache cannot be written, nothing is stored."""
        content = pickle.dumps(piece, protocol=pickle.HIGHEST_PROTOCOL)
        with suppress(OSError):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd, temporary = tempfile.mkstemp(dir=self.directory)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(hashlib.sha256(content).digest())
                    file.write(content)
                Path(temporary).replace(self.directory / name)
            except OSError:
                Path(temporary).unlink()
                raise

    def shrink(self) -> None:
        """Remove the pieces that were used least recently, until the rest has at most MOST_BYTES."""
        with suppress(OSError):
            left = MOST_BYTES
            facts = [(path, path.stat()) for path in self.directory.iterdir()]
            for path, fact in sorted(facts, key=lambda each: -each[1].st_mtime):
                left -= fact.st_size
                if left < 0:
                    path.unlink(missing_ok=True)


def piece_cache(request: FoldRequest) -> PieceCache:
    """Return the stored pieces of a request that this version of the program can use."""
    quantiles = sorted((workload, sorted(metrics)) for workload, metrics in request.quantiles.items())
    rest = (request.comparisons, request.seed, request.detail)
    return PieceCache(directory=cache_directory() / "folded", request=f"{_version()} {quantiles!r} {rest!r}")


@cache
def _version() -> str:
    digest = hashlib.sha256(f"{version('numpy')} {pickle.HIGHEST_PROTOCOL}".encode())
    for pattern in _SOURCES:
        for path in sorted(_PACKAGE.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()
