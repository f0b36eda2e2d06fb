"""Notes on a user's own results directories, where there is no place for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearmetal.records.own_runs import own_run, try_note_run


def test_a_user_without_a_home_directory_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one whose number has no name in a container."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", home)
    said = list[str]()
    try_note_run(tmp_path, said.append)
    assert len(said) == 1 and "this user has no home directory: '$XDG_STATE_HOME'" in said[0]
    assert own_run(tmp_path) is None
