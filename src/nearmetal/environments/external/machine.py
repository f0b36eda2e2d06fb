"""Reads the properties of a machine that matter to an instance, for compare() of surroundings.py: on this
machine from files, and on another one by one command over ssh."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...errors import UnavailableError
from ...host import Host, text_of
from ...host.facts.provenance import cpu_flags, cpu_flags_in
from ...host.untrusted import UntrustedDirectory
from ...model.record import JsonValue
from .contract import SECONDS
from .surroundings import Build, MachineProperties

_NOTES, _BUILD_ID = 4, 3
"""Type of the program header for notes (PT_NOTE), and type of the build ID note (NT_GNU_BUILD_ID), from
elf.h."""
_LONGEST_NOTE = 1 << 16
_LISTENING, _ESTABLISHED = "0A", "01"
"""States of sockets in /proc/net/tcp: LISTEN and ESTABLISHED."""
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+)", re.MULTILINE)
FACTS = """
printf '%s\\n' "$(uname -r)" "$(uname -m)"
printf '%s\\n' "$(sed -n -e '/^flags/{p;q;}' -e '/^Features/{p;q;}' /proc/cpuinfo)"
printf '%s\\n' "$(sed -n '/^MemAvailable/{p;q;}' /proc/meminfo)"
while read -r offset length && IFS= read -r path; do
    note=
    if [ -f "$path" ]; then
        set -- "$@" "$path"
        [ "$length" = 0 ] || note=$(od -A n -v -t x1 -j "$offset" -N "$length" "$path" 2>/dev/null)
    fi
    echo $note
done
[ $# = 0 ] || stat -L -c '%s %n' -- "$@"
"""
"""Shell script that prints the properties of a machine.

Input: two lines for each file, with the offset and the length of its note, and its path.
Output: four lines with the release of the kernel, the architecture, the CPU flags and the available memory; a
line for each file with its note in hexadecimal; a line for each existing file with its size and its path.

It needs coreutils and sed, which a move needs at the destination anyway."""
_FACT_LINES = 4


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


def read_here(host: Host, source: Mapping[str, JsonValue]) -> MachineProperties:
    """Return the properties of this machine.

    source: description of the source from describe(), which names the files and the addresses.
    """
    files = {}
    for name in _names(source, "files"):
        with contextlib.suppress(OSError):
            files[name] = Build(size=Path(name).stat().st_size, build_id=build_id(Path(name)))
    addresses = {}
    for name in _names(source, "addresses"):
        local, _, port = name.removesuffix(" listening").rpartition(":")
        addresses[name] = _bound(local, int(port) if name.endswith(" listening") else 0)
    return MachineProperties(
        kernel=os.uname().release,
        architecture=os.uname().machine,
        flags=cpu_flags(host),
        files=files,
        memory=_available(text_of(host, "/proc/meminfo")),
        addresses=addresses,
    )


def read_by_command(host: Host, source: Mapping[str, JsonValue]) -> MachineProperties:
    """Return the properties of another machine, read by one command. Addresses are not tried there.

    host: the other machine.
    source: description of this machine from describe(), which has just been made.

    Raises UnavailableError if the command fails.
    """
    names = _names(source, "files")
    notes = [_note(Path(name)) for name in names]
    asked = "".join(f"{n.offset} {n.length}\n{name}\n" for n, name in zip(notes, names, strict=True))
    done = host.run(["sh", "-c", FACTS], timeout=SECONDS, stdin=asked)
    lines = done.stdout.removesuffix("\n").split("\n")
    end = _FACT_LINES + len(names)
    if not done.ok or len(lines) < end:
        raise UnavailableError(
            f"{host.name} does not report its kernel, processor and libraries: {done.failure()}",
            remedy=f"ssh {host.name} uname -r; ssh {host.name} cat /proc/cpuinfo",
        )
    kernel, architecture, flags, memory = lines[:_FACT_LINES]
    found = dict(zip(names, lines[_FACT_LINES:end], strict=True))
    files = {}
    for line in lines[end:]:
        size, _, name = line.partition(" ")
        files[name] = Build(size=int(size), build_id=_build_id(bytes.fromhex(found[name])))
    return MachineProperties(
        kernel=kernel,
        architecture=architecture,
        flags=cpu_flags_in(flags),
        files=files,
        memory=_available(memory),
    )


def _names(source: Mapping[str, JsonValue], key: str) -> list[str]:
    names = source.get(key, ())
    assert isinstance(names, Mapping | Sequence)
    return [str(name) for name in names]


def _available(meminfo: str) -> int | None:
    found = _AVAILABLE.search(meminfo)
    return None if found is None else int(found[1]) << 10


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


def _shares(pid: int, kind: str) -> bool:
    """Return whether a process is in the same namespace as this process.

    kind: kind of the namespace: 'mnt' or 'net'.
    """
    return Path(f"/proc/{pid}/ns/{kind}").readlink() == Path(f"/proc/self/ns/{kind}").readlink()


def _mapped(pid: int) -> Iterator[str]:
    """Yield the paths of the regular files that a process has mapped."""
    seen = set()
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():  # trusted: of the kernel
        path = line.split(maxsplit=5)[5] if line.count(" ") >= 5 and "/" in line else ""
        if path.startswith("/") and not path.endswith(" (deleted)") and path not in seen:
            seen.add(path)
            if Path(path).is_file():
                yield path


def _addresses(pid: int) -> Iterator[str]:
    """Yield the local addresses of a process's TCP sockets, 'ADDRESS:PORT', with ' listening' for listening
    ones."""
    own = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():  # trusted: of the kernel
        with contextlib.suppress(OSError):
            own.add(str(entry.readlink()))
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/net/{name}").read_text()  # trusted: of the kernel
            for line in text.splitlines()[1:]:
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
    return _note(path).build_id


class _Note(NamedTuple):
    """The segment of an ELF file that contains its build ID: offset and length in bytes. All fields are zero
    or empty if there is none."""

    offset: int = 0
    length: int = 0
    build_id: str = ""


def _note(path: Path) -> _Note:
    # The path may come from a description that somebody else has made.
    directory = UntrustedDirectory(Path("/"), as_root=True)
    with contextlib.suppress(OSError, struct.error, OverflowError), directory.open_file(path) as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return _Note()
        (begin,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        for number in range(count):
            file.seek(begin + number * size)
            kind, _, offset, _, _, length = struct.unpack("<IIQQQQ", file.read(40))
            if kind == _NOTES:
                file.seek(offset)
                found = _build_id(file.read(min(length, _LONGEST_NOTE)))
                if found:
                    return _Note(offset, length, found)
    return _Note()


def _build_id(notes: bytes) -> str:
    at = 0
    while at + 12 <= len(notes):
        name, size, kind = struct.unpack_from("<III", notes, at)
        content = at + 12 + (name + 3) // 4 * 4
        if kind == _BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[content : content + size].hex()
        at = content + (size + 3) // 4 * 4
    return ""
