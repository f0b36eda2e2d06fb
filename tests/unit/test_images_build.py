"""What is asked of the programs that build, import and convert images; nothing is started."""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nearmetal.errors import DiskFullError, RunError, UnavailableError, UsageError
from nearmetal.host import Completed
from nearmetal.images import Image, ImageStore
from nearmetal.images.build import build, build_argv, finished, packages, require_builder
from nearmetal.images.build_errors import failure
from nearmetal.images.forms import Form, form_argv
from nearmetal.images.importing import SourceKind, import_image, kind_of, sif_offset, unpack_argvs
from nearmetal.images.python_packages import python_packages
from nearmetal.images.sources import archive_lines, own_archives, resolved_suite
from nearmetal.images.store import definition_key
from nearmetal.model.environments.image import Expired, ImageDefinition, Variant
from nearmetal.testing.fake_host import FakeHost

OWN = ImageDefinition(name="own", suite="host", packages=("gcc", "make", "gcc"))
OS_RELEASE = 'ID=debian\nVERSION_CODENAME="bookworm"\n'
INDEXES = (
    "apt-get",
    "indextargets",
    "--format",
    "$(REPO_URI)|$(RELEASE)|$(ORIGIN)|$(COMPONENT)",
    "Created-By: Packages",
)
KNOWN = """\
file:/srv/security/|bookworm-security|Debian|main
file:/srv/debian/|bookworm-updates|Debian|main
file:/srv/debian/|bookworm|Debian|main
file:/srv/debian/|bookworm|Debian|contrib
file:/srv/debian/|bookworm|Debian|main
file:/srv/theirs/|bookworm|Somebody|main
file:/srv/debian/|bookworm-backports|Debian|main
nonsense
"""


def host(*, root: bool = True, **more: object) -> FakeHost:
    fields = {"files": {"/etc/os-release": OS_RELEASE}, "commands": {INDEXES: KNOWN}, **more}
    return FakeHost(root=root, **fields)  # type: ignore[arg-type]  # what a test varies


def test_the_machines_own_archives_with_their_updates() -> None:
    assert own_archives(KNOWN, "debian", "bookworm", "bookworm") == (
        "deb file:/srv/debian/ bookworm main contrib",
        "deb file:/srv/debian/ bookworm-updates main",
        "deb file:/srv/security/ bookworm-security main",
    )


def test_another_suite_from_the_same_archive() -> None:
    assert own_archives(KNOWN, "debian", "bookworm", "trixie") == (
        "deb file:/srv/debian/ trixie main contrib",
    )
    assert own_archives("", "debian", "bookworm", "trixie") == ()


def test_archives_of_a_definition() -> None:
    with_mirror = ImageDefinition(
        name="m", suite="trixie", packages=(), mirror="file:/m", sources=("deb x y",)
    )
    assert archive_lines(FakeHost(), with_mirror) == ("file:/m", "deb x y")
    assert archive_lines(host(), OWN)[0] == "deb file:/srv/debian/ bookworm main contrib"
    silent = Completed(argv=INDEXES, returncode=127, stdout="", stderr="", seconds=0)
    without_apt = ImageDefinition(name="m", suite="trixie", packages=(), sources=("deb x y",))
    assert archive_lines(host(commands={INDEXES: silent}), without_apt) == ("", "deb x y")


def test_no_suite_of_this_machine() -> None:
    for text in ("ID=fedora\n", ""):
        with pytest.raises(UnavailableError, match="names no suite"):
            resolved_suite(host(files={"/etc/os-release": text}), OWN)


def test_tokens_of_a_build(tmp_path: Path) -> None:
    lines = archive_lines(host(), OWN)
    assert build_argv(host(), OWN, tmp_path, tmp_path / "kept", "bookworm") == [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", "--include=gcc,make"),
        *("bookworm", f"{tmp_path}/tree", *lines),
    ]
    as_user = build_argv(host(root=False), OWN, tmp_path, tmp_path / "kept", "bookworm")
    assert "unshare" not in as_user and "--mode=unshare" in as_user and f"{tmp_path}/tree.tar" in as_user


def test_an_expired_archive_is_read_only_where_it_is_accepted_and_its_signature_always(
    tmp_path: Path,
) -> None:
    old = ImageDefinition(name="old", suite="sid", variant=Variant.EXTRACT, expired=Expired.ACCEPT)
    words = [w for w in build_argv(host(), old, tmp_path, tmp_path / "kept", "sid") if "Valid-Until" in w]
    assert words == ['--aptopt=Acquire::Check-Valid-Until "false"']
    every = " ".join(build_argv(host(), old, tmp_path, tmp_path / "kept", "sid"))
    assert "trusted" not in every and "Unauthenticated" not in every
    assert "Valid-Until" not in " ".join(build_argv(host(), OWN, tmp_path, tmp_path / "kept", "bookworm"))


