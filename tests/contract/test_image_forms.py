"""A tree in every form that its own tools can read here, and back again; the store on a full disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearmetal.errors import DiskFullError, RunError, UnavailableError, UsageError
from nearmetal.host import LocalHost
from nearmetal.images import Image, ImageStore
from nearmetal.images.build import build, finished
from nearmetal.images.forms import Form, in_form
from nearmetal.images.importing import import_image
from nearmetal.model.environments.image import ImageDefinition

pytestmark = [pytest.mark.more, pytest.mark.beside]

HOST = LocalHost()
BEFORE = 1_700_000_000


def quiet(text: str) -> None:
    pass


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "cache: one, two")


@pytest.fixture
def image(store: ImageStore) -> Image:
    """A tree with what an archive may lose: modes, links, empty directories, a name with odd characters."""
    with store.making("small", "k") as work:
        tree = work / "tree"
        for directory in ("bin", "etc", "tmp", "usr/lib", "empty"):
            (tree / directory).mkdir(parents=True)
        (tree / "bin" / "tool").write_text("#!/bin/sh\n")
        (tree / "bin" / "tool").chmod(0o4755)
        (tree / "bin" / "again").hardlink_to(tree / "bin" / "tool")
        (tree / "lib").symlink_to("usr/lib")
        (tree / "etc" / "ä b\tc").write_text("x" * 5000)
        (tree / "tmp").chmod(0o1777)
        return store.adopt("small", "k", work, finished(tree, "by hand", BEFORE))


def made(image: Image, form: Form) -> Path:
    return in_form(HOST, image, form, progress=quiet)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def ask(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600).stdout


def test_the_tree_itself_is_a_form(image: Image) -> None:
    assert made(image, Form.DIRECTORY) == image.tree


@pytest.mark.parametrize("form", [Form.TAR, Form.OCI, Form.SQUASHFS, Form.EROFS])
def test_a_form_is_made_once_and_always_alike(image: Image, form: Form) -> None:
    path = made(image, form)
    first, at = digest(path), path.stat().st_mtime_ns
    assert made(image, form) == path and path.stat().st_mtime_ns == at
    shutil.rmtree(image.directory / "forms")
    assert digest(made(image, form)) == first


def test_forms_are_read_by_their_own_tools(image: Image, tmp_path: Path) -> None:
    assert "./bin/tool" in ask("tar", "--list", "--file", str(made(image, Form.TAR))).splitlines()
    assert "SQUASHFS" in ask("unsquashfs", "-s", str(made(image, Form.SQUASHFS)))
    ask("fsck.erofs", str(made(image, Form.EROFS)))
    archive = tmp_path / "oci.tar"  # skopeo takes a colon for the beginning of a tag
    shutil.copyfile(made(image, Form.OCI), archive)
    for transport in ("oci-archive", "docker-archive"):
        said = json.loads(ask("skopeo", "inspect", f"{transport}:{archive}"))
        assert said["Os"] == "linux" and len(said["Layers"]) == 1
    ask("skopeo", "copy", "--insecure-policy", f"oci-archive:{archive}", f"oci:{tmp_path}/layout:x")


def test_sif_needs_apptainer(image: Image, tmp_path: Path) -> None:
    if HOST.which("apptainer") is None:
        with pytest.raises(UnavailableError, match="apptainer is not installed"):
            made(image, Form.SIF)
    else:
        assert made(image, Form.SIF).read_bytes()[32:41] == b"SIF_MAGIC"


@pytest.mark.parametrize("form", [Form.DIRECTORY, Form.TAR, Form.OCI, Form.SQUASHFS])
def test_importing_an_image_again_gives_the_same_tree(image: Image, store: ImageStore, form: Form) -> None:
    again = import_image(HOST, store, made(image, form), "again", progress=quiet)
    assert again.digest == image.digest and again.key != image.key
    assert store.find("again", None) == again
    # A second import of the same tree is the same entry.
    assert import_image(HOST, store, made(image, form), "third", progress=quiet).key == again.key


def test_a_docker_archive_and_a_layout_are_taken(image: Image, store: ImageStore, tmp_path: Path) -> None:
    archive, docker = tmp_path / "oci.tar", tmp_path / "docker.tar"
    shutil.copyfile(made(image, Form.OCI), archive)
    ask("skopeo", "copy", "--insecure-policy", f"oci-archive:{archive}", f"docker-archive:{docker}:a:b")
    ask("skopeo", "copy", "--insecure-policy", f"oci-archive:{archive}", f"oci:{tmp_path}/layout:x")
    for path in (docker, tmp_path / "layout"):
        found = import_image(HOST, store, path, "again", progress=quiet)
        assert found.digest == image.digest
        store.remove("again")


def test_a_sif_is_imported(image: Image, store: ImageStore, tmp_path: Path) -> None:
    """Laid out as apptainer does it: header, one descriptor, the squashfs."""
    squashfs = made(image, Form.SQUASHFS).read_bytes()
    head = (b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC\0", b"01\0", b"02\0", b"u" * 16)
    header = struct.pack("<32s10s3s3s16sqqqqqqqq", *head, 0, 0, 47, 48, 4096, 48 * 585, 32768, len(squashfs))
    size = len(squashfs)
    descriptor = (0x4004, True, 1, 1, 0, 32768, size, size, 0, 0, 0, 0, b"", b"")
    packed = struct.pack("<i?IIIqqqqqqq128s384s", *descriptor)
    sif = tmp_path / "a.sif"
    sif.write_bytes((header.ljust(4096, b"\0") + packed).ljust(32768, b"\0") + squashfs)
    assert import_image(HOST, store, sif, "app", progress=quiet).digest == image.digest


@pytest.mark.parametrize("content", [b"", b"no archive at all" * 100, b"hsqs" + b"\0" * 5000])
def test_file_that_is_no_image_is_refused(store: ImageStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises((UsageError, RunError)):
        import_image(HOST, store, tmp_path / "x", "app", progress=quiet)
    assert store.all() == () and not any((store.directory / "making").glob("*"))


def test_a_directory_without_a_root_tree_is_refused(store: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "papers").mkdir()
    with pytest.raises(UsageError, match="contains no root tree"):
        import_image(HOST, store, tmp_path / "papers", "app", progress=quiet)
    assert store.all() == ()


# ------------------------------------------------------------------------------------------------ a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """30 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_full_disk_is_reported_and_leaves_no_partial_file(small_disk: Path, tmp_path: Path) -> None:
    store = ImageStore(small_disk / "images")
    definition = ImageDefinition(name="own", suite="host", packages=())
    with pytest.raises(DiskFullError, match="image own: not built: no space left"):
        build(HOST, store, definition, progress=quiet)
    large = tmp_path / "large"
    (large / "bin").mkdir(parents=True)
    (large / "bin" / "file").write_bytes(os.urandom(40 << 20))
    with pytest.raises(DiskFullError, match="no space left"):
        import_image(HOST, store, large, "large", progress=quiet)
    assert store.all() == () and not any((store.directory / "making").iterdir())


def test_a_builder_that_waits_for_ever_on_a_full_disk_is_ended(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = tmp_path / "mmdebstrap"
    builder.write_text("#!/bin/sh\necho 'I: running apt-get update...' >&2\nexec sleep 1000\n")
    builder.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("nearmetal.images.build._SILENT_SECONDS", 0.5)
    (small_disk / "other").write_bytes(bytes(20 << 20))
    store = ImageStore(small_disk / "images")
    definition = ImageDefinition(name="own", suite="host", packages=())
    with pytest.raises(DiskFullError, match="image own: not built: no space left"):
        build(HOST, store, definition, progress=quiet)
    assert store.all() == () and not any((store.directory / "making").iterdir())
