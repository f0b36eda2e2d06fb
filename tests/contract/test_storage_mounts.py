"""Storage on this machine: devices that may be written to and not, and what a kill -9 leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearmetal.environments.storage import mounted_once, volume, why_not
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import LocalHost, namespaces
from nearmetal.host.leftovers import LeftoverKind, find, remove
from nearmetal.model.study import Storage, StorageKind

pytestmark = pytest.mark.beside

HOST = LocalHost()
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A block device of our own."""
    file = tmp_path / "disk"
    with file.open("wb") as new:
        new.truncate(16 << 20)
    made = subprocess.run(["losetup", "-f", "--show", file], check=True, capture_output=True, text=True)
    yield made.stdout.strip()
    subprocess.run(["losetup", "-d", made.stdout.strip()], check=True)


@needs_root
def test_a_device_is_taken_when_it_may_be_destroyed_and_nobody_uses_it(device: str, tmp_path: Path) -> None:
    kept = why_not(HOST, Storage(kind=StorageKind.BLOCK, path=device), own_root=True)
    assert kept is not None and "overwrite: true" in kept.remedy
    storage = Storage(kind=StorageKind.BLOCK, path=device, overwrite=True)
    assert why_not(HOST, storage, own_root=True) is None
    with mounted_once(HOST, storage, tmp_path / "shared") as shared:
        used = why_not(HOST, storage, own_root=True)
        assert used is not None and f"is mounted on {shared}" in used.reason
        with volume(
            HOST,
            storage,
            label="nearmetal-x-0",
            directory=tmp_path / "m",
            shared=shared,
            own_root=True,
        ) as v:
            assert v.path == shared / "nearmetal-x-0" / "files" and not v.inside
            assert os.statvfs(v.path).f_blocks * os.statvfs(v.path).f_frsize < 16 << 20
            with pytest.raises(UnavailableError, match="in use"), mounted_once(HOST, storage, tmp_path / "b"):
                pass
        assert not v.path.exists()
    assert not os.path.ismount(tmp_path / "shared")
    assert why_not(HOST, storage, own_root=True) is None


@pytest.mark.parametrize(
    ("storage", "why"),
    [
        (Storage(kind=StorageKind.BLOCK, path="/dev/null", overwrite=True), "is not a block device"),
        (Storage(kind=StorageKind.BLOCK, path="/dev/no-such", overwrite=True), "No such file"),
        (Storage(kind=StorageKind.BIND, path="/no/such"), "is not a directory that this user may write to"),
    ],
)
@needs_root
def test_unavailable_storage_says_why(storage: Storage, why: str) -> None:
    answer = why_not(HOST, storage, own_root=True)
    assert answer is not None and why in answer.reason


@needs_root
def test_disk_that_does_not_fit_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    namespaces.mount("tmpfs", small, "tmpfs", options="size=1m")
    try:
        storage = Storage(kind=StorageKind.LOOP, path=str(small), size=8 << 20)
        refused = pytest.raises(RunError, match="No space left")
        with (
            refused,
            volume(
                HOST,
                storage,
                label="nearmetal-x-0",
                directory=tmp_path / "m",
                shared=None,
                own_root=True,
            ),
        ):
            pass
        assert list(small.iterdir()) == []
    finally:
        namespaces.unmount(small)
    assert not (tmp_path / "m").exists()


KILLED = """
import sys, time
from contextlib import ExitStack
from pathlib import Path
from nearmetal.environments.storage import volume
from nearmetal.host import LocalHost
from nearmetal.host.runtime import scratch_directory
from nearmetal.model.study import Storage, StorageKind
label, place = sys.argv[1:]
with ExitStack() as stack:
    scratch = stack.enter_context(scratch_directory(label))
    for n, storage in enumerate((
        Storage(kind=StorageKind.LOOP, path=place, size=4 << 20),
        Storage(kind=StorageKind.TMPFS),
        Storage(kind=StorageKind.BIND, path=place),
    )):
        stack.enter_context(volume(LocalHost(), storage, label=f"{label}-{n}",
            directory=scratch / f"m{n}", shared=None, own_root=False))
    print("stands", flush=True)
    time.sleep(3600)
"""


@needs_root
def test_after_kill_9_clean_finds_mounts_and_directories(tmp_path: Path) -> None:
    label = f"nearmetal-test{os.getpid()}-storage"
    argv = [sys.executable, "-c", KILLED, label, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd="/") as tool:
        assert tool.stdout is not None and tool.stdout.readline() == "stands\n"
        tool.kill()
    kinds = [left.kind for left in find(label)]
    assert kinds.count(LeftoverKind.MOUNT) == 2 and kinds.count(LeftoverKind.STORAGE) == 2
    for left in find(label):
        remove(left)
    assert find(label) == () and list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout
