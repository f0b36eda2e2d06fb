"""Checkpoint, restore and move of instances of a user's own, from the command line: processes by CRIU, and
guests of a QEMU that the user has started."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import NEARMETAL
from tests.patience import until
from tests.system.moving_case import MEMORY, ROOT, Program, criu, program, state
from tests.system.test_quick import left_behind, nearmetal

from nearmetal.api.moves import moving
from nearmetal.api.moves.locks import only_one
from nearmetal.environments.external import Saved, write_saved
from nearmetal.environments.qemu.qmp import Monitor
from nearmetal.errors import RunError

pytestmark = pytest.mark.apart
QEMU = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None and not os.environ.get("CI"), reason="QEMU is not installed"
)
__all__ = ["criu", "program", "state"]
BOOT = Path(__file__).parent / "programs" / "dirty_guest.S"


def done_json(*words: str, cwd: Path) -> Any:
    done = nearmetal(*words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.more
@ROOT
def test_a_process_is_written_to_files_and_restored(program: Program, tmp_path: Path) -> None:
    plan = done_json("checkpoint", str(program.pid), "--to", "i", "--dry-run", cwd=tmp_path)
    assert plan["instance"] == f"pid:{program.pid}" and plan["method"] == "criu"
    assert MEMORY < plan["memory_bytes"] < 4 * MEMORY and not (tmp_path / "i").exists()
    done = done_json("checkpoint", f"pid:{program.pid}", "--to", "i", cwd=tmp_path)
    assert done["now"] is None and MEMORY < done["bytes"] < 4 * MEMORY and not program.running
    before = program.passes
    assert left_behind(tmp_path) == []
    assert nearmetal("clean", cwd=tmp_path).returncode == 0, "it spares the images"
    plan = done_json("restore", "i", "--dry-run", cwd=tmp_path)
    assert not plan["prevented"] and plan["bytes"] == done["bytes"] and plan["total"]["high"] > 0
    assert {f["answer"] for f in plan["findings"]} == {"fine"}, plan
    assert not program.copies and program.passes == before
    back = done_json("restore", "i", cwd=tmp_path)
    assert back["now"] == f"pid:{program.pid}" and program.running
    assert left_behind(tmp_path) == [] and nearmetal("clean", cwd=tmp_path).returncode == 0
    until(lambda: program.passes > before, "a pass after the restore")
    program.goes_on()


@ROOT
def test_a_process_goes_on_after_a_checkpoint_that_keeps_it(program: Program, tmp_path: Path) -> None:
    done = done_json("checkpoint", f"{program.pid}", "--to", "i", "--keep-running", cwd=tmp_path)
    assert done["now"] == f"pid:{program.pid}" and program.running
    program.goes_on()
    plan = nearmetal("restore", "i", "--dry-run", cwd=tmp_path)
    assert plan.returncode == 3 and f"PID {program.pid} is taken\n          next: end that" in plan.stdout
    assert plan.stdout.startswith(f"restore pid:{program.pid} from i: would fail\n")
    taken = nearmetal("restore", "i", cwd=tmp_path)
    assert taken.returncode == 4 and f"PID {program.pid} is taken" in taken.stderr
    program.goes_on()
    image = next((tmp_path / "i").glob("pages-*.img"))
    os.truncate(image, image.stat().st_size - 4096)
    torn = nearmetal("restore", "i", cwd=tmp_path)
    assert torn.returncode == 2 and f"image {image.name} has " in torn.stderr


LISTENS = """
import os, socket, sys, time
with socket.socket() as listening:
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    with open(sys.argv[1], "a", buffering=1) as out:
        out.write(f"{os.getpid()} {listening.getsockname()[1]}\\n")
        while True:
            out.write(f"on\\n")
            time.sleep(0.02)
