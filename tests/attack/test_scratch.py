"""What the root user of an instance leaves in the directories of a run gives nobody else any power."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nearmetal.environments.storage import volume
from nearmetal.host import LocalHost, runtime
from nearmetal.host.runtime import memory_scratch_directory, scratch_directory
from nearmetal.model.environments.environment import Storage, StorageKind

pytestmark = pytest.mark.attack

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")


@pytest.fixture(autouse=True)
def own_runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runtime, "runtime_directory", lambda: tmp_path / "runtime")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@NEEDS_ROOT
@pytest.mark.parametrize("kind", [StorageKind.TMPFS, StorageKind.BIND])
def test_storage_of_an_instance_is_closed_to_others(tmp_path: Path, kind: StorageKind) -> None:
    path = str(tmp_path) if kind is StorageKind.BIND else None
    with (
        scratch_directory("nearmetal-attack3") as scratch,
        volume(
            LocalHost(),
            Storage(kind=kind, path=path),
            label="nearmetal-attack3-0",
            directory=scratch / "volume",
            shared=None,
            own_root=True,
        ) as made,
    ):
        assert mode(made.path) == 0o755, "all users of the instance may enter it"
        around = [path for path in made.path.parents if path.is_relative_to(tmp_path)]
        assert any(mode(parent) == 0o700 for parent in around[:-1])


@NEEDS_ROOT
def test_devices_and_set_user_id_bits_have_no_effect_in_memory() -> None:
    with memory_scratch_directory("nearmetal-attack4") as scratch:
        os.mknod(scratch / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        with pytest.raises(PermissionError):
            (scratch / "zero").open("rb")
        assert os.statvfs(scratch).f_flag & os.ST_NOSUID


def test_a_run_removes_directories_of_any_depth(make_deep: Callable[[Path], None]) -> None:
    with scratch_directory("nearmetal-attack5") as scratch:
        make_deep(scratch)
    assert not scratch.exists()
