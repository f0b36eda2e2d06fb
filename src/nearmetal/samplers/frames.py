"""A file of zstd frames that is only ever appended to: each frame is whole or torn, never half-believed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 1 << 16


def frames(path: Path) -> Iterator[tuple[bytes, int]]:
    """(content, end offset) of every whole frame from the start; stops silently at the first that is torn or
    is no frame. Raises OSError."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    with path.open("rb") as file:
        reader = decompressor.decompressobj()
        parts: list[bytes] = []
        read = 0
        chunk = file.read(_CHUNK)
        while chunk:
            read += len(chunk)
            while chunk:
                try:
                    parts.append(reader.decompress(chunk))
                except zstandard.ZstdError:
                    return
                chunk = b""
                if reader.eof:
                    chunk = reader.unused_data
                    yield b"".join(parts), read - len(chunk)
                    reader, parts = decompressor.decompressobj(), []
            chunk = file.read(_CHUNK)


class FrameWriter:
    """Appends frames; what a killed predecessor left half-written at the end is cut off first.
    Raises OSError."""

    def __init__(self, path: Path) -> None:
        import zstandard

        self._compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._end = max((end for _, end in frames(path)), default=0)
            if os.fstat(self._fd).st_size > self._end:
                os.ftruncate(self._fd, self._end)
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, content: bytes) -> None:
        """One frame; of one that does not fit on the disk nothing stays."""
        left = memoryview(self._compressor.compress(content))
        size = len(left)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            os.ftruncate(self._fd, self._end)
            raise
        self._end += size

    def close(self) -> None:
        os.close(self._fd)