"""


@ROOT
def test_a_process_whose_address_is_taken_waits_for_it(tmp_path: Path, criu: None, state: Path) -> None:
    out = tmp_path / "out"
    words = ["setsid", "--fork", sys.executable, "-c", LISTENS, str(out)]
    with (tmp_path / "errors").open("wb") as errors:
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, check=True)
    until(lambda: out.exists() and "on" in out.read_text(), "the program")
    pid, port = map(int, out.read_text().split()[:2])
    try:
        assert done_json("checkpoint", f"pid:{pid}", "--to", "i", cwd=tmp_path)["now"] is None
        before = out.read_text()
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
            other.listen()
            plan = nearmetal("restore", "i", "--dry-run", cwd=tmp_path)
            said = f"127.0.0.1:{port} listening: another program uses it"
            assert plan.returncode == 3 and said in plan.stdout
            refused = nearmetal("restore", "i", cwd=tmp_path)
            assert refused.returncode == 4 and "Traceback" not in refused.stderr, refused.stderr
            assert out.read_text() == before
        assert done_json("restore", "i", cwd=tmp_path)["now"] == f"pid:{pid}"
        until(lambda: out.read_text() != before, "the program after the restore")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@ROOT
def test_moves_of_a_process_correct_the_next_prediction(
    program: Program, tmp_path: Path, state: Path
) -> None:
    for number in range(3):
        done = done_json("migrate", f"{program.pid}", "--to", f"./i{number}", cwd=tmp_path)
        assert done["now"] == f"pid:{program.pid}" and done["total"] > 0
        program.goes_on()
    first = done["plan"]["methods"]["criu"]["total"]
    lines = [json.loads(line) for line in (state / "moves.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["pid migrate directory"] * 3
    plan = done_json("migrate", f"{program.pid}", "--to", "./i9", "--dry-run", cwd=tmp_path)
    now = plan["methods"]["criu"]["total"]
    assert now != first
    assert (
        min(line["total"] for line in lines) * 0.5 < now["value"] < max(line["total"] for line in lines) * 2
    )


@ROOT
def test_a_process_that_cannot_be_written_goes_on(tmp_path: Path, criu: None) -> None:
    """CRIU writes no process that has a descriptor of userfaultfd."""
    code = "import ctypes, time; print(ctypes.CDLL(None).syscall(323, 0) > 2, flush=True); time.sleep(1000)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "True\n"
        done = nearmetal("checkpoint", f"pid:{child.pid}", "--to", "i", cwd=tmp_path)
        assert done.returncode == 4 and "which continues: Can't dump file" in done.stderr
        assert child.poll() is None and not list((tmp_path / "i").glob("*.img"))
    finally:
        child.kill()
        child.communicate()


# ----------------------------------------------------------------------------------------------- containers

LOOP = """\
exec >>/data/log 2>&1 </data/empty
i=0
while :; do i=$((i + 1)); echo $i >>/data/out; /bin/sleep 0.05; done
"""
NAME = f"nmtest{os.getpid()}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root file system with a shell, and a program that counts."""
    made = tmp_path / NAME / "rootfs"
    for name in ("proc", "dev", "data"):
        (made / name).mkdir(parents=True)
    for shell in ("sh", "sleep"):
        path = Path(f"/bin/{shell}").resolve()
        libraries = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for file in (str(path), *re.findall(r"/\S+", libraries)):
            (made / file[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, made / file[1:])
        if not (made / "bin" / shell).exists():
            (made / "bin").mkdir(exist_ok=True)
            shutil.copy(path, made / "bin" / shell)
    (made / "data" / "empty").touch()
    (made / "data" / "run").write_text(LOOP)
    return made


def started_runc(root: Path) -> str:
    bundle = {
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/sh", "/data/run"], "cwd": "/"},
        "root": {"path": str(root)},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]},
    }
    (root.parent / "config.json").write_text(json.dumps(bundle))
    words = ["runc", "run", "--detach", "--bundle", str(root.parent), NAME]
    with (root.parent / "said").open("wb") as said:
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=True)
    return NAME


