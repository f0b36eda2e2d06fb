"""Describes the machine as an instance sees it at its checkpoint, and checks before a restore whether a
machine is the same in these respects: processor, kernel, mapped files, TCP addresses and memory."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ...host import Host, MissingValue
from ...host.facts.provenance import cpu_flags
from ...model.record import JsonValue

_NOTES, _BUILD_ID = 4, 3
"""Type of the program header for notes (PT_NOTE), and type of the build ID note (NT_GNU_BUILD_ID), from
elf.h."""
_LISTENING, _ESTABLISHED = "0A", "01"
"""States of sockets in /proc/net/tcp: LISTEN and ESTABLISHED."""
_MOST_NAMED = 3


class Answer(StrEnum):
    """The result of a check before a restore.

    FINE: this does not prevent the restore.
    DIFFERS: this machine differs from the source; the restore may fail, or the instance may misbehave.
    PREVENTS: the restore would fail.
    UNKNOWN: this cannot be checked.
    """

    FINE = "fine"
    DIFFERS = "differs"
    PREVENTS = "prevents"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check before a restore.

    subject: what was checked, in one or two words.
    text: what was found, without a full stop.
    remedy: what helps; empty if nothing is needed.
    """

    subject: str
    answer: Answer
    text: str
    remedy: str = ""


def checked(
    subject: str, fine: bool, good: str, bad: str, remedy: str = "", otherwise: Answer = Answer.PREVENTS
) -> Finding:
    """Return the Finding of a check.

    fine: whether it succeeded.
    good, bad: text if it succeeded, and if not.
    otherwise: answer if it did not succeed.
    """
    if fine:
        return Finding(subject=subject, answer=Answer.FINE, text=good)
    return Finding(subject=subject, answer=otherwise, text=bad, remedy=remedy)


def describe(host: Host, processes: Sequence[int]) -> dict[str, JsonValue]:
    """Describe the machine as the processes of an instance see it, for compare().

    Files and addresses are included only if a process shares the mount or network namespace of this process.
    Those of a container are restored with it.

    processes: PIDs of the instance.
    """
    found: dict[str, JsonValue] = {
        "kernel": os.uname().release,
        "architecture": os.uname().machine,
        "flags": " ".join(sorted(cpu_flags(host))),
    }
    files: dict[str, JsonValue] = {}
    addresses: list[JsonValue] = []
    for pid in processes:
        with contextlib.suppress(OSError):
            if _shares(pid, "mnt"):
                for path in _mapped(pid):
                    files[path] = [Path(path).stat().st_size, build_id(Path(path))]
            if _shares(pid, "net"):
                addresses += (a for a in _addresses(pid) if a not in addresses)
    return found | {"files": files, "addresses": addresses}


def compare(machine: Mapping[str, JsonValue], host: Host, memory: int) -> Iterator[Finding]:
    """Compare this machine with a description, and yield the result of each check.

    machine: description from describe(); empty for a checkpoint without one.
    memory: size in bytes of the memory that the instance needs.
    """
    if not machine:
        text = "the checkpoint does not say on which machine it was written"
        yield Finding(subject="machine", answer=Answer.UNKNOWN, text=text)
    else:
        yield from _processor(machine, host)
        yield _files(machine)
        yield from _taken(machine)
    yield _memory(host, memory)


def _processor(machine: Mapping[str, JsonValue], host: Host) -> Iterator[Finding]:
    here = os.uname()
    if machine.get("architecture") != here.machine:
        yield Finding(
            subject="processor",
            answer=Answer.PREVENTS,
            text=f"it was written on {machine.get('architecture')}, and this machine is {here.machine}",
            remedy="restore it on a machine of that kind",
        )
    else:
        lacking = sorted(set(str(machine.get("flags", "")).split()) - cpu_flags(host))
        yield checked(
            "processor",
            not lacking,
            "it has all features of the one where the instance was written",
            f"this one lacks {_some(lacking)}, which the instance may use",
            "restore it on a processor with these features",
            Answer.DIFFERS,
        )
    same = machine.get("kernel") == here.release
    good, bad = "as where it was written", f"and was {machine.get('kernel')} where it was written"
    release = f"it is {here.release}, "
    yield checked("kernel", same, release + good, release + bad, otherwise=Answer.DIFFERS)


