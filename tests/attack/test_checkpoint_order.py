"""In which order a checkpoint writes, flushes and ends: a power cut at any moment leaves the instance or its
images, and never two copies. Programs that record what they do stand for CRIU, runc, LXC, xl and sync."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.patience import until

from nearmetal.api.moves import dumps, hosts, remote
from nearmetal.environments import Criu
from nearmetal.environments.external import (
    External,
    Saved,
    Work,
    find_external,
    require_kept,
    sync_command,
)
from nearmetal.environments.external.saved import HANDED_OVER, RESTORED, require_new
from nearmetal.errors import RunError, UsageError
from nearmetal.host import LocalHost
from nearmetal.host.durable import is_temporary
from nearmetal.lifecycle import Method
from nearmetal.testing.fake_host import FakeHost

pytestmark = pytest.mark.attack
HOST = LocalHost()
STATE = "guest.state"
#: What each program does. Every one records its name, and whether the instance still exists then.
PROGRAMS = {
    "criu": """
images= tree= keep=
while [ $# -gt 0 ]; do
    case $1 in --images-dir) images=$2;; --tree) tree=$2;; --leave-running) keep=1;; esac
    shift
done
echo memory >$images/pages-1.img
echo done >$images/inventory.img
script=$(sed -n 's/^action-script //p' "$CRIU_CONFIG_FILE" 2>/dev/null | tail -n 1)
if [ -n "$script" ]; then CRTOOLS_SCRIPT_ACTION=post-dump "$script" || exit 1; fi
[ -n "$keep" ] || kill -9 $tree
""",
    "runc": """
case $1 in
    state) echo "{\\"status\\": \\"running\\", \\"pid\\": $PID, \\"bundle\\": \\"/b\\"}";;
    --criu) exec $2 dump --images-dir "$5" --tree $PID "$@";;
esac
""",
    "lxc-info": "echo $PID",
    "lxc-checkpoint": """
keep=--leave-running
while [ $# -gt 0 ]; do
    case $1 in --checkpoint-dir) images=$2;; --stop) keep=;; esac
    shift
done
exec criu dump --images-dir $images --tree $PID $keep
""",
    "xl": """
case $1 in
    list) [ -e $RECORD.alive ] && printf 'Name ID Mem VCPUs State Time\\nvm 3 128 1 -b---- 2.1\\n';;
    save) for last; do :; done; echo memory >$last; [ "$2" = -p ] || [ "$2" = -c ] || rm $RECORD.alive;;
    destroy) rm $RECORD.alive;;
esac
""",
    "sync": '[ ! -e "$RECORD.fails" ] || { echo sync: Input/output error >&2; exit 1; }',
}
HEAD = """#!/bin/sh
alive=gone
if [ -n "$PID" ]; then
    case $(cut -d ' ' -f 3 /proc/$PID/stat 2>/dev/null) in ''|Z|X) ;; *) alive=exists;; esac
elif [ -n "$SOCKET" ]; then
    [ ! -e $SOCKET ] || alive=exists
else
    [ ! -e $RECORD.alive ] || alive=exists
fi
echo "${0##*/} $1 $2 $alive" >>$RECORD
"""


class Recorded:
    """A directory with programs that record their calls. The instance is a process, or a file for Xen."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.programs = directory / "record", directory / "bin"
        self.programs.mkdir()
        for name, text in PROGRAMS.items():
            (self.programs / name).write_text(HEAD + text)
            (self.programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{self.programs}:{os.environ['PATH']}")
        monkeypatch.setenv("RECORD", str(self.file))
        monkeypatch.setenv("XDG_STATE_HOME", str(directory / "state"))
        monkeypatch.delenv("CRIU_CONFIG_FILE", raising=False)
        Path(f"{self.file}.alive").touch()

    @property
    def work(self) -> Work:
        return Work(
            criu=lambda _: Criu(argv=(str(self.programs / "criu"),), version="4.2.1"), time_limit=30.0
        )

    @property
    def flushed(self) -> list[str]:
        """For each call of sync, whether the instance still existed."""
        calls = self.file.read_text().splitlines() if self.file.exists() else []
        return [call.split()[-1] for call in calls if call.startswith("sync ")]

    def fail(self) -> None:
        Path(f"{self.file}.fails").touch()


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(tmp_path, monkeypatch)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "600"])
    monkeypatch.setenv("PID", str(child.pid))
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def write(recorded: Recorded, name: str, method: Method, directory: Path) -> None:
    images = directory / "the images"
    require_new(images)
    dumps.write(HOST, find_external(HOST, name), recorded.work, Saved(name=name, method=method), images)