def started_lxc(root: Path) -> str:
    lines = {
        "uts.name": "web",
        "rootfs.path": f"dir:{root}",
        "init.cmd": "/bin/sh /data/run",
        "console.path": "none",
        "tty.max": "0",
        "pty.max": "1",
        "mount.auto": "proc:rw",
        "net.0.type": "empty",
    }
    (root.parent / "config").write_text("".join(f"lxc.{k} = {v}\n" for k, v in lines.items()))
    where = ["-P", str(root.parents[1]), "-n", NAME]
    with (root.parent / "said").open("wb") as said:
        subprocess.run(["lxc-start", *where, "-d"], stdout=said, stderr=said, check=True)
    return f"lxc:{root.parent}"


@ROOT
@pytest.mark.parametrize("kind", ["runc", "lxc"])
def test_a_container_is_written_restored_and_moved(kind: str, root: Path, tmp_path: Path, criu: None) -> None:
    if shutil.which({"runc": "runc", "lxc": "lxc-checkpoint"}[kind]) is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{kind} is not installed")
    out = root / "data" / "out"

    def count() -> int:
        lines = out.read_text().split() if out.exists() else []
        assert lines == [str(i + 1) for i in range(len(lines))], "it went on as it was, and only once"
        return len(lines)

    name = (started_runc if kind == "runc" else started_lxc)(root)
    try:
        until(lambda: count() > 2, "the program")
        full = f"{kind}:{name.removeprefix('lxc:')}"
        assert done_json("checkpoint", name, "--to", "i", cwd=tmp_path)["now"] is None
        before = count()
        assert done_json("restore", "i", cwd=tmp_path)["now"] == full
        until(lambda: count() > before, "the program after the restore")
        assert done_json("migrate", name, "--to", "./m", cwd=tmp_path)["now"] == full
        before = count()
        until(lambda: count() > before, "the program after the move")
        assert left_behind(tmp_path) == []
    finally:
        if kind == "runc":
            subprocess.run(["runc", "delete", "--force", NAME], check=False)
        else:
            subprocess.run(["lxc-stop", "-P", str(root.parents[1]), "-n", NAME, "-k"], check=False)


# ----------------------------------------------------------------------------------------------------- QEMU


