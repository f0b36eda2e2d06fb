"""Reads and appends files of zstd frames. Next to such a file may be a file of raw lines, which are appended
as frames later."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..host.untrusted import UntrustedDirectory

MOST_BYTES = 64 << 20
"""Largest uncompressed size of a frame: samples of hours."""
_CHUNK = 1 << 9
"""Bytes that are uncompressed at once. They become 16 MiB at most, so that memory is bounded."""


def raw_beside(path: Path) -> Path:
    """Return the path of the raw lines for a file of frames: x.jsonl next to x.jsonl.zst."""
    return path.with_suffix("")


def frames(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield (uncompressed content, end offset in the file) of every frame. Stops without an error at the
    first incomplete or invalid frame. Closes the file.

    Raises OSError, also if a frame has more than MOST_BYTES.
    """
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    with file:
        reader = decompressor.decompressobj()
        parts: list[bytes] = []
        read, size = 0, 0
        while chunk := file.read(_CHUNK):
            read += len(chunk)
            while chunk:
                try:
                    parts.append(reader.decompress(chunk))
                except zstandard.ZstdError:
                    return
                size += len(parts[-1])
                if size > MOST_BYTES:
                    raise OSError(errno.EFBIG, f"has a frame of more than {MOST_BYTES >> 20} MiB")
                chunk = b""
                if reader.eof:
                    chunk = reader.unused_data
                    yield b"".join(parts), read - len(chunk)
                    reader, parts, size = decompressor.decompressobj(), [], 0


def whole_lines(file: BinaryIO, size: int, last: bytes) -> Iterator[bytes]:
    """Yield the lines of a file in pieces of about `size` bytes. An incomplete last line is left out.

    Yields nothing if the file ends with the line `last`, the last line that was appended as a frame: all its
    lines were then appended, but a killed process has not removed the file.
    """
    file.seek(max(0, file.seek(0, os.SEEK_END) - len(last)))
    if last and file.read() == last:
        return
    file.seek(0)
    rest = b""
    while piece := file.read(size):
        piece = rest + piece
        end = piece.rfind(b"\n") + 1
        rest = piece[end:]
        if end:
            yield piece[:end]


class FrameWriter:
    """Appends frames to a file. If a killed writer has left an incomplete frame at its end, this frame is
    removed when the file is opened.

    last: the last line in the file; empty if the file has none.
    Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        import zstandard

        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        self._fd = UntrustedDirectory.part(path.parent).open_to_append(path.name)
        self.last = b""
        self._end = 0
        try:
            for content, end in frames(os.fdopen(os.dup(self._fd), "rb")):
                self.last, self._end = _last_line(content), end
            if os.fstat(self._fd).st_size > self._end:
                os.ftruncate(self._fd, self._end)
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, content: bytes) -> None:
        """Append one frame and sync the file.

        Raises OSError, for example if the disk is full. No part of the frame is then kept.
        """
        left = memoryview(self._compressor.compress(content))
        size = len(left)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
            os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._end)
            raise
        self._end += size
        self.last = _last_line(content)

    def close(self) -> None:
        os.close(self._fd)


def _last_line(content: bytes) -> bytes:
    return content[content.rfind(b"\n", 0, -1) + 1 :]
