"""Storage without mounting anything: what is refused, and what a mount table says."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from nearmetal.environments import storage
from nearmetal.environments.storage import device_user, mounted_once, volume, why_not
from nearmetal.errors import RunError, TrialFailedError
from nearmetal.host import Completed, namespaces
from nearmetal.host.notes import read_notes
from nearmetal.host.outside import outside_directory
from nearmetal.model.study import Storage, StorageKind
from nearmetal.node.storage import mounted_at
from nearmetal.testing.fake_host import FakeHost

MOUNTS = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:40 / /run rw - tmpfs tmpfs rw
31 30 7:0 / /run/nearmetal/x/m\\040n rw - ext4 /dev/loop0 rw
32 30 0:41 / /run/nearmetal/x/m\\040n rw - tmpfs over rw
"""


def test_a_path_lies_on_the_last_of_the_longest_mounts() -> None:
    assert mounted_at(MOUNTS, Path("/run/nearmetal/x/m n/a"))["source"] == "over"
    assert mounted_at(MOUNTS, Path("/run/nearmetal/x/m"))["filesystem"] == "tmpfs"
    assert mounted_at(MOUNTS, Path("/var/tmp"))["device"] == "254:0"
    with pytest.raises(TrialFailedError, match="no mount holds it"):
        mounted_at("", Path("/x"))


@pytest.mark.parametrize("kind", [k for k in StorageKind if k not in ("overlay", "bind")])
def test_mounted_storage_needs_root(kind: StorageKind) -> None:
    why = why_not(FakeHost(root=False), Storage(kind=kind, path="/dev/x", size=1), own_root=False)
    assert why is not None and "needs root" in why.reason


def test_overlay_without_root_is_of_bare_machines_alone() -> None:
    host = FakeHost(root=False)
    assert why_not(host, Storage(), own_root=False) is None
    refused = why_not(host, Storage(), own_root=True)
    assert refused is not None and "bind" in refused.remedy


def test_a_program_that_is_missing_is_named() -> None:
    host = FakeHost(programs={"mount": "/bin/mount"}, missing=("mkfs.ext4",))
    why = why_not(host, Storage(kind=StorageKind.LOOP, size=1 << 20), own_root=False)
    assert why is not None and why.reason == "storage loop needs mkfs.ext4"


@pytest.mark.parametrize(
    ("systems", "programs", "why"),
    [
        ("nodev\ttmpfs\n\text4\n", {}, "no NFS client"),
        ("nodev\tnfs4\n", {}, "needs mount.nfs"),
        ("nodev\tnfs\n", {"mount.nfs": "/sbin/mount.nfs"}, None),
    ],
)
def test_nfs_needs_a_kernel_and_a_program(systems: str, programs: dict[str, str], why: str | None) -> None:
    host = FakeHost(files={"/proc/filesystems": systems}, programs=programs, missing=("mount.nfs",))
    answer = why_not(host, Storage(kind=StorageKind.NFS, path="server:/export"), own_root=False)
    assert (answer is None) if why is None else (answer is not None and why in answer.reason)


NFS = Storage(kind=StorageKind.NFS, path="server:/export/a b")


def nfs_host(target: Path, answer: str | Completed = "") -> FakeHost:
    """A kernel with an NFS client, on which this one mount may be asked for."""
    return FakeHost(
        files={"/proc/filesystems": "nodev\tnfs4\n"},
        programs={"mount.nfs": "/sbin/mount.nfs"},
        commands={("mount", "-t", "nfs", "-o", "nosuid,nodev", "server:/export/a b", str(target)): answer},
    )


def test_an_export_is_mounted_once_and_each_instance_has_a_directory_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes_base: Path
) -> None:
    target, unmounted = tmp_path / "mounted", list[Path]()
    monkeypatch.setattr(namespaces, "unmount", unmounted.append)
    host = nfs_host(target)
    with mounted_once(host, NFS, target) as shared, ExitStack() as stack:
        assert shared == target and target.is_dir()
        volumes = [
            stack.enter_context(
                volume(
                    host,
                    NFS,
                    label=f"nearmetal-x-{n}",
                    directory=tmp_path / f"m{n}",
                    shared=shared,
                    own_root=True,
                )
            )
            for n in range(2)
        ]
        assert [v.path for v in volumes] == [target / f"nearmetal-x-{n}" / "files" for n in range(2)]
        assert not any(v.inside for v in volumes) and all(v.path.is_dir() for v in volumes)
        assert {n.label for n in read_notes()[0]} == {v.path.parent.name for v in volumes}
    assert len(host.calls) == 1 and unmounted == [target] and list(target.iterdir()) == []


def test_an_export_that_cannot_be_mounted_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, unmounted = tmp_path / "mounted", list[Path]()
    monkeypatch.setattr(namespaces, "unmount", unmounted.append)
    refused = Completed(
        argv=("mount",), returncode=32, stdout="", stderr="mount.nfs: access denied\n", seconds=0.1
    )
    with (
        pytest.raises(RunError, match=r"storage: mount ended with 32: mount\.nfs: access denied"),
        mounted_once(nfs_host(target, refused), NFS, target),
    ):
        pass
    assert unmounted == [target]


def test_a_device_that_is_mounted_is_in_use() -> None:
    files = {"/proc/self/mountinfo": MOUNTS, "/proc/swaps": "Filename Type Size Used Priority\n"}
    assert device_user(FakeHost(files=files), "7:0") == "it is mounted on /run/nearmetal/x/m n"
    assert device_user(FakeHost(files=files), "999:0") is None


def test_a_disk_whose_partition_is_held_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a volume group, whose volumes are mounted under the numbers of other devices."""
    monkeypatch.setattr(storage, "BLOCK_DEVICES", tmp_path)
    part = tmp_path / "8:0" / "sda1"
    for directory in (tmp_path / "8:0" / "holders", part / "holders" / "dm-0", tmp_path / "8:16" / "holders"):
        directory.mkdir(parents=True)
    (part / "partition").write_text("1\n")
    files = {f"{part}/dev": "8:1\n", "/proc/self/mountinfo": MOUNTS, "/proc/swaps": "Filename\n"}
    assert device_user(FakeHost(files=files), "8:0") == "held by dm-0"
    assert device_user(FakeHost(files=files), "8:16") is None


def test_a_run_notes_each_parent_directory_once(tmp_path: Path, notes_base: Path) -> None:
    before = set(read_notes()[0])
    for number in range(3):
        with outside_directory(tmp_path / f"nearmetal-0123ab-{number}-disk") as path:
            (note,) = set(read_notes()[0]) - before
            assert note.label == "nearmetal-0123ab" and path.is_dir()
        assert not path.exists()
