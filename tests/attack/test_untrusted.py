"""A directory that somebody hostile has filled: nothing outside it is reached, and nothing waits."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from nearmetal.host import untrusted
from nearmetal.host.removal import remove_tree
from nearmetal.host.untrusted import UntrustedDirectory, read_named

pytestmark = pytest.mark.attack


@pytest.fixture(params=["openat2", "older kernel"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernel as it is, and one without openat2(2)."""
    if request.param != "openat2":
        monkeypatch.setattr(untrusted, "_OPENAT2", 1 << 20)
    return str(request.param)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "root"
    (root / "below").mkdir(parents=True)
    (root / "below" / "file").write_text("own")
    (root / "absolute").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to("../secret")
    (root / "out").symlink_to(tmp_path)
    (root / "magic").symlink_to("/proc/self/root")
    os.mkfifo(root / "fifo")
    return root


@pytest.mark.parametrize("name", ["absolute", "up", "out/secret", "../secret", "below/../../secret", "magic"])
def test_nothing_outside_is_opened(kernel: str, tree: Path, name: str) -> None:
    with pytest.raises(OSError):
        UntrustedDirectory(tree).read_bytes(name)
    assert not UntrustedDirectory(tree).is_file(name)


@pytest.mark.parametrize("name", ["absolute", "up", "out/secret"])
def test_the_root_of_an_image_is_its_own(kernel: str, tree: Path, name: str) -> None:
    with pytest.raises(OSError):
        UntrustedDirectory(tree, as_root=True).read_bytes(name)


def test_a_file_inside_is_read(kernel: str, tree: Path) -> None:
    assert UntrustedDirectory(tree).read_bytes("below/file") == b"own"
    assert UntrustedDirectory(tree).names("below") == ("file",)
    assert UntrustedDirectory(tree).names("missing") == ()


def test_links_in_an_image_begin_at_its_root(tree: Path) -> None:
    (tree / "link").symlink_to("/below/file")
    assert UntrustedDirectory(tree, as_root=True).read_bytes("link") == b"own"


def test_what_is_no_file_is_refused_at_once(kernel: str, tree: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tree / "socket"))
        for name in ("fifo", "socket", "below"):
            with pytest.raises(OSError, match="is not a regular file"):
                UntrustedDirectory(tree).open_file(name)


