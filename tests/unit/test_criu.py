"""Which CRIU is used, and what of its files and of mounts is understood."""

from __future__ import annotations

import os
import struct
import subprocess
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from nearmetal.environments import Criu, Dump, InstanceRequest, Tools, Unavailable, criu, criu_restoring
from nearmetal.environments.criu import (
    RunningDump,
    bound_to_tool,
    dump_argv,
    external_mounts,
    script,
    why_dump_is_stuck,
)
from nearmetal.environments.criu_images import (
    DumpStatistics,
    Pagemap,
    check_images,
    first_error,
    read_pagemap,
    read_statistics,
)
from nearmetal.environments.criu_restoring import restoring_from
from nearmetal.environments.native import Native
from nearmetal.environments.program import ProgramInstance, read_pid, write_script
from nearmetal.errors import RunError
from nearmetal.host import Completed, LocalHost
from nearmetal.images import ImageStore
from nearmetal.lifecycle import Method
from nearmetal.model.study import Attachment, Environment
from nearmetal.node.criu import BUILD, find_criu, started_from
from nearmetal.testing.fake_host import FakeHost

TOOLS = Tools(directory=Path("/t"))
FEATURE = ("/usr/sbin/criu", "check", "--feature")
MOUNTS = """\
85 91 254:0 /d /data rw - ext4 /dev/vda rw
91 57 0:52 / / rw - overlay overlay rw,lowerdir=/
92 91 0:55 / /proc rw - proc proc rw
93 91 0:56 / /sys rw shared:1 - sysfs sysfs rw
94 93 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
105 91 0:6 / /dev rw - devtmpfs devtmpfs rw
110 105 0:57 / /dev/shm rw - tmpfs tmpfs rw
111 91 0:58 / /tmp rw - tmpfs tmpfs rw
"""


def answer(*argv: str, status: int = 0, stdout: str = "", stderr: str = "") -> Completed:
    return Completed(argv=argv, returncode=status, stdout=stdout, stderr=stderr, seconds=0.0)


def test_an_installed_criu_that_works_is_taken(tmp_path: Path) -> None:
    host = FakeHost(
        programs={"criu": "/usr/sbin/criu"},
        commands={
            ("/usr/sbin/criu", "--version"): "Version: 4.2.1\n",
            ("/usr/sbin/criu", "check"): "Looks good.\n",
            **{(*FEATURE, name): "supported\n" for name in ("mem_dirty_track", "uffd-noncoop")},
        },
        files={"/proc/sys/fs/pipe-max-size": b"4194304\n", "/proc/self/status": b"CapEff:\t0\n"},
    )
    assert find_criu(host, ImageStore(tmp_path)) == Criu(argv=("/usr/sbin/criu",), version="4.2.1")


@pytest.mark.parametrize(
    ("tracks", "faults", "capabilities", "unable"),
    [
        (1, 0, b"0", {Method.CRIU_PRECOPY: "CONFIG_MEM_SOFT_DIRTY", Method.CRIU_LAZY: "fs.pipe-max-size"}),
        (0, 1, b"0", {Method.CRIU_LAZY: "CONFIG_USERFAULTFD"}),
        (0, 0, b"0000000001000000", {}),
    ],
)
def test_methods_that_the_machine_lacks_something_for(
    tmp_path: Path, tracks: int, faults: int, capabilities: bytes, unable: dict[Method, str]
) -> None:
    program = "/usr/sbin/criu"
    host = FakeHost(
        programs={"criu": program},
        commands={
            (program, "--version"): "Version: 4.2.1\n",
            (program, "check"): "Looks good.\n",
            (*FEATURE, "mem_dirty_track"): answer(*FEATURE, status=tracks),
            (*FEATURE, "uffd-noncoop"): answer(*FEATURE, status=faults),
        },
        files={
            "/proc/sys/fs/pipe-max-size": b"1048576\n",
            "/proc/self/status": b"CapEff:\t" + capabilities + b"\n",
        },
    )
    found = find_criu(host, ImageStore(tmp_path))
    assert isinstance(found, Criu) and set(found.unable) == set(unable)
    for method, word in unable.items():
        assert word in found.unable[method].remedy


