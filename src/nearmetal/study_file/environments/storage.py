"""Check the storage of environments: its keys, and whether workloads that need it have it. Mistakes are added
to problems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...model.study import CommandWorkload, Environment, KernelWorkload, Storage, StorageKind, Workload
from ..problems import Path, Problems
from ..tree import MapNode, Node, mark_of

#: By kind of storage: the required keys, and the optional ones.
_STORAGE_KEYS: Mapping[StorageKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    StorageKind.OVERLAY: ((), ()),
    StorageKind.BIND: (("path",), ()),
    StorageKind.TMPFS: ((), ("size",)),
    StorageKind.LOOP: (("size",), ("path",)),
    StorageKind.BLOCK: (("path",), ("overwrite",)),
    StorageKind.NFS: (("path",), ()),
}


def check_storage(section: Storage, node: Node, path: Path, problems: Problems) -> None:
    """Check that a storage has the keys of its kind and a valid path."""
    must, may = _STORAGE_KEYS[section.kind]
    storage = node.get("storage") if isinstance(node, MapNode) else None
    given = storage.entries if isinstance(storage, MapNode) else {}
    for key in given:
        if key in ("path", "size", "overwrite") and key not in (*must, *may):
            at: Path = ("storage", key)
            problems.add(mark_of(node, at, key=True), path + at, f"storage {section.kind} has no {key}")
    for key in must:
        if key not in given:
            at = ("storage",)
            problems.add(mark_of(node, at, key=True), path + at, f"storage {section.kind} needs its {key}")
    if section.path is not None and "path" in (*must, *may):
        export = section.kind is StorageKind.NFS
        if not re.fullmatch(r"[^-/\s,][^/\s,]*:/[^\s,]*" if export else r"/[^,\n]*", section.path):
            wanted = "server:/directory" if export else "an absolute path without a comma"
            at = ("storage", "path")
            problems.add(mark_of(node, at), path + at, f'"{section.path[:60]}" is not {wanted}')


def check_storage_references(
    section: Environment,
    node: Node,
    path: Path,
    workloads: Iterable[Workload | None],
    writers: frozenset[str],
    problems: Problems,
) -> None:
    """Check that an environment has storage if one of its programs refers to the storage, or a kernel needs
    it.

    writers: kernels that need storage.
    """
    if section.storage is not None or (*path, "storage") in problems.unread:
        return
    for w in workloads:
        taken = not section.workloads or (w is not None and w.name in section.workloads)
        if not taken or w is None:
            continue
        if isinstance(w, CommandWorkload) and w.storage_name:
            why = f"refers to storage ({w.storage_name})"
        elif isinstance(w, KernelWorkload) and w.kernel in writers:
            why = "writes to storage"
        else:
            continue
        problems.add(
            mark_of(node, ()), path, f'"{w.name}" {why}; write storage: {{kind: overlay}}, or another'
        )
        return
