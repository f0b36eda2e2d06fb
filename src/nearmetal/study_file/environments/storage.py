"""Check the storage of environments: its keys, and whether workloads that need it have it. Mistakes are added
to problems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...model.study import CommandWorkload, Environment, KernelWorkload, Storage, StorageKind, Workload
from ..tree import Located

#: By kind of storage: the required keys, and the optional ones.
_STORAGE_KEYS: Mapping[StorageKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    StorageKind.OVERLAY: ((), ()),
    StorageKind.BIND: (("path",), ()),
    StorageKind.TMPFS: ((), ("size",)),
    StorageKind.LOOP: (("size",), ("path",)),
    StorageKind.BLOCK: (("path",), ("overwrite",)),
    StorageKind.NFS: (("path",), ()),
}


def check_storage(section: Storage, found: Located) -> None:
    """Check that a storage has the keys of its kind and a valid path."""
    must, may = _STORAGE_KEYS[section.kind]
    storage = found.get("storage")
    given = storage.entries if storage is not None else {}
    for key in given:
        if key in ("path", "size", "overwrite") and key not in (*must, *may):
            found.mistake(("storage", key), f"storage {section.kind} has no {key}", key=True)
    for key in must:
        if key not in given:
            found.mistake(("storage",), f"storage {section.kind} needs its {key}", key=True)
    if section.path is not None and "path" in (*must, *may):
        export = section.kind is StorageKind.NFS
        if not re.fullmatch(r"[^-/\s,][^/\s,]*:/[^\s,]*" if export else r"/[^,\n]*", section.path):
            wanted = "server:/directory" if export else "an absolute path without a comma"
            found.mistake(("storage", "path"), f'"{section.path[:60]}" is not {wanted}')


def check_storage_references(
    section: Environment, found: Located, workloads: Iterable[Workload | None], writers: frozenset[str]
) -> None:
    """Check that an environment has storage if one of its programs refers to the storage, or a kernel needs
    it.

    writers: kernels that need storage.
    """
    if section.storage is not None or found.unread("storage"):
        return
    for w in workloads:
        if w is None or not section.takes(w.name):
            continue
        if isinstance(w, CommandWorkload) and w.storage_name:
            why = f"refers to storage ({w.storage_name})"
        elif isinstance(w, KernelWorkload) and w.kernel in writers:
            why = "writes to storage"
        else:
            continue
        found.mistake((), f'"{w.name}" {why}; write storage: {{kind: overlay}}, or another')
        return
