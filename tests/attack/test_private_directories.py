"""What a run makes on a machine cannot be read by other users, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearmetal.errors import RunError
from nearmetal.host import outside as host_outside
from nearmetal.host import runtime
from nearmetal.host.outside import outside_directory, short_directory

pytestmark = pytest.mark.attack


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, notes_base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runtime, "runtime_directory", lambda: tmp_path / "nearmetal")
    monkeypatch.setattr(runtime, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(host_outside, "SHORT_PARENT", tmp_path)
    before = os.umask(0)
    yield
    os.umask(before)


def test_directories_of_a_run(tmp_path: Path) -> None:
    with (
        runtime.scratch_directory("nearmetal-a") as scratch,
        runtime.memory_scratch_directory("nearmetal-b") as memory,
        outside_directory(tmp_path / "nearmetal-c") as outside,
        short_directory("nearmetal-d") as short,
        runtime.shared_memory_directory("nearmetal-e") as shared,
    ):
        for directory in (scratch.parent, scratch, memory, outside, short, shared):
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700, directory


def test_a_directory_in_the_place_of_ours_is_refused_with_another_way(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "nearmetal").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError) as caught, runtime.scratch_directory("nearmetal-a"):
        pass
    assert caught.value.remedy is not None and "XDG_RUNTIME_DIR" in caught.value.remedy
    assert list((tmp_path / "elsewhere").iterdir()) == []