def test_pip_runs_in_the_tree_with_the_certificates_of_the_machine(tmp_path: Path) -> None:
    ocean = ImageDefinition(
        name="o", suite="trixie", packages=("python3",), pip=("veros==1.7.0", "h5py==3.1")
    )
    argv = build_argv(host(), ocean, tmp_path, tmp_path / "kept", "trixie")
    assert "--include=python3,python3-pip,ca-certificates" in argv
    before, install, after = (w for w in argv if w.startswith("--customize-hook"))
    assert install.startswith('--customize-hook=chroot "$1" env ')
    assert install.endswith(" python3 -m pip install --quiet veros==1.7.0 h5py==3.1")
    assert {"PIP_CERT=/tmp/certificates.crt", "REQUESTS_CA_BUNDLE=/tmp/certificates.crt"} <= set(
        install.split()
    )
    assert "-u PIP_TARGET " in install, "a setting of the user's own pip does not change where it installs"
    assert '"${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$1"/tmp/certificates.crt ||' in before
    assert after.startswith('--customize-hook=rm "$1"/tmp/')


def test_python_packages_of_a_tree(tmp_path: Path) -> None:
    there = tmp_path / "usr/local/lib/python3.13/dist-packages"
    for name in ("veros-1.7.0.dist-info", "charset_normalizer-3.5.3.dist-info", "veros"):
        (there / name).mkdir(parents=True)
    assert python_packages(tmp_path) == ("charset_normalizer 3.5.3", "veros 1.7.0")


def test_the_key_of_an_image_without_python_packages_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    plain = ImageDefinition(name="m", suite="trixie", packages=("gcc",))
    assert definition_key(plain, "trixie") == definition_key(replace(plain, name="n"), "trixie")
    assert definition_key(replace(plain, pip=("veros==1.7.0",)), "trixie") != definition_key(plain, "trixie")
    assert definition_key(plain, "trixie").startswith("c4ce4d5505bad4f2")


def test_downloaded_packages_are_reused(tmp_path: Path) -> None:
    (tmp_path / "kept here").mkdir()
    (tmp_path / "kept here" / "a_1.deb").write_text("")
    argv = build_argv(host(), OWN, tmp_path, tmp_path / "kept here", "bookworm")
    hooks = [word for word in argv if word.startswith("--setup-hook")]
    assert hooks[1] == f"--setup-hook=copy-in '{tmp_path}/kept here/a_1.deb' /var/cache/apt/archives"


@pytest.mark.parametrize(("root", "missing"), [(True, "mmdebstrap"), (False, "newuidmap")])
def test_missing_builder_is_named_with_its_package(tmp_path: Path, root: bool, missing: str) -> None:
    programs = {name: f"/usr/bin/{name}" for name in ("mmdebstrap", "newuidmap") if name != missing}
    lacking = host(root=root, programs=programs, missing=[missing])
    with pytest.raises(UnavailableError, match=missing) as caught:
        require_builder(lacking)
    assert caught.value.remedy.startswith("apt-get install")
    with pytest.raises(UnavailableError, match=missing):
        build(lacking, ImageStore(tmp_path), OWN, progress=lambda _: None)
    assert not (tmp_path / "trees").exists()


def test_words_of_a_failure() -> None:
    output = "I: running\nE: Unable to locate package gccc\nE: apt-get failed\nI: cleaning\n"
    error = failure("own", "not built", "mmdebstrap", 25, output)
    assert isinstance(error, RunError)
    message = "Unable to locate package gccc; apt-get failed"
    assert error.what == f"image own: not built: mmdebstrap ended with 25: {message}"
    output = "dpkg: cannot copy: No space left on device\nE: sub-process\n"
    full = failure("own", "not built", "mmdebstrap", 1, output)
    assert isinstance(full, DiskFullError) and "XDG_CACHE_HOME" in full.remedy
    silent = failure("own", "not built", "mmdebstrap", -9, "")
    assert silent.what == "image own: not built: mmdebstrap was killed by SIGKILL and printed no message"


def test_a_finished_tree_bears_no_trace_of_the_machine(tmp_path: Path) -> None:
    for name in ("etc", "dev/pts", "var/lib/dpkg"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("etc/hostname", "etc/resolv.conf", "dev/null"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "dev" / "fd").symlink_to("/proc/self/fd")
    status = "Package: b\nStatus: install ok installed\nVersion: 2\n\n"
    status += "Package: a\nStatus: deinstall ok config-files\n"
    (tmp_path / "var/lib/dpkg/status").write_text(status)
    made = finished(tmp_path, "bookworm", 1000)
    assert made.packages == ("b 2",) == packages(tmp_path)
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if not p.is_dir())
    assert left == ["etc/hosts", "var/lib/dpkg/status"] and list((tmp_path / "dev").iterdir()) == []
    assert all(p.lstat().st_mtime <= 1000 for p in tmp_path.rglob("*"))


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(
        name="own",
        key="k",
        directory=tmp_path,
        digest="0" * 64,
        origin="",
        created="",
        size=0,
        packages=(),
    )


