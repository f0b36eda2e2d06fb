"""Packs and unpacks cpio archives in the "newc" format, from bytes to bytes. All files belong to root and
have no time stamp. The kernel unpacks such archives as an initramfs, and nm-guest unpacks them as files. The
size of a file has 32 bits."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"070701"
_HEADER = 110
_HEAD = re.compile(rb"070701[0-9A-Fa-f]{104}")
_END = "TRAILER!!!"
TOO_LARGE = 1 << 32
"""Bytes from which a file does not fit into an archive."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One file, directory or link of an archive.

    name: path without a leading slash.
    mode: file type and permissions, as in stat.
    data: contents of a file, or the target of a link.
    """

    name: str
    mode: int
    data: bytes = b""


def directory(name: str, mode: int = 0o755) -> Member:
    return Member(name=name, mode=stat.S_IFDIR | mode)


def file(name: str, data: bytes, mode: int = 0o644) -> Member:
    return Member(name=name, mode=stat.S_IFREG | mode, data=data)


def link(name: str, target: str) -> Member:
    return Member(name=name, mode=stat.S_IFLNK | 0o777, data=target.encode(errors="surrogateescape"))


def fifo(name: str, mode: int = 0o600) -> Member:
    return Member(name=name, mode=stat.S_IFIFO | mode)


def pack(members: Iterator[Member] | list[Member]) -> bytes:
    """Pack members into one archive. The kernel accepts several archives, one after the other.

    Raises ValueError for a member of TOO_LARGE bytes or more.
    """
    out = bytearray()
    for number, m in enumerate(members):
        out += _one(m, number + 1)
    out += _one(Member(name=_END, mode=0), 0)
    return bytes(out)


def _one(m: Member, inode: int) -> bytes:
    name = m.name.encode(errors="surrogateescape") + b"\0"
    if len(m.data) >= TOO_LARGE:
        raise ValueError(f"{m.name} has 4 GiB or more, which an archive cannot express")
    fields = (inode, m.mode, 0, 0, 1, 0, len(m.data), 0, 0, 0, 0, len(name), 0)
    head = _MAGIC + b"".join(b"%08x" % f for f in fields) + name
    return _padded(head) + _padded(m.data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def unpack(archive: bytes) -> Iterator[Member]:
    """Yield the members of an archive. Raises ValueError if it is not a complete archive."""
    at = 0
    while True:
        head = archive[at : at + _HEADER]
        if not _HEAD.fullmatch(head):
            raise ValueError("not a whole archive of cpio's newc form")
        fields = [int(head[6 + 8 * i : 14 + 8 * i], 16) for i in range(13)]
        size, length = fields[6], fields[11]
        begin = at + len(_padded(b"\0" * (_HEADER + length)))
        name = archive[at + _HEADER : at + _HEADER + length - 1].decode(errors="surrogateescape")
        if name == _END:
            return
        data = archive[begin : begin + size]
        if len(data) < size:
            raise ValueError("not a whole archive of cpio's newc form")
        yield Member(name=name, mode=fields[1], data=data)
        at = begin + size + -size % 4