@pytest.mark.parametrize("kind", ["pid", "runc", "lxc"])
@pytest.mark.parametrize("fails", [False, True])
def test_images_of_criu_are_on_the_disk_before_the_instance_ends(
    recorded: Recorded, process: subprocess.Popen[bytes], tmp_path: Path, kind: str, fails: bool
) -> None:
    name = f"pid:{process.pid}" if kind == "pid" else f"{kind}:web"
    if not fails:
        write(recorded, name, Method.CRIU, tmp_path)
        assert recorded.flushed[0] == "exists"
        assert process.wait(10) == -9
        assert not any(file.stat().st_mode & 0o077 for file in (tmp_path / "the images").rglob("*"))
        return
    recorded.fail()
    with pytest.raises(RunError, match=r"which continues: .*sync: Input/output error"):
        write(recorded, name, Method.CRIU, tmp_path)
    assert process.poll() is None, "an instance without images goes on"
    assert not list((tmp_path / "the images").glob("*.img"))


@pytest.mark.parametrize("fails", [False, True])
def test_the_state_of_a_guest_is_on_the_disk_before_its_qemu_ends(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    if shutil.which("qemu-system-x86_64") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("QEMU is not installed")
    qmp = tmp_path / "qmp"
    monkeypatch.setenv("SOCKET", str(qmp))
    words = ["-nodefaults", "-display", "none", "-m", "16", "-accel", "tcg,tb-size=16"]
    with subprocess.Popen(
        ["qemu-system-x86_64", *words, "-qmp", f"unix:{qmp},server=on,wait=off"], stderr=subprocess.DEVNULL
    ) as guest:
        try:
            until(qmp.is_socket, "the socket")
            if not fails:
                write(recorded, f"qmp:{qmp}", Method.OFFLINE, tmp_path)
                assert recorded.flushed[:2] == ["exists", "exists"], "the content, then its name"
                assert guest.wait(10) == 0
            else:
                recorded.fail()
                with pytest.raises(RunError, match="continues at its source"):
                    write(recorded, f"qmp:{qmp}", Method.OFFLINE, tmp_path)
                assert guest.poll() is None
                find_external(HOST, f"qmp:{qmp}").inspect(HOST)
        finally:
            guest.kill()


@pytest.mark.parametrize("fails", [False, True])
def test_the_state_of_a_domain_of_xen_is_on_the_disk_before_the_domain_ends(
    recorded: Recorded, tmp_path: Path, fails: bool
) -> None:
    if fails:
        recorded.fail()
        with pytest.raises(RunError, match="not known to be on the disk"):
            write(recorded, "xl:vm", Method.OFFLINE, tmp_path)
        assert Path(f"{recorded.file}.alive").exists()
        assert "xl unpause vm exists" in recorded.file.read_text().splitlines()
    else:
        write(recorded, "xl:vm", Method.OFFLINE, tmp_path)
        assert recorded.flushed[0] == "exists" and not Path(f"{recorded.file}.alive").exists()


def test_a_domain_of_libvirt_is_written_to_a_file_whose_name_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`virsh save` itself ends the domain."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("LIBVIRT_DEFAULT_URI", raising=False)
    images, virsh = tmp_path / "images", ("virsh", "--quiet", "--connect", "qemu:///system")
    require_new(images)
    flushed = record_fsync(monkeypatch)

    def save(_: Sequence[str]) -> str:
        assert (images / STATE).exists() and flushed[-1] == images
        return ""

    host = FakeHost(
        commands={
            (*virsh, "dominfo", "vm"): "State: running\nUsed memory: 1024 KiB\nAutostart: disable\n",
            (*virsh, "save", "vm", str(images / STATE)): save,
            tuple(sync_command(images)): "",
        },
        programs={"virsh": "/usr/bin/virsh"},
    )
    instance, saved = find_external(host, "libvirt:vm"), Saved(name="libvirt:vm", method=Method.OFFLINE)
    dumps.write(host, instance, Work(criu=lambda _: pytest.fail("CRIU")), saved, images)
    assert host.calls[-1][0] == "find" and not host.never_used()


def record_fsync(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list to which the path of every file is added that is flushed to the disk."""
    flushed, real = list[Path](), os.fsync

    def fsync(fd: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{fd}").readlink())
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return flushed


class Near(LocalHost):
    """This machine in place of another one."""

    name = "node7"

    def connected(self) -> bool:
        return True

    def words(self, argv: Sequence[str]) -> list[str]:
        return list(argv)


class There(hosts.RemoteImages):
    """A directory on another machine that takes everything."""

    def send(self, images: Path, part: str = "") -> None:
        pass

    def serve_pages(self, criu: Criu, log: Path) -> socket.socket:
        self._connections.append(socket.socket())
        return self._connections[-1]


class Instance:
    name, what = "pid:7", "process 7"

    def __init__(self, check: Any) -> None:
        self.check = check

    def restore(self, *_: object) -> str:
        self.check()
        return "pid:7"


def test_the_note_of_a_move_is_on_the_disk_before_the_restore_on_the_other_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = record_fsync(monkeypatch)

    def check() -> None:
        assert (tmp_path / HANDED_OVER).read_text().startswith("node7:")
        content, directory = flushed[-2:]
        assert is_temporary(content.name) and directory == tmp_path, "the content, then its name"

    there = There(
        host=HOST, remote=cast(Any, Near()), path=tmp_path, bandwidth=None, time_limit=30.0, end=0.0
    )
    saved = Saved(name="pid:7", method=Method.CRIU)
    work = Work(criu=lambda _: pytest.fail("CRIU"))
    external = cast(External, Instance(check))
    assert remote.restore_on_remote(HOST, external, work, tmp_path, saved, there) == "pid:7"


def test_memory_at_a_page_server_is_on_the_disk_there_before_the_source_ends(
    recorded: Recorded, process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """A note says where the memory is, and the source ends last."""
    images, path = tmp_path / "images", tmp_path / "there"
    require_new(images)
    path.mkdir()
    there = There(host=HOST, remote=cast(Any, Near()), path=path, bandwidth=None, time_limit=30.0, end=0.0)
    external = find_external(HOST, f"pid:{process.pid}")
    saved = Saved(name=external.name, method=Method.CRIU_PAGESERVER)
    remote._send(HOST, external, recorded.work, saved, images, there)
    assert recorded.flushed[:3] == ["exists"] * 3, "the images here, those there, and their directory"
    assert f"sync -- {tmp_path} exists" in recorded.file.read_text().splitlines()
    assert (images / HANDED_OVER).read_text() == f"node7:{path}\n" and process.wait(10) == -9
    there.clear()


@pytest.mark.parametrize("note", [HANDED_OVER, RESTORED])
@pytest.mark.parametrize("kind", ["empty", "fifo"])
def test_a_note_that_cannot_be_read_allows_no_second_copy(tmp_path: Path, note: str, kind: str) -> None:
    """A power cut may leave an empty file."""
    if kind == "fifo":
        os.mkfifo(tmp_path / note)
    else:
        (tmp_path / note).touch()
    with pytest.raises(UsageError, match=r"may run|were copied to another host"):
        require_kept(tmp_path)


def test_a_page_server_has_flushed_its_files_before_the_source_ends(tmp_path: Path) -> None:
    """Only the other machine has the memory then."""
    there = hosts.RemoteImages(
        host=HOST, remote=cast(Any, Near()), path=tmp_path, bandwidth=None, time_limit=1.0, end=0.0
    )
    (tmp_path / "pages-1.img").touch()
    words = [sys.executable, "-c", "import time; time.sleep(600)", str(tmp_path)]
    with subprocess.Popen(words) as server:
        (tmp_path / "page-server.pid").write_text(f"{server.pid}\n")
        with subprocess.Popen(there.sync_words()) as flush:
            with pytest.raises(subprocess.TimeoutExpired):
                flush.wait(0.2)
            server.kill()
            server.wait()
            assert flush.wait(30) == 0
