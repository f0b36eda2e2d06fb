"""The storage of an arm's instances: made before they start, mounted into them, and checked from inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from ..environments import Backend, Instance, InstanceRequest
from ..environments.storage import Volume, volume
from ..errors import TrialFailedError
from ..host import Host
from ..host.mounts import parse_mounts
from ..model.record import JsonValue
from ..model.study import Environment, Storage, StorageKind
from .node import Node

LIMIT = 60.0
CHECKED = "65536"
"""Number of bytes that are written, synchronised to the medium and read again to check storage."""

FILE_SYSTEMS: Mapping[StorageKind, frozenset[str]] = {
    StorageKind.TMPFS: frozenset({"tmpfs"}),
    StorageKind.LOOP: frozenset({"ext4"}),
    StorageKind.BLOCK: frozenset({"ext4"}),
    StorageKind.NFS: frozenset({"nfs", "nfs4"}),
}
"""Types of file system that an instance may see at its storage, by kind of storage. Any type is allowed for
the other kinds."""


@contextmanager
def volumes(
    node: Node, environment: Environment, backend: Backend, requests: Sequence[InstanceRequest]
) -> Iterator[tuple[Volume, ...]]:
    """Make one volume for each request; none if the environment does not request storage.

    Raises RunError.
    """
    storage = environment.storage
    if storage is None:
        yield ()
        return
    with ExitStack() as stack:
        yield tuple(
            stack.enter_context(
                volume(
                    node.machine.host,
                    storage,
                    label=r.label,
                    directory=r.scratch.parent / f"{r.scratch.name}-mounts",
                    shared=node.storages.get(storage),
                    own_root="mnt" in backend.capabilities.own,
                )
            )
            for r in requests
        )


def bound(requests: Sequence[InstanceRequest], own: Sequence[Volume]) -> list[InstanceRequest]:
    """Return the requests with their volumes added to the binds, except volumes that are made inside the
    instance."""
    if not own:
        return list(requests)
    return [
        r if v.inside else replace(r, binds=(*r.binds, v.path)) for r, v in zip(requests, own, strict=True)
    ]


def make_inside(host: Host, instances: Sequence[Instance], own: Sequence[Volume]) -> None:
    """Create the volumes that are directories in the instances' own root file systems.

    Raises TrialFailedError.
    """
    for instance, v in zip(instances, own, strict=False):
        if v.inside:
            _run(host, instance, "mkdir", "-p", "-m", "755", str(v.path))


def look(host: Host, instance: Instance, v: Volume, storage: Storage) -> dict[str, JsonValue]:
    """Check the storage of an instance from inside: its file system, and that it can be written, synchronised
    and read. Returns mounted_at() of it.

    Raises TrialFailedError.
    """
    file = str(v.path / "check")
    _run(host, instance, "dd", "if=/dev/urandom", f"of={file}", f"bs={CHECKED}", "count=1", "conv=fsync")
    size = _run(host, instance, "wc", "-c", file).split()[0]
    _run(host, instance, "rm", file)
    if size != CHECKED:
        raise TrialFailedError(f"storage {v.path}: {CHECKED} bytes were written and {size} read")
    found = mounted_at(_run(host, instance, "cat", "/proc/self/mountinfo"), v.path)
    wanted = FILE_SYSTEMS.get(storage.kind)
    if wanted is not None and found["filesystem"] not in wanted:
        raise TrialFailedError(
            f"storage {storage.kind} at {v.path} is a {found['filesystem']} inside, not {' or '.join(wanted)}"
        )
    return found


def mounted_at(mountinfo: str, path: Path) -> dict[str, JsonValue]:
    """Return the mount that contains a path: the last one among those with the longest mount point.

    source: the mounted device or file system, as the kernel names it.
    device: 'major:minor'.
    """
    around = [mount for mount in parse_mounts(mountinfo) if path.is_relative_to(mount.point)]
    if not around:
        raise TrialFailedError(f"storage {path}: no mount holds it")
    found = max(reversed(around), key=lambda mount: len(Path(mount.point).parts))
    return {
        "path": str(path),
        "filesystem": found.kind,
        "source": found.source,
        "device": found.device,
    }


def _run(host: Host, instance: Instance, *argv: str) -> str:
    return (
        host.run(instance.command(argv), timeout=LIMIT, cwd=Path("/"))
        .require(f"storage in {instance.hostname}", error=TrialFailedError)
        .stdout
    )
