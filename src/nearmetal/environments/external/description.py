"""Reads and writes the description of a checkpoint, which is data that somebody else may have made: it
contains no command and no option, and says by a signature whether this user has made it."""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec

from ...host.durable import sync_directory
from ...host.runtime import user_state
from ...host.untrusted import UntrustedDirectory
from ...lifecycle import Method
from .contract import Saved
from .disk import write_note

_KEY, _LONGEST_KEY = "checkpoint.key", 4096
_ROUND = re.compile(r"(?:\.\./)?round-\d+/?")
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class _Machine(msgspec.Struct, forbid_unknown_fields=True):
    """See machine.describe()."""

    kernel: str = ""
    architecture: str = ""
    flags: str = ""
    files: dict[str, tuple[int, str]] = {}
    addresses: list[str] = []


class _Description(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a description. signature: see _sign(); older ones have none."""

    instance: str
    method: Method
    own: dict[str, str]
    machine: _Machine
    files: dict[str, int]
    signature: str = ""


class DescriptionError(ValueError):
    """A description is damaged, or contains what no description contains."""


def text_of(saved: Saved, sizes: Mapping[str, int]) -> str:
    """Return a signed description.

    sizes: bytes of each file of the checkpoint.
    """
    description = {
        "instance": saved.name,
        "method": saved.method.value,
        "own": dict(saved.own),
        "machine": dict(saved.machine),
        "files": dict(sizes),
    }
    return f"{json.dumps({**description, 'signature': _sign(description, make_key=True)}, indent=2)}\n"


def read_description(directory: Path, name: str) -> tuple[Saved, dict[str, int], bool]:
    """Read a description. Returns it, the bytes of each file, and whether this user has signed it.

    Raises OSError if it cannot be read, DescriptionError if it is damaged.
    """
    content = UntrustedDirectory(directory).read_bytes(name)
    try:
        read = msgspec.json.decode(content, type=_Description)
        raw: dict[str, Any] = msgspec.json.decode(content)
        for text in read.machine.addresses:
            address, _, port = text.removesuffix(" listening").rpartition(":")
            ip_address(address)
            if not 0 <= int(port) < 1 << 16:
                raise ValueError(f"no address: {text!r}")
    except ValueError as e:
        raise DescriptionError(str(e)) from e
    signature = str(raw.pop("signature", ""))
    saved = Saved(name=read.instance, method=read.method, own=read.own, machine=raw["machine"])
    return saved, read.files, bool(signature) and hmac.compare_digest(_sign(raw).encode(), signature.encode())


def require_plain(directory: Path) -> None:
    """Check that a checkpoint contains only files and directories, apart from the links that CRIU makes
    between pre-copy rounds. CRIU would follow other links out of the directory, and wait for a FIFO.

    Raises DescriptionError, or OSError.
    """
    for path, status in entries_of(directory):
        round_before = stat.S_ISLNK(status.st_mode) and path.name == "parent"
        if round_before and _ROUND.fullmatch(str((directory / path).readlink())):
            continue
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise DescriptionError(f"{path} is neither a file nor a directory")


def find_stranger(directory: Path) -> str:
    """Return who else than this user and root may have written files of a checkpoint, as part of a message;
    '' for nobody. Raises OSError."""
    for path, status in ((Path(), directory.stat()), *entries_of(directory)):
        if status.st_uid not in (os.geteuid(), 0):
            return f"{directory / path} belongs to user {status.st_uid}"
        if status.st_mode & _WRITABLE and not stat.S_ISLNK(status.st_mode):
            return f"other users may write to {directory / path}"
    return ""


def entries_of(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the relative path and the status of everything in the directory of a checkpoint, which contains
    one more level of directories. Links are not followed. Raises OSError."""
    root = UntrustedDirectory(directory)
    for name in root.names():
        status = (directory / name).lstat()
        yield Path(name), status
        if stat.S_ISDIR(status.st_mode):
            for inner in root.names(name):
                yield Path(name, inner), (directory / name / inner).lstat()


def _sign(description: Mapping[str, Any], *, make_key: bool = False) -> str:
    """Return a signature that only this user can make, by a key in the user's directory for lasting data; ''
    if there is no key."""
    try:
        key = _key(make=make_key)
    except OSError:
        return ""
    return hmac.digest(key, json.dumps(description, sort_keys=True).encode(), "sha256").hex()


def _key(*, make: bool) -> bytes:
    directory = user_state() / "nearmetal"
    own = UntrustedDirectory(directory)
    if make and own.stat(_KEY) is None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Complete when it gets its name: another command may read it at once.
        aside = directory / f".{_KEY}-{os.getpid()}"
        write_note(aside, secrets.token_hex())
        with suppress(FileExistsError):
            os.link(aside, directory / _KEY)
        aside.unlink()
        sync_directory(directory)
    return own.read_own(_KEY, _LONGEST_KEY)