def test_a_device_is_refused(kernel: str, tree: Path) -> None:
    try:
        os.mknod(tree / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this user cannot make devices")
    with pytest.raises(OSError, match="is not a regular file"):
        UntrustedDirectory(tree).read_bytes("zero")


def test_a_huge_file_is_refused(kernel: str, tree: Path) -> None:
    with (tree / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError) as caught:
        UntrustedDirectory(tree).read_bytes("huge", limit=1 << 20)
    assert caught.value.errno == errno.EFBIG


def test_nothing_is_written_through_a_link(kernel: str, tree: Path) -> None:
    (tree / "planted").symlink_to(tree.parent / "made")
    for name in ("planted", "out/made"):
        with pytest.raises(OSError):
            UntrustedDirectory(tree).write_bytes(name, b"x")
    UntrustedDirectory(tree).unlink("planted")
    UntrustedDirectory(tree).write_bytes("planted", b"x", 0o600)
    assert (tree / "planted").read_bytes() == b"x"
    assert (tree / "planted").stat().st_mode & 0o777 == 0o600
    assert not (tree.parent / "made").exists()


def test_a_part_is_no_way_out(kernel: str, tree: Path) -> None:
    (tree / "below" / "up").symlink_to("..")
    assert UntrustedDirectory(tree).below("below").read_bytes("file") == b"own"
    for directory in (UntrustedDirectory.part(tree / "out"), UntrustedDirectory(tree).below("out")):
        assert not directory.is_file("secret")
        assert directory.exists("secret") or kernel != "openat2", "refused, but not free"
        with pytest.raises(OSError):
            directory.names()
        with pytest.raises(OSError):
            directory.replace_file("made", b"x")
    assert not UntrustedDirectory(tree).is_directory("out") and UntrustedDirectory(tree).is_directory("below")
    assert not (tree.parent / "made").exists()


def test_a_file_is_replaced_and_not_the_target_of_a_link(kernel: str, tree: Path) -> None:
    (tree / f".report.{os.getpid()}.tmp").symlink_to(tree.parent / "secret")
    (tree / "report").symlink_to(tree.parent / "secret")
    UntrustedDirectory(tree).replace_file("report", b"new")
    assert not (tree / "report").is_symlink() and (tree / "report").read_bytes() == b"new"
    assert (tree.parent / "secret").read_text() == "secret"
    (tree / "taken").mkdir()
    with pytest.raises(OSError):
        UntrustedDirectory(tree).replace_file("taken", b"new")
    assert not list(tree.glob(".*.tmp"))


def test_nothing_is_appended_to_a_file_elsewhere(kernel: str, tree: Path) -> None:
    os.mkfifo(tree / "below" / "fifo")
    for name in ("absolute", "up", "out/secret", "fifo", "below/fifo"):
        with pytest.raises(OSError):
            UntrustedDirectory(tree).open_to_append(name)
    os.close(UntrustedDirectory(tree).open_to_append("made"))
    assert (tree / "made").is_file() and (tree.parent / "secret").read_text() == "secret"


def test_lines_are_bounded(kernel: str, tree: Path) -> None:
    (tree / "lines").write_bytes(b"1\n22\n333\n4")
    files = UntrustedDirectory(tree)
    assert list(files.lines("lines", limit=4)) == [b"1\n", b"22\n", b"333\n", b"4"]
    assert list(files.lines("lines", offset=5)) == [b"333\n", b"4"]
    with pytest.raises(OSError, match="a line of more than 3 bytes"):
        list(files.lines("lines", limit=3))


def test_a_walk_follows_no_link(kernel: str, tree: Path) -> None:
    at = tree
    for _ in range(100):
        (at / "d").mkdir()
        at /= "d"
    (at / "deep").touch()
    (at / "loop").symlink_to(tree)
    assert sorted(UntrustedDirectory(tree).files()) == ["below/file", f"{'d/' * 100}deep"]


def test_a_file_that_the_user_names_may_be_a_link_but_nothing_that_waits(tree: Path) -> None:
    assert read_named(tree / "absolute") == b"secret"
    for name in ("fifo", "below", "missing"):
        with pytest.raises(OSError):
            read_named(tree / name)
    with pytest.raises(OSError) as caught:
        read_named(tree / "absolute", limit=5)
    out, end = os.pipe()
    os.write(end, b"study")
    os.close(end)
    assert read_named(Path(f"/dev/fd/{out}")) == b"study"  # as the shell names <(COMMAND)
    os.close(out)
    assert caught.value.errno == errno.EFBIG


def test_links_of_an_image_are_resolved_on_every_kernel(kernel: str, tree: Path) -> None:
    (tree / "etc").symlink_to("/below")
    (tree / "below" / "alternative").symlink_to("../../etc/./file")
    (tree / "loop").symlink_to("loop")
    root = UntrustedDirectory(tree, as_root=True)
    assert root.read_bytes("etc/alternative") == b"own"
    assert root.real_path("/etc/alternative") == tree / "below" / "file"
    assert root.has_name("loop") and root.has_name("absolute") and not root.has_name("loop/x")
    with pytest.raises(OSError):
        root.read_bytes("loop")


def test_a_directory_is_made_inside_only(kernel: str, tree: Path) -> None:
    root = UntrustedDirectory(tree)
    root.make_directory("below/new")
    root.make_directory("below/new")
    assert root.is_directory("below/new") and not root.is_directory("out")
    for name in ("out/new", "up", "fifo"):
        with pytest.raises(OSError):
            root.make_directory(name)
    assert not (tree.parent / "new").exists()


def test_a_tree_is_removed_however_deep_it_is(tree: Path, make_deep: Callable[[Path], None]) -> None:
    make_deep(tree)
    remove_tree(tree)
    assert not tree.exists() and (tree.parent / "secret").read_text() == "secret"
    remove_tree(tree)


def test_what_cannot_be_removed_keeps_nothing_else(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = os.unlink

    def refuse(name: str, **more: int) -> None:
        if name == "absolute":
            raise OSError(errno.EPERM, "immutable")
        unlink(name, **more)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(OSError, match="immutable"):
        remove_tree(tree)
    assert [p.name for p in tree.iterdir()] == ["absolute"]


def test_a_file_that_another_machine_replaces_is_opened_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS finds no longer what a descriptor of the replaced file leads to."""
    opened, stale = os.open, [True]

    def reopen(path: str | Path, *rest: int, **more: int) -> int:
        if str(path).startswith("/proc/self/fd/") and stale and stale.pop():
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", reopen)
    assert UntrustedDirectory(tree).read_bytes("below/file") == b"own" and not stale