def test_command_lines_by_method() -> None:
    used, images = Criu(argv=("criu",), version="4.2"), Path("/i/last")
    plain = dump_argv(used, 7, Dump(images=images), ())
    assert plain[:4] == ["criu", "dump", "--tree", "7"] and "--page-server" not in plain
    server = dump_argv(used, 7, Dump(images=images, server=9), ())
    assert " ".join(server).count("--page-server --ps-socket 9") == 1
    lazy = " ".join(dump_argv(used, 7, Dump(images=images, server=9, ready=5), ()))
    assert "--lazy-pages --status-fd 5 --ps-socket 9" in lazy and "--page-server" not in lazy
    tracked = Dump(images=images, previous=Path("/i/0"), round=True, tracked=True)
    words = " ".join(dump_argv(used, 7, tracked, ()))
    assert words.startswith("criu pre-dump ") and "--track-mem --prev-images-dir ../0 " in words


@pytest.mark.parametrize(
    ("version", "status", "reason"),
    [("Version: 3.17\n", 0, "is of version 3.17, older than 4.2"), ("Version: 4.2\n", 1, "check: ")],
)
def test_one_that_does_not_is_named_with_what_mends_it(
    tmp_path: Path, version: str, status: int, reason: str
) -> None:
    argv = ("/usr/sbin/criu", "check")
    host = FakeHost(
        programs={"criu": "/usr/sbin/criu"},
        commands={
            ("/usr/sbin/criu", "--version"): version,
            argv: answer(*argv, status=status, stderr="no kernel support"),
        },
    )
    found = find_criu(host, ImageStore(tmp_path))
    assert isinstance(found, Unavailable) and reason in found.reason and found.remedy == BUILD


def test_without_one_the_image_is_the_remedy(tmp_path: Path) -> None:
    found = find_criu(FakeHost(missing=["criu"]), ImageStore(tmp_path))
    assert found == Unavailable(reason="CRIU is not installed", remedy=BUILD)


def test_that_of_a_tree_is_started_by_the_loader_of_the_tree(tmp_path: Path) -> None:
    assert list(started_from(tmp_path)) == []
    for file in ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu/libc.so.6", "usr/sbin/criu"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    assert list(started_from(tmp_path)) == [
        (
            *(f"{tmp_path}/usr/lib64/ld-linux-x86-64.so.2", "--library-path"),
            *(f"{tmp_path}/usr/lib/x86_64-linux-gnu", f"{tmp_path}/usr/sbin/criu"),
        )
    ]


def test_a_script_runs_it_for_programs_that_take_one_path(tmp_path: Path) -> None:
    made = script(TOOLS, bound_to_tool(TOOLS, "l", ("echo", "a b")), tmp_path)
    enter = "/t/nm-box enter --pid 0 --die-with-parent --label l --"
    assert made.read_text() == f"#!/bin/sh\nexec {enter} echo 'a b' \"$@\"\n"
    assert made.stat().st_mode & 0o777 == 0o755


def test_a_script_is_run_by_a_program_elsewhere_where_no_file_can_be_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    for _ in range(2):
        made = write_script(TOOLS, tmp_path / "freeze", "#!/bin/sh\nexit 0\n")
    assert made.readlink() == Path(TOOLS / "nm-box")
    assert (tmp_path / "freeze.sh").read_text() == "#!/bin/sh\nexit 0\n"


def test_it_notes_the_pid_of_the_one_that_restores(tmp_path: Path) -> None:
    made = script(TOOLS, ("sh", "-c", "echo $$"), tmp_path, restores=tmp_path)
    for words in (("swrk", "14"), ("swrk", "3")):
        told = subprocess.run([made, *words], capture_output=True, text=True, check=True).stdout
        assert read_pid(tmp_path / "criu.pid") == int(told)


@pytest.mark.parametrize(("words", "waits"), [(("swrk", "3"), True), (("swrk", "14"), False)])
def test_only_a_restore_waits(words: tuple[str, ...], waits: bool, tmp_path: Path) -> None:
    os.mkfifo(hold := tmp_path / "hold")
    made = script(TOOLS, ("true",), tmp_path, hold=hold)
    with subprocess.Popen([made, *words]) as running:
        if waits:
            hold.write_text("\n")
        assert running.wait(60) == 0


