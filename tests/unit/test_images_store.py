"""The store of images: whole or not at all, one maker at a time; and the digest of a tree."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nearmetal.errors import BusyError, UsageError
from nearmetal.images import Image, ImageStore, in_use
from nearmetal.images.digest import clamp_times, newest_time, tree_bytes, tree_digest
from nearmetal.images.store import RECORD, TreeDescription

MADE = TreeDescription(digest="d" * 64, origin="by hand", created="2026-01-01", size=1, packages=("a 1",))


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def add(store: ImageStore, name: str, key: str) -> Image:
    with store.making(name, key) as work:
        (work / "tree").mkdir()
        return store.adopt(name, key, work, MADE)


def test_stored_image_is_found(store: ImageStore) -> None:
    assert store.find("a", "k1") is None and store.all() == ()
    image = add(store, "a", "k1")
    assert (image.digest, image.packages, image.tree.is_dir()) == (MADE.digest, ("a 1",), True)
    assert store.find("a", "k1") == store.find("a", None) == image
    assert store.all() == (image,) and not any((store.directory / "making").iterdir())


def test_a_maker_that_fails_leaves_nothing(store: ImageStore) -> None:
    with pytest.raises(OSError, match="full"), store.making("a", "k1") as work:
        (work / "tree").mkdir()
        raise OSError("full")
    assert store.find("a", "k1") is None and not any((store.directory / "making").iterdir())


def test_remains_of_a_killed_build_are_removed_first(store: ImageStore) -> None:
    left = store.directory / "making" / "k1" / "tree"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    with store.making("a", "k1") as work:
        assert list(work.iterdir()) == []


def test_one_maker_at_a_time(store: ImageStore) -> None:
    with store.making("a", "k1"):
        with pytest.raises(BusyError, match="image a is being made"), store.making("a", "k1"):
            pass
        with store.making("b", "k2"):
            pass


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"digest": "x"}'])
def test_an_entry_that_is_not_whole_is_none(store: ImageStore, damage: str) -> None:
    image = add(store, "a", "k1")
    (image.directory / RECORD).write_text(damage)
    assert store.find("a", "k1") is None
    assert add(store, "a", "k1") == image


def test_an_entry_goes_with_its_last_name(store: ImageStore) -> None:
    image = add(store, "a", "k1")
    store.point("b", "k1")
    store.remove("a")
    assert image.tree.is_dir() and [i.name for i in store.all()] == ["b"]
    store.remove("b")
    assert not image.directory.exists() and store.all() == ()
    with pytest.raises(UsageError, match="no image b"):
        store.remove("b")


def test_image_in_use_is_not_removed(store: ImageStore) -> None:
    image = add(store, "a", "k1")
    with in_use(image), in_use(image):
        with pytest.raises(BusyError, match="image a is in use"):
            store.remove("a")
        assert image.tree.is_dir()
    store.remove("a")


# ----------------------------------------------------------------------------------------------------- digest


def make_tree(at: Path) -> Path:
    (at / "bin").mkdir(parents=True)
    (at / "bin" / "tool").write_text("x")
    (at / "bin" / "link").symlink_to("tool")
    (at / "etc").mkdir()
    for path in (*at.rglob("*"), at):
        os.utime(path, (1000, 1000), follow_symlinks=False)
    return at


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


def test_a_copy_has_the_same_digest(tree: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tree, tmp_path / "copy", symlinks=True)
    os.utime(copy / "bin" / "link", (1000, 1000), follow_symlinks=False)
    assert tree_digest(copy) == tree_digest(tree)
    assert tree_bytes(copy) == tree_bytes(tree)


def relink(tree: Path) -> None:
    (tree / "bin" / "link").unlink()
    (tree / "bin" / "link").symlink_to("other")


def to_a_file(tree: Path) -> None:
    (tree / "etc").rmdir()
    (tree / "etc").write_text("")


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda t: (t / "bin" / "tool").write_text("y"),
    "mode": lambda t: (t / "bin" / "tool").chmod(0o700),
    "time": lambda t: os.utime(t / "bin" / "tool", (1000, 1001)),
    "name": lambda t: (t / "bin" / "tool").rename(t / "bin" / "tools"),
    "place": lambda t: (t / "bin" / "tool").rename(t / "etc" / "tool"),
    "link": relink,
    "kind": to_a_file,
    "more": lambda t: (t / "var").mkdir(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_another_digest(tree: Path, change: str) -> None:
    before = tree_digest(tree)
    CHANGES[change](tree)
    if change not in ("time", "mode"):
        for path in tree.rglob("*"):
            os.utime(path, (1000, 1000), follow_symlinks=False)
    assert tree_digest(tree) != before


def test_times_are_at_most_the_epoch(tree: Path) -> None:
    os.utime(tree / "bin" / "tool", (5000, 5000))
    os.utime(tree / "bin" / "link", (6000, 6000), follow_symlinks=False)
    assert newest_time(tree) == 6000
    clamp_times(tree, 2000)
    times = {p.name: int(p.lstat().st_mtime) for p in tree.rglob("*")}
    assert times == {"bin": 1000, "tool": 2000, "link": 2000, "etc": 1000}