def test_without_root_everything_in_a_form_is_roots(image: Image, tmp_path: Path) -> None:
    words = {Form.TAR: "--owner=0", Form.SQUASHFS: "-all-root", Form.EROFS: "--all-root"}
    for form, word in words.items():
        assert word in form_argv(form, image, tmp_path / "out", root=False)
        assert word not in form_argv(form, image, tmp_path / "out", root=True)


def test_tokens_of_sif(image: Image, tmp_path: Path) -> None:
    argv = form_argv(Form.SIF, image, tmp_path / "a.sif", root=True)
    assert argv == ["apptainer", "build", "--force", f"{tmp_path}/a.sif", f"{tmp_path}/tree"]


def write_sif(path: Path, filling: bytes) -> int:
    """A SIF as apptainer lays it out: launcher line, header, descriptors (a definition file, then the root
    partition), data. The offset of the partition."""
    offset = 32768 + 512
    header = struct.pack(
        "<32s10s3s3s16sqqqqqqqq",
        *(b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC\0", b"01\0", b"02\0", b"u" * 16),
        *(0, 0, 46, 48, 4096, 48 * 585, 32768, 4096),
    )
    descriptors = b"".join(
        struct.pack("<i?IIIqqqqqqq128s384s", kind, used, n, 1, 0, at, 4096, 4096, 0, 0, 0, 0, b"", b"")
        for n, (kind, used, at) in enumerate(
            [(0x4001, True, 32768), (0x4004, False, 32768), (0x4004, True, offset)]
        )
    )
    path.write_bytes((header.ljust(4096, b"\0") + descriptors).ljust(offset, b"\0") + filling)
    return offset


def test_the_squashfs_of_a_sif_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.sif"
    offset = write_sif(path, b"hsqs" + b"\0" * 4092)
    assert kind_of(FakeHost(), path) is SourceKind.SIF and sif_offset(path) == offset
    ((argv, package),) = unpack_argvs(SourceKind.SIF, path, tmp_path, root=True)
    assert (argv[0], package) == ("unsquashfs", "squashfs-tools")
    assert argv[argv.index("-offset") + 1] == str(offset)
    whole = path.read_bytes()
    write_sif(path, b"encrypted" + b"\0" * 4092)
    for content in (path.read_bytes(), whole[:100], whole[:33000]):  # encrypted, and two incomplete ones
        path.write_bytes(content)
        with pytest.raises(RunError, match="contains no squashfs"):
            sif_offset(path)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ("./oci-layout\n./index.json\n", SourceKind.OCI_ARCHIVE),
        ("manifest.json\noci-layout\n", SourceKind.OCI_ARCHIVE),
        ("manifest.json\nx.json\n", SourceKind.DOCKER_ARCHIVE),
        ("./\n./bin/\n", SourceKind.TAR),
    ],
)
def test_an_archive_is_known_by_what_is_in_it(tmp_path: Path, names: str, kind: SourceKind) -> None:
    path = tmp_path / "a.tar"
    path.write_text("not looked at")
    listing = FakeHost(commands={("tar", "--list", "--file", str(path)): names})
    assert kind_of(listing, path) is kind


def test_a_directory_or_a_layout(tmp_path: Path) -> None:
    assert kind_of(FakeHost(), tmp_path) is SourceKind.DIRECTORY
    (tmp_path / "oci-layout").write_text("{}")
    assert kind_of(FakeHost(), tmp_path) is SourceKind.OCI_LAYOUT
    with pytest.raises(UsageError, match="cannot be read"):
        kind_of(FakeHost(), tmp_path / "no")


def tokens(kind: SourceKind, path: Path, work: Path) -> Iterator[list[str]]:
    for argv, _ in unpack_argvs(kind, path, work, root=False):
        yield argv


def test_a_path_with_a_colon_is_no_tag(tmp_path: Path) -> None:
    copy, unpack = tokens(SourceKind.DOCKER_ARCHIVE, tmp_path / "a:b.tar", tmp_path)
    assert copy[-2:] == ["docker-archive:source", "oci:layout:image"]
    assert (tmp_path / "source").readlink() == tmp_path / "a:b.tar"
    assert unpack[:4] == ["umoci", "raw", "unpack", "--rootless"]


def test_names_and_trees_that_cannot_be_imported(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "cache" / "images")
    with pytest.raises(UsageError, match="comes with nearmetal"):
        import_image(FakeHost(), store, tmp_path, "debian-mpi", progress=lambda _: None)
    with pytest.raises(UsageError, match="is not a name"):
        import_image(FakeHost(), store, tmp_path, "../x", progress=lambda _: None)
    with pytest.raises(UsageError, match="holds the images themselves"):
        import_image(FakeHost(), store, tmp_path, "mine", progress=lambda _: None)
    assert not store.directory.exists()
