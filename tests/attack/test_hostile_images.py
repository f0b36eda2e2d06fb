"""Images made by somebody hostile: importing one as root changes and reads nothing outside the store, waits
for nothing, and ends with an image or an error."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from nearmetal.environments import Tools
from nearmetal.environments.guests.initramfs import initramfs, modules_of
from nearmetal.environments.guests.needs import missing_drivers, of_one_machine, require_tree
from nearmetal.errors import NearmetalError, RunError, UnavailableError, UsageError
from nearmetal.host import LocalHost, cpio
from nearmetal.images import Image, ImageStore
from nearmetal.images.build import finished, packages
from nearmetal.images.digest import HOLES_LIMIT, newest_time, tree_digest
from nearmetal.images.importing import import_image, kind_of, sif_offset
from nearmetal.images.python_packages import python_packages
from nearmetal.node.bases import kernel_of

pytestmark = pytest.mark.attack

HOST = LocalHost()
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The least that is taken for a root tree."""
    (tmp_path / "tree" / "usr").mkdir(parents=True)
    return tmp_path / "tree"


def take(store: ImageStore, path: Path) -> Image:
    return import_image(HOST, store, path, "hostile", progress=lambda _: None)


def nothing_left(store: ImageStore) -> bool:
    return store.all() == () and not any((store.directory / "making").iterdir())


def test_nobody_else_enters_a_store(store: ImageStore, tree: Path) -> None:
    (tree / "usr" / "su").write_text("#!/bin/sh")
    (tree / "usr" / "su").chmod(0o4755)
    image = take(store, tree)
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert (image.tree / "usr" / "su").stat().st_mode & stat.S_ISUID, "instances need it"
    store.directory.chmod(0o755)  # as earlier versions made it
    assert store.find("hostile", None) == image
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700


# ------------------------------------------------------------------------------- after a tree was unpacked


def links_hosts(tree: Path, outside: Path) -> None:
    (tree / "etc").mkdir()
    (tree / "etc" / "hosts").symlink_to(outside / "made")


def links_etc(tree: Path, outside: Path) -> None:
    (tree / "etc").symlink_to(outside)


def links_etc_up(tree: Path, outside: Path) -> None:
    (tree / "etc").symlink_to(f"../{outside.name}")


def links_dev(tree: Path, outside: Path) -> None:
    (outside / "victim").write_text("kept")
    (tree / "dev").symlink_to(outside)