def test_mounts_of_the_machine_are_not_those_that_the_instance_made() -> None:
    assert external_mounts(MOUNTS, own_network=False) == ("/data", "/sys", "/sys/fs/cgroup", "/dev")
    assert external_mounts(MOUNTS, own_network=True) == ("/data", "/sys/fs/cgroup", "/dev")


def test_the_statistics_of_a_dump() -> None:
    dump = b"\x08\xe8\x07\x10\xd0\x0f\x38\x03"  # freezing_time 1000, frozen_time 2000, pages_written 3
    message = b"\x0a" + bytes([len(dump)]) + dump
    stats = struct.pack("<III", 0x55105940, 0x57093306, len(message)) + message
    assert read_statistics(stats) == DumpStatistics(freezing=0.001, frozen=0.002, written=12288)
    for torn in (b"", stats[:10], stats[:13], stats[:12] + b"\x0a\x00"):
        with pytest.raises(RunError, match="stats-dump"):
            read_statistics(torn)


def test_where_the_memory_is(tmp_path: Path) -> None:
    entries = [b"\x08\x01", b"\x08\x05\x20\x04\x28\x07", b"\x08\x09\x20\x02\x28\x03"]  # head, present, lazy
    pagemap = bytes(8) + b"".join(struct.pack("<I", len(e)) + e for e in entries)
    assert read_pagemap(pagemap) == Pagemap(pages=1, present=7 * 4096, lazy=3 * 4096)
    for torn in (pagemap[:-1], pagemap[:9], pagemap[:8]):
        with pytest.raises(RunError, match="pagemap"):
            read_pagemap(torn)
    (tmp_path / "pagemap-5.img").write_bytes(pagemap)
    (tmp_path / "pages-1.img").write_bytes(bytes(7 * 4096))
    check_images(tmp_path)
    (tmp_path / "pages-1.img").write_bytes(bytes(4096))
    with pytest.raises(RunError, match=r"pages-1.img has 4096 of 28672 bytes"):
        check_images(tmp_path)


