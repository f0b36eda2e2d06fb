"""A copy of a working directory is the same before every run, whatever programs do to it."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from nearmetal.host import LocalHost
from nearmetal.node.reset_tree import ResetTree


def contents(root: Path) -> list[tuple[str, int, int, int, object]]:
    """Return what a program can see of a tree: names, modes, owners, times of files and their contents."""
    found: list[tuple[str, int, int, int, object]] = []
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        holds: object = None
        if path.is_symlink():
            holds = path.readlink()
        elif path.is_file():
            holds = path.read_bytes()
        found.append((str(path.relative_to(root)), status.st_mode, status.st_uid, status.st_mtime_ns, holds))
    return found


def made(tmp_path: Path, *, hidden: tuple[str, ...] = ()) -> ResetTree:
    original, place = tmp_path / "original", tmp_path / "place"
    place.mkdir(mode=0o700)
    tree = ResetTree(
        host=LocalHost(), original=original, place=place, hidden=tuple(PurePath(h) for h in hidden)
    )
    tree.fill()
    return tree


def filled(tmp_path: Path, rng: random.Random) -> Path:
    original = tmp_path / "original"
    for n in range(30):
        path = original / ("ab"[n % 2] * (n % 3)) / f"f{n}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.randrange(5000)))
    (original / "link").symlink_to("f0")
    (original / "to-directory").symlink_to("a")
    os.mkfifo(original / "fifo")
    os.link(original / "f0", original / "f0-again")
    (original / os.fsdecode(b"not-utf8-\xff")).write_text("x")
    (original / "empty").mkdir(mode=0o750)
    return original


def swap(root: Path, p: Path, q: Path) -> None:
    if p != q:
        p.rename(root / "aside")
        q.rename(p)
        (root / "aside").rename(q)


def in_place(p: Path) -> None:
    """Change a file without a change of its size or its modification time."""
    status = p.stat()
    p.write_bytes(os.urandom(status.st_size))
    os.utime(p, ns=(status.st_atime_ns, status.st_mtime_ns))


def by_map(p: Path) -> None:
    if p.stat().st_size:
        with p.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            memory[0] ^= 1


def into_link(p: Path) -> None:
    p.unlink()
    p.symlink_to("nowhere")


def into_directory(p: Path) -> None:
    p.unlink()
    p.mkdir()
    (p / "inside").write_text("x")


def leave_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def meddle(root: Path, rng: random.Random) -> None:
    """Do one of the things that programs do to files."""
    files = [p for p in root.rglob("*") if p.is_file() and not p.is_symlink()]
    directories = [root, *(p for p in root.rglob("*") if p.is_dir() and not p.is_symlink())]
    p, q, d = rng.choice(files), rng.choice(files), rng.choice(directories)
    things: list[Callable[[], object]] = [
        lambda: (d / f"new{rng.randrange(9)}").write_bytes(rng.randbytes(100)),
        lambda: in_place(p),
        lambda: p.write_bytes(b""),
        lambda: p.chmod(rng.choice([0o600, 0o755])),
        p.unlink,
        lambda: swap(root, p, q),
        lambda: shutil.rmtree(d) if d != root else None,
        lambda: (d / f"d{rng.randrange(9)}").mkdir(),
        lambda: by_map(p),
        lambda: into_link(p),
        lambda: into_directory(p),
        lambda: d.chmod(0o711),
        lambda: leave_socket(d / "socket"),
    ]
    rng.choice(things)()


def test_every_run_finds_the_same_whatever_the_runs_before_did(tmp_path: Path) -> None:
    rng = random.Random(1)
    before = contents(filled(tmp_path, rng))
    tree = made(tmp_path)
    assert contents(tree.tree) == before
    for run in range(25):
        for _ in range(rng.randrange(1, 6)):
            try:
                meddle(tree.tree, rng)
            except OSError:  # gone, or there already
                continue
        tree.reset()
        assert contents(tree.tree) == before, run
        assert tree.reset() == (), run
    assert contents(tmp_path / "original") == before


def test_what_changed_is_named(tmp_path: Path) -> None:
    filled(tmp_path, random.Random(2))
    tree = made(tmp_path)
    (tree.tree / "result.dat").write_text("x")
    (tree.tree / "empty" / "more").write_text("x")
    assert {"result.dat", "empty/more"} <= set(tree.reset())


def test_a_reset_that_failed_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(filled(tmp_path, random.Random(5)))
    tree = made(tmp_path)
    (tree.tree / "result.dat").write_text("x")
    with monkeypatch.context() as full:
        full.setattr(os, "rename", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(OSError, match="No space left"):
            tree.reset()
    tree.reset()
    assert contents(tree.tree) == before


def test_hidden_directories_are_not_in_it(tmp_path: Path) -> None:
    original = filled(tmp_path, random.Random(3))
    (original / "runs" / "results" / "one").mkdir(parents=True)
    tree = made(tmp_path, hidden=("runs/results",))
    assert (tree.tree / "runs").is_dir() and not (tree.tree / "runs/results").exists()
    (tree.tree / "runs/results").mkdir()
    tree.reset()
    assert not (tree.tree / "runs/results").exists()
    assert tree.reset() == ()


@pytest.mark.attack
def test_a_link_in_the_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f1").write_text("theirs")
    before = contents(filled(tmp_path, random.Random(4)))
    tree = made(tmp_path)
    shutil.rmtree(tree.tree / "a")
    (tree.tree / "a").symlink_to(outside)
    shutil.rmtree(tree.tree / "empty")
    (tree.tree / "empty").symlink_to("/etc")
    tree.reset()
    assert contents(tree.tree) == before
    assert (outside / "f1").read_text() == "theirs" and stat.S_IMODE(outside.stat().st_mode) != 0o750
