"""Finds the user's programs whose files are on a disk in one environment and in memory in another, and
suggests what to do about it.

Such a comparison would compare disk with memory, not the environments."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from ..model.environments.environment import STORAGE, STORAGE_VARIABLE
from ..model.record import JsonValue
from ..model.study import Arm, CommandWorkload, StorageKind, Study
from ..node.trial import DiskWrites
from ..units import show

LEAST_BYTES, LEAST_RATE = 64 << 10, 128 << 10
"""Bytes per run, and bytes per second, below which writes to a disk are assumed to be a log or a small
result. A program that mainly computes is not refused because of them."""
FEWER = 0.1
"""A program's files are assumed to be in memory if it writes less than this fraction of the other
environment's bytes to a disk."""
UNCOUNTED = ("9p", "virtiofs", "fuse")
"""File systems, by prefix of their type, whose writes the kernel does not count as disk writes."""
_OTHER_STORAGE = (
    "storage: {kind: bind, path: /var/tmp} for bare metal and containers, for a virtual machine "
    "storage: {kind: overlay} with guest: {writable: 4 GiB}"
)


def unlike_storage(
    study: Study, writes: Mapping[str, Mapping[str, DiskWrites]], mounts: Mapping[str, JsonValue]
) -> dict[str, str]:
    """Return {arm: reason} for the arms in which the files of a program are in memory while those in the
    baseline are on a disk, or vice versa.

    writes: by arm and workload, the bytes that the programs wrote to disks in the rehearsal.
    mounts: by arm, the mount that contains the working directory: node.storage.mounted_at().

    A tmpfs that the study requests as storage is accepted for a program that refers to the storage.
    """
    arms = {arm.name: arm for arm in study.arms()}
    counted = {name: found for name, found in writes.items() if not _uncounted(mounts.get(name))}
    reasons: dict[str, str] = {}
    for pair in study.comparisons():
        own, base = counted.get(pair.arm, {}), counted.get(pair.baseline, {})
        for w in study.commands:
            if pair.arm in reasons or w.name not in own or w.name not in base:
                continue
            on_disk, in_memory = sorted(
                ((pair.arm, own[w.name]), (pair.baseline, base[w.name])),
                key=lambda side: side[1].bytes,
                reverse=True,
            )
            if _unlike(on_disk[1], in_memory[1]) and not _requested(w, arms[in_memory[0]]):
                size = show(on_disk[1].bytes, "B", binary=True)
                reasons[pair.arm] = (
                    f"{w.name} writes {size} in each run, to a disk in {on_disk[0]} and to memory in "
                    f"{in_memory[0]}"
                )
    return reasons


def _uncounted(mount: JsonValue) -> bool:
    return isinstance(mount, dict) and str(mount.get("filesystem")).startswith(UNCOUNTED)


def _unlike(more: DiskWrites, less: DiskWrites) -> bool:
    matters = more.bytes >= LEAST_BYTES and more.bytes >= LEAST_RATE * more.seconds
    return matters and less.bytes < FEWER * more.bytes


def _requested(workload: CommandWorkload, arm: Arm) -> bool:
    storage = arm.environment.storage
    refers = bool(workload.storage_name)
    return refers and storage is not None and storage.kind is StorageKind.TMPFS


def storage_remedy(study: Study, command: str, directory: Path, written: Collection[str]) -> str:
    """Return how to let the user's programs write to a disk in every environment. For the command `weigh`,
    this is the command line to run instead.

    command: the command line that started the run.
    directory: its working directory.
    written: files that the programs wrote there, by their paths relative to it.
    """
    refers = any(w.storage_name for w in study.commands)
    words = shlex.split(command)
    own = words[words.index("--") + 1 :] if "--" in words else []
    if refers or not any(own == list(w.argv) for w in study.commands):
        return (
            f"let every environment have its storage on a disk: {_OTHER_STORAGE}"
            if refers
            else f"write into {STORAGE}, and let it be on a disk: {_OTHER_STORAGE}"
        )
    head = words[: len(words) - len(own)]
    redirected = [own[0], *(_into_storage(word, written) for word in own[1:])]
    if redirected == own:
        redirected = [
            *("sh", "-c", f'cd "${STORAGE_VARIABLE}" && exec "$0" "$@"'),
            *(_absolute(word, directory) for word in own),
        ]
    return shlex.join([*head, *redirected])


def _into_storage(word: str, written: Collection[str]) -> str:
    """Return an argument in which the name of a written file is replaced by a path in the storage; the name
    may follow '=', as in of=out."""
    option, equals, value = word.rpartition("=")
    path = Path(value)
    return f"{option}{equals}{STORAGE}/{path.name}" if value and str(path) in written else word


def _absolute(word: str, directory: Path) -> str:
    """Return an argument, with the name of a file in the working directory replaced by its absolute path."""
    path = directory / word
    if not word or word.startswith(("-", "/")) or path == directory:
        return word
    with suppress(OSError):  # an argument that cannot be a file name, such as a long script
        return str(path) if path.exists() else word
    return word
