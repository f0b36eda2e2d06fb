"""Copies of the user's files on another machine, its scratch directory there, and its entry in the lock file.
Another directory stands for the other machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nearmetal.environments.guests.guest import members
from nearmetal.errors import UnavailableError
from nearmetal.host import Completed, LocalHost, cpio
from nearmetal.model.change import replace
from nearmetal.node.copies import Copies, make_scratch


class Elsewhere(LocalHost):
    """Runs commands as a machine does whose /here is the directory `root`."""

    def __init__(self, here: Path, root: Path) -> None:
        super().__init__()
        self.here, self.root = str(here), str(root)

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        stdin = options.get("stdin")
        done = super().run(
            [str(word).replace(self.here, self.root) for word in argv],
            timeout=options["timeout"],
            env=options.get("env"),
            stdin=None if stdin is None else stdin.replace(self.here, self.root),
        )
        return replace(done, stdout=done.stdout.replace(self.root, self.here))

    def put(self, wanted: Sequence[cpio.Member]) -> list[str]:
        """Copy members to it, and return their paths below /here."""
        for member in wanted:
            path = Path(f"/{member.name}".replace(self.here, self.root))
            if Path(f"/{member.name}").is_dir():
                path.mkdir(parents=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(member.data)
        return [f"/{member.name}".removeprefix(f"{self.here}/") for member in wanted]


@pytest.fixture
def there(tmp_path: Path) -> Elsewhere:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    return Elsewhere(tmp_path / "here", tmp_path / "there")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def copied(copies: Copies, there: Elsewhere, *tops: Path) -> list[str]:
    new = copies.new(tops)
    return there.put(copies.wanted(new, list(members(new))))


def test_a_program_that_was_compiled_anew_is_copied_anew(there: Elsewhere, tmp_path: Path) -> None:
    job = tmp_path / "here/u/job"
    (job / "bin").mkdir(parents=True)
    (job / "bin/a b").write_text("one")
    (job / "data").write_text("d")
    for text in ("one", "two"):
        (job / "bin/a b").write_text(text)
        copies = Copies(there, "n1")
        assert copied(copies, there, job) == ["u/job", "u/job/bin", "u/job/bin/a b", "u/job/data"]
        assert (tmp_path / "there/u/job/bin/a b").read_text() == text
        assert copied(copies, there, job) == [], "once in a run"
        copies.remove()
        assert names(tmp_path / "there") == []


def test_what_was_there_before_is_kept(there: Elsewhere, tmp_path: Path) -> None:
    here, other = tmp_path / "here/u", tmp_path / "there/u"
    here.mkdir()
    other.mkdir()
    for top in (here, other):
        (top / "same").write_text("s")
    (here / "new").write_text("n")
    (other / "own").write_text("o")
    copies = Copies(there, "n1")
    assert copied(copies, there, here) == ["u/new"]
    copies.remove()
    assert names(other) == ["own", "same"]


def test_a_file_that_differs_is_not_measured_silently(there: Elsewhere, tmp_path: Path) -> None:
    here, other = tmp_path / "here/u", tmp_path / "there/u"
    here.mkdir()
    other.mkdir()
    (here / "program").write_text("new")
    (other / "program").write_text("old")
    with pytest.raises(UnavailableError, match="program on n1 is another file than here") as raised:
        copied(Copies(there, "n1"), there, here)
    assert raised.value.remedy
    found = list(members([here]))
    (here / "program").write_text("newer")  # the file is being written
    assert Copies(there, "n1").wanted([here], found) == []
    assert (other / "program").read_text() == "old"


def test_a_scratch_directory_is_made_only_below_a_directory_of_ones_own(tmp_path: Path) -> None:
    host, parent = LocalHost(), tmp_path / "nearmetal-1"
    make_scratch(host, parent / "a")
    make_scratch(host, parent / "b")
    assert names(parent) == ["a", "b"] and parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(UnavailableError, match="same machine as another node"):
        make_scratch(host, parent / "a")
    parent.chmod(0o777)
    link, dangling, file = tmp_path / "link", tmp_path / "dangling", tmp_path / "file"
    link.symlink_to(tmp_path)
    dangling.symlink_to(tmp_path / "nowhere")
    file.touch()
    for bad in (parent, link, dangling, file):
        with pytest.raises(UnavailableError, match="not a directory that only this user can change"):
            make_scratch(host, bad / "c")
    assert not list(tmp_path.glob("*/c")) and not (tmp_path / "nowhere").exists()


def test_programs_are_not_run_from_a_directory_that_others_can_change(
    there: Elsewhere, tmp_path: Path
) -> None:
    here, other = tmp_path / "here/u", tmp_path / "there/u"
    here.mkdir()
    other.mkdir()
    (here / "program").write_text("new")
    other.chmod(0o777)
    with pytest.raises(UnavailableError, match="n1 belongs to another user, or all users may change it"):
        copied(Copies(there, "n1"), there, here)
    assert names(other) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory of another user")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    parent = tmp_path / "nearmetal-1"
    parent.mkdir()
    os.chown(parent, 12345, -1)
    with pytest.raises(UnavailableError, match="not a directory that only this user can change"):
        make_scratch(LocalHost(), parent / "c")
    assert names(parent) == []