def makes_fifos(tree: Path, outside: Path) -> None:
    for name in ("var/lib/dpkg/status", "etc/hosts", "usr/bin/sh"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(tree / name)


def links_packages(tree: Path, outside: Path) -> None:
    (outside / "status").write_text("Package: secret\nStatus: install ok installed\nVersion: 1\n")
    (outside / "python3" / "dist-packages" / "secret-1.dist-info").mkdir(parents=True)
    (tree / "var/lib/dpkg").mkdir(parents=True)
    (tree / "var/lib/dpkg/status").symlink_to(outside / "status")
    (tree / "usr/local").mkdir()
    (tree / "usr/local/lib").symlink_to(outside)


@pytest.mark.parametrize(
    "plant", [links_hosts, links_etc, links_etc_up, links_dev, makes_fifos, links_packages]
)
def test_finishing_a_tree_stays_in_it(
    store: ImageStore, tree: Path, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    plant(tree, outside)
    before = sorted((str(p), p.lstat().st_mtime_ns) for p in outside.rglob("*"))
    try:
        assert take(store, tree).packages == ()
    except RunError:
        assert nothing_left(store)
    assert sorted((str(p), p.lstat().st_mtime_ns) for p in outside.rglob("*")) == before


def test_an_etc_hosts_that_links_to_nothing_is_replaced(tree: Path) -> None:
    links_hosts(tree, tree.parent)
    finished(tree, "x", None)
    assert not (tree / "etc/hosts").is_symlink() and "localhost" in (tree / "etc/hosts").read_text()


@NEEDS_ROOT
def test_no_device_stays_in_a_tree(store: ImageStore, tree: Path) -> None:
    for name, kind in (("usr/zero", stat.S_IFCHR), ("usr/disk", stat.S_IFBLK), ("usr/lib", stat.S_IFDIR)):
        if kind == stat.S_IFDIR:
            (tree / name).mkdir()
        else:
            os.mknod(tree / name, 0o666 | kind, os.makedev(1, 5))
    shutil.copytree(tree / "usr/lib", tree / "dev")
    os.mknod(tree / "usr/lib/mem", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
    made = take(store, tree)
    left = {p.name for p in made.tree.rglob("*") if not p.is_dir()}
    assert left == {"hosts"}


def test_a_huge_list_of_packages_is_not_read(tree: Path) -> None:
    (tree / "var/lib/dpkg").mkdir(parents=True)
    with (tree / "var/lib/dpkg/status").open("wb") as file:
        file.truncate(1 << 40)
    assert packages(tree) == () == python_packages(tree)


def test_a_sparse_file_of_a_petabyte_is_an_error(store: ImageStore, tree: Path) -> None:
    with (tree / "usr" / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match=f"more than {HOLES_LIMIT} bytes of holes"):
        tree_digest(tree)
    with pytest.raises(RunError, match="hostile: not imported"):
        take(store, tree)
    assert nothing_left(store)


def test_a_deep_tree_is_an_error_and_is_removed(store: ImageStore, tree: Path) -> None:
    (tree / "usr" / "/".join(["d" * 200] * 15)).mkdir(parents=True)
    with pytest.raises(RunError, match="nested too deep"):
        take(store, tree)
    assert nothing_left(store)


def test_a_time_beyond_all_calendars_is_a_value(tree: Path) -> None:
    os.utime(tree / "usr", (1 << 40, 1 << 40))
    assert newest_time(tree) <= (1 << 32) - 1
    os.utime(tree / "usr", (-(1 << 40), -(1 << 40)))
    assert newest_time(tree) == 0


def test_a_socket_and_odd_names_are_values(store: ImageStore, tree: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tree / "usr" / "socket"))
        (Path(os.fsdecode(bytes(tree) + b"/usr/\xff\n\x1b[2J"))).write_text("x")
        assert take(store, tree).size > 0


# ------------------------------------------------------------------------------------------------- archives


Entry = tuple[str, bytes, str]
"""Name, type as tarfile has it, content or target of a link."""
ATTACKS: dict[str, tuple[Entry, ...]] = {
    "up": (("usr/../../made", tarfile.REGTYPE, "x"),),
    "absolute": (("{outside}/made", tarfile.REGTYPE, "x"),),
    "through a link": (("l", tarfile.SYMTYPE, "{outside}"), ("l/made", tarfile.REGTYPE, "x")),
    "through a link up": (("l", tarfile.SYMTYPE, "../../outside"), ("l/made", tarfile.REGTYPE, "x")),
    "a link, overwritten": (("l", tarfile.SYMTYPE, "{outside}/victim"), ("l", tarfile.REGTYPE, "x")),
    "a hard link out": (("h", tarfile.LNKTYPE, "{outside}/victim"), ("h", tarfile.REGTYPE, "x")),
    "a hard link up": (("h", tarfile.LNKTYPE, "../../../outside/victim"), ("h", tarfile.REGTYPE, "x")),
    "the tree itself": ((".", tarfile.SYMTYPE, "{outside}"), ("made", tarfile.REGTYPE, "x")),
    "the tree, then below": (("./", tarfile.SYMTYPE, "{outside}"), ("./made", tarfile.REGTYPE, "x")),
}


def write_tar(path: Path, entries: tuple[Entry, ...], outside: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for name, kind, text in (("usr", tarfile.DIRTYPE, ""), *entries):
            member = tarfile.TarInfo(name.replace("{outside}", str(outside)))
            member.type, member.mode = kind, 0o755
            text = text.replace("{outside}", str(outside))
            if kind == tarfile.REGTYPE:
                member.size = len(text)
            else:
                member.linkname = text
            tar.addfile(member, io.BytesIO(text.encode()))


def in_a_tar(path: Path, entries: tuple[Entry, ...], outside: Path) -> None:
    write_tar(path, entries, outside)


def in_a_layer(path: Path, entries: tuple[Entry, ...], outside: Path) -> None:
    """A Docker archive of one layer."""
    layer = path.with_name("layer.tar")
    write_tar(layer, entries, outside)
    digest = subprocess.run(["sha256sum", layer], check=True, capture_output=True, text=True).stdout[:64]
    layers = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": layers})
    manifest = json.dumps([{"Config": "c.json", "RepoTags": ["a:b"], "Layers": ["layer.tar"]}])
    with tarfile.open(path, "w") as tar:
        tar.add(layer, "layer.tar")
        for name, text in (("c.json", config), ("manifest.json", manifest)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))


@pytest.mark.parametrize("pack", [in_a_tar, in_a_layer])
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_archive_is_unpacked_inside_its_tree(
    store: ImageStore, tmp_path: Path, attack: str, pack: Callable[[Path, tuple[Entry, ...], Path], None]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("kept")
    pack(tmp_path / "a.tar", ATTACKS[attack], outside)
    try:
        image = take(store, tmp_path / "a.tar")
    except NearmetalError:
        assert nothing_left(store)
    else:
        assert image.tree.is_dir() and not image.tree.is_symlink()
        assert not any(p.lstat().st_ino == (outside / "victim").stat().st_ino for p in image.tree.iterdir())
    assert [p.name for p in outside.iterdir()] == ["victim"]
    assert (outside / "victim").read_text() == "kept"
    assert not (tmp_path / "made").exists() and not (store.directory / "made").exists()


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.SYMTYPE])
def test_an_oci_archive_with_more_than_files_is_refused(
    store: ImageStore, tmp_path: Path, kind: bytes
) -> None:
    write_tar(
        tmp_path / "a.tar",
        (
            ("oci-layout", tarfile.REGTYPE, '{"imageLayoutVersion":"1.0.0"}'),
            ("index.json", kind, "/dev/zero"),
        ),
        tmp_path,
    )
    with pytest.raises(NearmetalError, match="not a regular file"):
        take(store, tmp_path / "a.tar")
    assert nothing_left(store)


def test_a_layout_with_a_fifo_is_refused(store: ImageStore, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    layout.mkdir()
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    os.mkfifo(layout / "index.json")
    with pytest.raises(UsageError, match="not a regular file"):
        take(store, layout)


def test_a_fifo_is_no_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "image")
    with pytest.raises(UsageError, match="neither a file nor a directory"):
        kind_of(HOST, tmp_path / "image")


@pytest.mark.parametrize(
    ("total", "at", "offset"),
    [
        (1, 4096, -100),
        (1, 4096, -(1 << 63)),
        (1, 4096, (1 << 63) - 1),
        (1, -600, 0),
        (1, (1 << 63) - 1, 0),
        (-1, 4096, 0),
        ((1 << 63) - 1, 4096, 0),
    ],
)
def test_numbers_of_a_sif_are_not_trusted(tmp_path: Path, total: int, at: int, offset: int) -> None:
    head = (b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC\0", b"01\0", b"02\0", b"u" * 16)
    header = struct.pack("<32s10s3s3s16sqqqqqqqq", *head, 0, 0, 0, total, at, 0, 0, 0)
    descriptor = struct.pack("<i?IIIqqqqqqq128s384s", 0x4004, True, 1, 1, 0, offset, *(0,) * 6, b"", b"")
    content = header.ljust(4096, b"\0") + descriptor
    (tmp_path / "a.sif").write_bytes(content + b"hsqs" + b"\0" * 96)
    with pytest.raises(RunError, match="contains no squashfs"):
        sif_offset(tmp_path / "a.sif")


# --------------------------------------------------------------------- what a guest boots from an image


@pytest.fixture
def bootable(tree: Path, tmp_path: Path) -> Path:
    """A tree with a kernel and one module."""
    (tmp_path / "secret").write_bytes(b"secret")
    for name in ("boot", "usr/lib/modules/6.1"):
        (tree / name).mkdir(parents=True)
    (tree / "lib").symlink_to("usr/lib")
    (tree / "boot/vmlinuz-6.1").write_bytes(b"kernel")
    (tree / "usr/lib/modules/6.1/modules.dep").write_text("erofs.ko:\n")
    (tree / "usr/lib/modules/6.1/erofs.ko").write_bytes(b"own")
    return tree


def packed(bootable: Path, tmp_path: Path) -> bytes:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nm-guest").write_bytes(b"init")
    found = kernel_of(bootable)
    assert found is not None and found[0].is_relative_to(bootable)
    return initramfs(tmp_path / "cache", found[1], Tools(directory=tools), tree=bootable).read_bytes()


def test_a_kernel_and_its_modules_are_found_through_links_of_the_tree(bootable: Path, tmp_path: Path) -> None:
    inside = {m.name: m.data for m in cpio.unpack(packed(bootable, tmp_path))}
    assert inside["modules/erofs.ko"] == b"own"


def names_a_file_outside(modules: Path, secret: Path) -> None:
    up = "/".join([".."] * 20)
    (modules / "modules.dep").write_text(f"{up}{secret}/erofs.ko:\n{secret}/virtio_blk.ko:\n")
    secret.unlink()
    secret.mkdir()
    for name in ("erofs.ko", "virtio_blk.ko"):
        (secret / name).write_text("secret")


def links_a_module(modules: Path, secret: Path) -> None:
    (modules / "erofs.ko").unlink()
    (modules / "erofs.ko").symlink_to(secret)


def is_a_fifo(modules: Path, secret: Path) -> None:
    (modules / "erofs.ko").unlink()
    os.mkfifo(modules / "erofs.ko")


def is_a_bomb(suffix: str, compress: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
    def plant(modules: Path, secret: Path) -> None:
        (modules / "modules.dep").write_text(f"erofs.ko{suffix}:\n")
        (modules / f"erofs.ko{suffix}").write_bytes(compress(bytes(129 << 20)))

    return plant


def is_damaged(suffix: str) -> Callable[[Path, Path], None]:
    def plant(modules: Path, secret: Path) -> None:
        (modules / "modules.dep").write_text(f"erofs.ko{suffix}:\n")
        (modules / f"erofs.ko{suffix}").write_bytes(b"\x1f\x8bnothing of the kind")

    return plant


@pytest.mark.parametrize(
    "plant",
    [
        names_a_file_outside,
        links_a_module,
        is_a_fifo,
        is_a_bomb(".zst", zstandard.ZstdCompressor().compress),
        *(is_damaged(suffix) for suffix in (".xz", ".gz", ".zst")),
    ],
)
def test_a_guest_gets_no_file_of_the_machine_as_a_module(
    bootable: Path, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    plant(bootable / "usr/lib/modules/6.1", tmp_path / "secret")
    try:
        assert b"secret" not in packed(bootable, tmp_path)
    except UnavailableError as e:
        assert "kernel module" in e.what


def test_a_kernel_outside_the_tree_is_none(bootable: Path, tmp_path: Path) -> None:
    (bootable / "boot/vmlinuz-6.1").unlink()
    (bootable / "boot/vmlinuz-6.1").symlink_to(tmp_path / "secret")
    assert kernel_of(bootable) is None
    (bootable / "boot/vmlinuz-6.1").unlink()
    os.mkfifo(bootable / "boot/vmlinuz-6.1")
    assert kernel_of(bootable) is None


def test_checks_of_a_tree_wait_for_nothing(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    for name in ("usr/bin", "etc"):
        (tree / name).mkdir()
    os.mkfifo(tree / "usr/bin/env")
    os.mkfifo(tree / "modules.dep")
    (tree / "etc/hostname").symlink_to(tmp_path / "secret")
    require_tree("x", tree)
    assert of_one_machine(tree) == () == missing_drivers(tree, ("erofs",))
    assert modules_of(tree, ("erofs",)) == []