class Guest:
    """A QEMU of a user's, whose guest changes pages and writes a dot after each pass."""

    def __init__(self, directory: Path, name: str, *more: str, memory: int = 256) -> None:
        self.qmp, self.serial = directory / name, directory / f"{name}.serial"
        boot = f"file={directory / 'boot.img'},format=raw,file.locking=off"
        words = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-machine", "pc", "-m", str(memory)]
        words += ["-accel", "tcg,tb-size=32", "-drive", boot, "-serial", f"file:{self.serial}"]
        words += ["-qmp", f"unix:{self.qmp},server=on,wait=off", *more]
        self.directory = directory
        env = os.environ | {"PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}  # of its commands too
        self.process = subprocess.Popen(words, env=env, cwd=directory, stderr=subprocess.DEVNULL)
        until(lambda: self.qmp.is_socket(), "the socket")

    @property
    def dots(self) -> int:
        return self.serial.read_text().count(".") if self.serial.exists() else 0

    def goes_on(self) -> None:
        before = self.dots
        until(lambda: self.dots > before, "another pass")
        assert self.process.poll() is None


@pytest.fixture
def guests(tmp_path: Path) -> Iterator[list[Guest]]:
    with two_guests(tmp_path) as made:
        yield made


@contextmanager
def two_guests(tmp_path: Path) -> Iterator[list[Guest]]:
    """One that runs, and one that waits for it."""
    for first, last in ((0x100000, 0x2100000),):
        symbols = {"FIRST": first, "LAST": last, "WAIT": 20_000_000}
        words = [w for name, value in symbols.items() for w in ("--defsym", f"{name}={value}")]
        subprocess.run(["as", "--32", *words, "-o", tmp_path / "boot.o", BOOT], check=True)
    link = ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary"]
    subprocess.run([*link, "-o", tmp_path / "boot.img", tmp_path / "boot.o"], check=True)
    made = [Guest(tmp_path, "a"), Guest(tmp_path, "b", "-incoming", "defer")]
    try:
        until(lambda: made[0].dots > 1, "the guest")
        yield made
    finally:
        for guest in made:
            guest.process.kill()
            guest.process.wait()


@QEMU
def test_a_guest_moves_to_a_waiting_qemu_by_the_method_that_keeps_the_bound(
    guests: list[Guest], tmp_path: Path
) -> None:
    source, target = guests
    words = ("migrate", f"qmp:{source.qmp}", "--to", "./b", "--downtime", "2s")
    plan = done_json(*words, "--dry-run", cwd=tmp_path)
    assert set(plan["methods"]) == {"precopy", "offline", "postcopy", "multifd"} and plan["bound_holds"]
    assert plan["working_set"]["low"] <= 33 << 20 <= plan["working_set"]["high"] * 1.1
    source.goes_on()
    done = done_json(*words, cwd=tmp_path)
    assert done["plan"]["reason"].startswith(f"{done['plan']['method']} keeps 2000 ms with a downtime of ")
    assert done["now"] == f"qmp:{target.qmp.relative_to(tmp_path)}" and done["bytes"] > 32 << 20
    assert source.process.wait(60) == 0, "only one copy can run"
    target.goes_on()
    assert done["downtime"] <= done["total"]
    assert left_behind(tmp_path) == [] and not list(tmp_path.glob(".nearmetal-*"))


@QEMU
@pytest.mark.parametrize("method", ["precopy", "postcopy"])
def test_a_guest_goes_on_in_a_qemu_that_was_started_with_s(
    guests: list[Guest], tmp_path: Path, method: str
) -> None:
    stopped = Guest(tmp_path, "c", "-incoming", "defer", "-S")
    try:
        done = done_json("migrate", "./a", "--to", "./c", "--method", method, cwd=tmp_path)
        assert done["total"] < 60
        stopped.goes_on()
    finally:
        stopped.process.kill()
        stopped.process.wait()


@QEMU
def test_a_guest_is_written_to_a_file_and_restored_into_another_qemu(
    guests: list[Guest], tmp_path: Path
) -> None:
    source, target = guests
    kept = done_json("checkpoint", "./a", "--to", "kept dir", "--keep-running", cwd=tmp_path)
    assert kept["now"] == "qmp:a" and kept["bytes"] > 32 << 20
    source.goes_on()
    ended = done_json("checkpoint", "./a", "--to", "i", cwd=tmp_path)
    assert ended["now"] is None and source.process.wait(60) == 0
    assert done_json("restore", "i", "--into", "qmp:b", cwd=tmp_path)["now"] == "qmp:b"
    target.goes_on()


@QEMU
@pytest.mark.parametrize("method", ["precopy", "offline"])
def test_a_guest_goes_on_when_its_move_fails(guests: list[Guest], tmp_path: Path, method: str) -> None:
    source, target = guests
    words = ("migrate", "./a", "--to", "./b", "--method", method, "--bandwidth", "2 MiB/s")
    done = nearmetal(*words, "--time-limit", "3s", cwd=tmp_path)
    assert done.returncode == 4 and f"it continues at its source: the move by {method}" in done.stderr
    source.goes_on()
    assert target.process.wait(60) is not None, "the destination has half a guest, and is ended"
    with Monitor(source.qmp) as monitor:
        assert monitor.ask("query-migrate-parameters")["max-bandwidth"] != 2 << 20


@QEMU
def test_a_guest_does_not_move_to_an_unlike_qemu(guests: list[Guest], tmp_path: Path) -> None:
    small = Guest(tmp_path, "c", "-incoming", "defer", memory=128)
    try:
        done = nearmetal("migrate", "./a", "--to", "./c", cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "c: the QEMU that waits has memory 128 MiB instead of 256 MiB" in done.stderr
        kept = nearmetal("checkpoint", "./a", "--to", "i", "--keep-running", cwd=tmp_path)
        assert kept.returncode == 0, kept.stderr
        plan = nearmetal("restore", "i", "--into", "qmp:c", "--dry-run", cwd=tmp_path)
        assert plan.returncode == 3 and "128 MiB, and was 256 MiB" in plan.stdout
        guests[0].goes_on()
        assert small.process.poll() is None, "it still waits"
    finally:
        small.process.kill()
        small.process.wait()


@QEMU
def test_a_torn_state_of_a_guest_is_not_restored(guests: list[Guest], tmp_path: Path) -> None:
    ended = done_json("checkpoint", "./a", "--to", "i", cwd=tmp_path)
    assert ended["now"] is None
    (file,) = (tmp_path / "i").glob("*.state")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    torn = nearmetal("restore", "i", "--into", "qmp:b", cwd=tmp_path)
    assert torn.returncode == 2 and file.name in torn.stderr and "Traceback" not in torn.stderr
    file.write_bytes(whole)
    assert done_json("restore", "i", "--into", "qmp:b", cwd=tmp_path)["now"] == "qmp:b"
    guests[1].goes_on()


@QEMU
def test_a_second_move_of_a_guest_is_refused_meanwhile(guests: list[Guest], tmp_path: Path) -> None:
    """Also by another path of its socket."""
    slow = ["migrate", "./a", "--to", "./b", "--method", "precopy", "--bandwidth", "1 MiB/s"]
    with subprocess.Popen([NEARMETAL, *slow], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as first:
        until(lambda: list(tmp_path.glob(".nearmetal-*")), "the first move")
        for socket_path in ("qmp:a", str(guests[0].qmp)):
            second = nearmetal("checkpoint", socket_path, "--to", "i", cwd=tmp_path)
            assert second.returncode == 3, second.stderr
            assert "is checkpointed, restored or moved by another command" in second.stderr
        first.send_signal(signal.SIGINT)
        said = first.communicate()[1]
    assert "it continues at its source" in said, said
    guests[0].goes_on()


@QEMU
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_guest_goes_on_whose_move_gets_a_signal(
    guests: list[Guest], tmp_path: Path, number: signal.Signals
) -> None:
    slow = ["migrate", "./a", "--to", "./b", "--method", "offline", "--bandwidth", "1 MiB/s"]
    with subprocess.Popen([NEARMETAL, *slow], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as tool:
        until(lambda: list(tmp_path.glob(".nearmetal-*")), "the move")
        tool.send_signal(number)
        said = tool.communicate()[1]
    assert tool.returncode == 4 and "it continues at its source: interrupted" in said, said
    guests[0].goes_on()


@QEMU
def test_a_guest_whose_file_is_not_whole_goes_on(guests: list[Guest], tmp_path: Path) -> None:
    """As on a disk that is full at the end of the file: QEMU does not ask how its command has ended."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cat").write_text("#!/bin/sh\n/bin/cat\nexit 1\n")
    (tmp_path / "bin" / "cat").chmod(0o755)
    done = nearmetal("checkpoint", "./a", "--to", "i", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert "it continues at its source: guest.state was not written whole" in done.stderr
    guests[0].goes_on()
    assert not list((tmp_path / "i").glob("*.state"))


@QEMU
def test_a_guest_whose_checkpoint_is_killed_comes_back_from_its_directory(
    guests: list[Guest], tmp_path: Path
) -> None:
    source, target = guests
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cat").write_text(
        '#!/bin/sh\n: >reached\nwhile [ ! -e go ]; do sleep 0.05; done\nexec /bin/cat "$@"\n'
    )
    (tmp_path / "bin" / "cat").chmod(0o755)
    words = [NEARMETAL, "checkpoint", "./a", "--to", "i"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE) as tool:
        until((source.directory / "reached").exists, "the copy")
        tool.kill()
    early = nearmetal("restore", "i", "--into", "qmp:b", cwd=tmp_path)
    assert early.returncode == 2 and "no complete checkpoint" in early.stderr
    (source.directory / "go").touch()
    until((tmp_path / "i" / "guest.state").exists, "the whole file")
    asked = nearmetal("checkpoint", "./a", "--to", "j", cwd=tmp_path)
    assert asked.returncode == 2 and "after a checkpoint: restore its directory, or cont here" in asked.stderr
    done = nearmetal("restore", "i", "--into", "qmp:b", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    target.goes_on()


@QEMU
def test_a_guest_whose_files_could_not_be_described_comes_back_as_it_is_said(
    guests: list[Guest], tmp_path: Path
) -> None:
    mistaken = tmp_path / "i" / ".nearmetal-checkpoint.json"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RunError) as refused:
        patch.setattr(moving, "write_saved", partial(_without_room, mistaken))
        moving.checkpoint(f"qmp:{guests[0].qmp}", tmp_path / "i", moving.MoveOptions())
    assert "nearmetal restore" in refused.value.remedy
    done = nearmetal("restore", "i", "--into", "qmp:b", cwd=tmp_path)  # the disk is still full
    assert done.returncode == 0, done.stderr
    guests[1].goes_on()


def _without_room(at: Path, directory: Path, saved: Saved) -> int:
    at.mkdir()
    return write_saved(directory, saved)


@QEMU
def test_a_waiting_qemu_takes_one_guest_at_a_time(guests: list[Guest], tmp_path: Path) -> None:
    source, target = guests
    with only_one(f"qmp:{target.qmp}"):
        done = nearmetal("migrate", "./a", "--to", "./b", cwd=tmp_path)
    assert done.returncode == 3 and "by another command" in done.stderr, done.stderr
    source.goes_on()
    with Monitor(target.qmp) as monitor:
        assert monitor.ask("query-status")["status"] == "inmigrate"


@QEMU
def test_a_guest_whose_file_has_no_room_goes_on(guests: list[Guest], tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", full]).returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no tmpfs may be mounted")
    try:
        done = nearmetal("checkpoint", "./a", "--to", "full/i", cwd=tmp_path)
        assert done.returncode == 3 and "a checkpoint needs up to 320 MiB" in done.stderr
        assert "8 MiB are free" in done.stderr and done.stderr.count("next:") == 1
        guests[0].goes_on()
    finally:
        subprocess.run(["umount", full], check=True)


# ------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["checkpoint", "pid:4194303", "--to", "i"], "there is no process 4194303"),
        (["migrate", "pid:4194303", "--to", "nowhere"], "there is no process 4194303"),
        (["checkpoint", "pid:x", "--to", "i"], "'x' is not a PID"),
        (["checkpoint", "pid:1", "--to", "i"], "'1' is not a PID"),
        (["checkpoint", "vm:x", "--to", "i"], "no running instance is named 'vm:x'"),
        (["checkpoint", "qmp:silent", "--to", "i"], "silent is not a free QMP socket: it does not greet"),
        (["checkpoint", "./a-file", "--to", "i"], "a-file is not a QMP socket"),
        (["migrate", "qmp:nosuch", "--to", "./b"], "nosuch is not a QMP socket: No such file"),
        (["restore", "."], ". contains no complete checkpoint"),
        (["migrate", "1", "--to", "h", "--downtime", "1s", "--total", "1s"], "are two bounds"),
        (["migrate", "1", "--to", "h", "--bandwidth", "9"], "--bandwidth: "),
        (["restore", ".", "--dry-run"], ". contains no complete checkpoint"),
    ],
)
@pytest.mark.more
def test_a_mistake_has_one_reason_and_one_cure(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        done = nearmetal(*words, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert done.stderr.count("next:") == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "i").exists()


def test_without_criu_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    if shutil.which("criu", path="/usr/bin:/bin"):
        pytest.skip("CRIU is installed")
    child = subprocess.Popen(["sleep", "1000"])
    try:
        done = nearmetal("checkpoint", str(child.pid), "--to", "i", cwd=tmp_path)
    finally:
        child.kill()
        child.wait()
    assert done.returncode == 3 and "CRIU on localhost: " in done.stderr
    assert "nearmetal image build criu" in done.stderr or "run as root" in done.stderr