def test_the_first_error_that_explains(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert first_error(log) == ""
    log.write_text(
        "(00.05) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not"
        " permitted\n"
        "(00.06) Warn  (x.c:1): slow\n"
        "(00.07) Error (criu/sk-unix.c:1): unix: External socket is used\n"
        "(00.08) Error (criu/cr-dump.c:1): Dumping FAILED.\n"
    )
    assert first_error(log) == "unix: External socket is used"
    log.write_text(
        "(00.06)      1: Error (criu/sk-unix.c:1651): unix: Can't bind id 0x6 addr : Address already in use\n"
        "(00.07) Error (criu/cr-restore.c:2331): Restoring FAILED.\n"
    )
    assert first_error(log) == "unix: Can't bind id 0x6 addr : Address already in use"
    log.write_text(  # without times, as CRIU writes errors and warnings alone
        "     1: Error (criu/sk-unix.c:1651): unix: Can't bind id 0x6 addr : Address already in use\n"
        "Error (criu/cr-restore.c:2331): Restoring FAILED.\n"
    )
    assert first_error(log) == "unix: Can't bind id 0x6 addr : Address already in use"


HARMLESS = "Error (criu/cgroup.c:2055): cg: cgroupd: recv req error"
LOST = "Error (criu/uffd.c:1306): uffd: Failed sending restore finished indication: Broken pipe"


def restore_lazily(images: Path, error: str, then: str) -> float:
    """Run a restore whose fetcher of memory has ended, and which writes an error and the PID of a process.
    Return for how many seconds it was ended."""
    images.mkdir()
    pid = f"sleep 600 & {then} >{images}/restored.pid"
    words = ["sh", "-c", f'exec 3>>{images}/restore.log; echo "$1" >&3; {pid}; sleep 600', "sh", error]
    environment = Environment(name="e", backend="b", placements=())
    request = InstanceRequest(
        label=f"nearmetal-none-{os.getpid()}",
        hostname="h",
        environment=environment,
        cpus=(0,),
        seat=None,
        binds=(),
        scratch=images,
        lazy=True,
    )
    with restoring_from(LocalHost(), request, words, images) as restored:
        assert restored > 0
        begin = time.monotonic()
    return time.monotonic() - begin


def test_an_error_of_a_lazy_restore_without_a_fetcher_is_no_loss_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that fetches memory ends when it has fetched everything."""
    monkeypatch.setattr(criu, "LOOK_AT_CRIU", 0.02)
    monkeypatch.setattr(criu_restoring, "_END_SECONDS", 0.1)
    assert restore_lazily(tmp_path / "a", HARMLESS, "sleep 0.3; echo $!") > 0
    with pytest.raises(RunError, match="the program that fetches its memory has ended"):
        restore_lazily(tmp_path / "b", LOST, "sleep 600; echo $!")


def test_a_criu_that_has_lost_memory_is_not_waited_for(tmp_path: Path) -> None:
    assert restore_lazily(tmp_path / "a", LOST, "echo $!") < criu_restoring._END_SECONDS


def test_a_dump_is_not_waited_for_if_its_instance_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CRIU, which traces it, would wait forever. It kills the instance itself after the last file."""
    monkeypatch.setattr(criu, "LOOK_AT_CRIU", 0.02)
    killed = subprocess.Popen(["sleep", "600"])
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    output = tmp_path / "output"
    for pid, written, seconds in (
        (killed.pid, False, 60.0),
        (killed.pid, True, 0.2),
        (os.getpid(), False, 0.2),
    ):
        (inventory := tmp_path / "inventory.img").unlink(missing_ok=True)
        if written:
            inventory.touch()
        process = LocalHost().start(["sleep", "600"], stdout=output, stderr=output)
        begin = time.monotonic()
        with pytest.raises(RunError, match="no checkpoint") as raised:
            why_stuck = partial(why_dump_is_stuck, pid, tmp_path)
            RunningDump(process, tmp_path, output, why_stuck).finish(seconds)
        assert ("the first process of the instance has ended" in raised.value.what) == (seconds == 60.0)
        assert time.monotonic() - begin < 50.0 and process.poll() is not None
    killed.wait()


def test_a_dump_is_not_waited_for_if_its_criu_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container program would wait for it as long as a child of it lives."""
    monkeypatch.setattr(criu, "LOOK_AT_CRIU", 0.02)
    output, log = tmp_path / "output", tmp_path / "dump.log"
    (tmp_path / "images").symlink_to(tmp_path)
    log.write_text("(00.000000) Version")
    for words, seconds in (("sleep 600", 60.0), (f"exec 3<{log}; sleep 600", 0.5)):
        process = LocalHost().start(["sh", "-c", words], stdout=output, stderr=output)
        begin = time.monotonic()
        with pytest.raises(RunError, match="no checkpoint") as raised:
            images = tmp_path / "images"
            why_stuck = partial(why_dump_is_stuck, os.getpid(), images)
            RunningDump(process, images, output, why_stuck).finish(seconds)
        assert ("CRIU has ended" in raised.value.what) == (seconds == 60.0)
        assert time.monotonic() - begin < 50.0 and process.poll() is not None


def test_what_is_refused_has_a_remedy() -> None:
    plain = Environment(name="e", backend="b", placements=(), attachment=Attachment.NONE)
    assert Native().refuses_checkpoint(FakeHost(), plain) is None
    as_user = Native().refuses_checkpoint(FakeHost(root=False), plain)
    imaged = Native().refuses_checkpoint(FakeHost(), replace(plain, image="trixie"))
    assert as_user is not None and as_user.remedy == "run as root"
    assert imaged is not None and imaged.remedy == "image: host"


def test_a_command_without_a_caller() -> None:
    enter = ("nm-box", "enter", "--by-init", "name", "--cpus", "1", "--")
    instance = ProgramInstance(label="l", hostname="h", pid=1, phases={}, cgroups={}, enter=enter)
    assert Native().command_alone(instance, ["true"]) == [
        *("nm-box", "enter", "--by-init", "name", "--detached", "--cpus", "1", "--", "true")
    ]