def _files(machine: Mapping[str, JsonValue]) -> Finding:
    files = machine.get("files")
    assert isinstance(files, Mapping)
    missing, other = [], []
    for name, seen in files.items():
        try:
            now: list[JsonValue] = [Path(name).stat().st_size, build_id(Path(name))]
        except OSError:
            missing.append(name)
            continue
        if now != seen:
            other.append(name)
    good = f"all {len(files)} mapped files are here, and the same" if files else "the instance brings its own"
    lacks = f"missing: {_some(missing)}" if missing else ""
    differs = f"of another build: {_some(other)}" if other else ""
    bad = "; ".join(filter(None, (lacks, differs)))
    remedy = "install the same versions as where it was written"
    return checked("programs and libraries", not bad, good, bad, remedy)


def _taken(machine: Mapping[str, JsonValue]) -> Iterator[Finding]:
    addresses = machine.get("addresses")
    assert isinstance(addresses, Sequence)
    free = True
    for address in map(str, addresses):
        host, _, port = address.removesuffix(" listening").rpartition(":")
        why = _bound(host, int(port) if address.endswith(" listening") else 0)
        if why:
            free = False
            yield Finding(
                subject="address",
                answer=Answer.PREVENTS,
                text=f"{address}: {why}",
                remedy="end the program that uses it, or give this machine the address",
            )
    if addresses and free:
        yield Finding(subject="addresses", answer=Answer.FINE, text=f"{', '.join(map(str, addresses))}: free")


def _bound(address: str, port: int) -> str:
    """Return why a TCP socket cannot be bound to an address and a port here; empty if it can.

    port: 0 to check only the address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                return "another program uses it"
            return f"this machine does not have it ({e.strerror})"
    return ""


def _memory(host: Host, memory: int) -> Finding:
    read = host.read("/proc/meminfo")
    found = None if isinstance(read, MissingValue) else re.search(rb"^MemAvailable:\s+(\d+)", read, re.M)
    if found is None:
        return Finding(
            subject="memory", answer=Answer.UNKNOWN, text="/proc/meminfo does not say what is free"
        )
    free = int(found[1]) << 10
    text = f"it needs {memory >> 20} MiB, and {free >> 20} MiB are available"
    remedy = "end other programs, or take a machine with more memory"
    return checked("memory", free >= memory, text, text, remedy)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _shares(pid: int, kind: str) -> bool:
    """Return whether a process is in the same namespace as this process.

    kind: kind of the namespace: 'mnt' or 'net'.
    """
    return Path(f"/proc/{pid}/ns/{kind}").readlink() == Path(f"/proc/self/ns/{kind}").readlink()


def _mapped(pid: int) -> Iterator[str]:
    """Yield the paths of the regular files that a process has mapped."""
    seen = set()
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[5] if line.count(" ") >= 5 and "/" in line else ""
        if path.startswith("/") and not path.endswith(" (deleted)") and path not in seen:
            seen.add(path)
            if Path(path).is_file():
                yield path


def _addresses(pid: int) -> Iterator[str]:
    """Yield the local addresses of a process's TCP sockets, 'ADDRESS:PORT', with ' listening' for listening
    ones."""
    own = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(str(entry.readlink()))
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state in (_LISTENING, _ESTABLISHED) and f"socket:[{rest[5]}]" in own:
                    yield address(local, family) + (" listening" if state == _LISTENING else "")


def address(text: str, family: int) -> str:
    """Convert an address of /proc/net/tcp or tcp6 to 'ADDRESS:PORT'.

    family: AF_INET or AF_INET6.
    """
    digits, _, port = text.partition(":")
    words = struct.unpack(f">{len(digits) // 8}I", bytes.fromhex(digits))
    host = socket.inet_ntop(family, struct.pack(f"<{len(words)}I", *words))
    return f"{host}:{int(port, 16)}"


def build_id(path: Path) -> str:
    """Return the build ID of a 64-bit little-endian ELF file in hexadecimal. Empty for a file without
    a build ID and for other kinds of files."""
    with contextlib.suppress(OSError, struct.error), path.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return ""
        (begin,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        for number in range(count):
            file.seek(begin + number * size)
            kind, _, offset, _, _, length = struct.unpack("<IIQQQQ", file.read(40))
            if kind == _NOTES:
                file.seek(offset)
                found = _build_id(file.read(length))
                if found:
                    return found
    return ""


def _build_id(notes: bytes) -> str:
    at = 0
    while at + 12 <= len(notes):
        name, size, kind = struct.unpack_from("<III", notes, at)
        content = at + 12 + (name + 3) // 4 * 4
        if kind == _BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[content : content + size].hex()
        at = content + (size + 3) // 4 * 4
    return ""
