"""A program of a user's that knows whether it goes on as it was, another host, and what acts in the middle of
a move. As a program, it is the tool that is killed: INSTANCE DESTINATION METHOD, and a file for ssh -F."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.patience import until
from tests.system.checkpoint_case import find_or_build_criu

from nearmetal.api.moves import moving
from nearmetal.environments import Unavailable
from nearmetal.errors import NearmetalError
from nearmetal.host import LocalHost
from nearmetal.host.processes.labelled import tree
from nearmetal.host.ssh import SshWay
from nearmetal.lifecycle import Method
from nearmetal.node.criu import find_criu

HOST = LocalHost()
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="CRIU needs root")
MEMORY = 32 << 20
#: Writes a number into each page of its memory, pass after pass, and says when a page holds another one.
PROGRAM = f"""
import mmap, os, sys, time
pages = {MEMORY} // 4096
memory = mmap.mmap(-1, {MEMORY}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
out = open(sys.argv[1], "a", buffering=1)
for number in range(1 << 40):
    for page in range(pages):
        at = page * 4096
        wrong = int.from_bytes(memory[at:at + 8], "little") != number
        if wrong:
            out.write("wrong\\n")
        memory[at:at + 8] = (number + 1).to_bytes(8, "little")
    out.write(f"{{os.getpid()}} {{number}}\\n")
    time.sleep(0.002)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Earlier moves of the user do not count, and those of the tests are not kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "nearmetal"


@pytest.fixture(scope="module")
def criu() -> None:
    found = find_or_build_criu()
    if isinstance(found, Unavailable):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{found.reason}; {found.remedy}")


class Program:
    """A program of a user's, that no shell waits for."""

    def __init__(self, directory: Path, *, net: Sequence[str] = ()) -> None:
        """net: words in front of it that choose its network namespace."""
        self.out = directory / "out.txt"
        words = [*net, "setsid", "--fork", sys.executable, "-c", PROGRAM, str(self.out)]
        with (directory / "errors.txt").open("wb") as errors:
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, check=True)
        until(lambda: self.passes, "the first pass")
        self.pid = int(self.out.read_text().split()[0])

    @property
    def passes(self) -> int:
        text = self.out.read_text() if self.out.exists() else ""
        assert "wrong" not in text
        return text.count("\n")

    @property
    def running(self) -> bool:
        return self.state in ("R", "S")

    @property
    def state(self) -> str:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return ""

    @property
    def copies(self) -> dict[int, str]:
        """Every process that is this program, in any PID namespace, running or stopped, with its state."""
        found = {}
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                mine = str(self.out).encode() in (directory / "cmdline").read_bytes().split(b"\0")
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                if mine and fields[0] not in "ZX":
                    found[int(directory.name)] = fields[0]
        return found

    def goes_on(self) -> None:
        """It has not begun anew, and only one of it writes."""
        before = self.passes
        until(lambda: self.passes > before + 1, "two passes more")
        numbers = [int(line.split()[1]) for line in self.out.read_text().splitlines()]
        assert numbers == list(range(len(numbers))) and len(self.copies) == 1

    def end(self) -> None:
        for pid in self.copies:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.copies, "the end of the program")


@pytest.fixture
def program(tmp_path: Path, criu: None) -> Iterator[Program]:
    made = Program(tmp_path)
    try:
        yield made
    finally:
        made.end()


@dataclass(frozen=True, kw_only=True)
class There:
    """The host 'there', which is this machine by ssh, with process IDs of its own.

    programs: directory of its own programs, first in its PATH.
    config: file for ssh -F.
    daemon: its sshd.
    """

    programs: Path
    config: Path
    daemon: subprocess.Popen[bytes]

    def left(self) -> list[Path]:
        return list(Path("/var/tmp").glob("nearmetal-move.*"))

    def make_criu(self, *before: str) -> None:
        """Write its CRIU, with shell commands in front."""
        found = find_criu(HOST)
        assert not isinstance(found, Unavailable)
        lines = ["#!/bin/sh", *before, f'exec {shlex.join(found.argv)} "$@"']
        (self.programs / "criu").write_text("\n".join([*lines, ""]))
        (self.programs / "criu").chmod(0o755)

    def cut(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End its connections, as a cut link does in the end; with SIGSTOP they only fall silent."""
        listener = children(self.daemon.pid)[0]
        for pid in tree(listener)[1:]:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                    os.kill(pid, number)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def there(tmp_path: Path, criu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[There]:
    with another_host(tmp_path) as made:
        monkeypatch.setattr(moving, "SshWay", partial(SshWay, config=str(made.config)))
        yield made


@contextmanager
def another_host(tmp_path: Path, address: str = "127.0.0.1", net: Sequence[str] = ()) -> Iterator[There]:
    """Run the host 'there' until exit, at an address in the network namespace that words in front choose."""
    if shutil.which("sshd", path="/usr/sbin") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("sshd is not installed")
    programs = tmp_path / "there"
    programs.mkdir()
    for key in ("client", "server"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key], check=True)
    with socket.socket() as free:  # also free in an empty namespace
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = {
        "Port": port,
        "ListenAddress": address,
        "HostKey": tmp_path / "server",
        "AuthorizedKeysFile": tmp_path / "client.pub",
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
        "SetEnv": f"PATH={programs}:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    client = {
        "HostName": address,
        "Port": port,
        "User": "root",
        "IdentityFile": tmp_path / "client",
        "UserKnownHostsFile": tmp_path / "known",
        "StrictHostKeyChecking": "no",
    }
    for name, lines in (("sshd.conf", server), ("ssh.conf", {"Host": "there"} | client)):
        (tmp_path / name).write_text("".join(f"{k} {v}\n" for k, v in lines.items()))
    Path("/run/sshd").mkdir(exist_ok=True)
    with (tmp_path / "sshd.log").open("wb") as log:
        words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "/usr/sbin/sshd", "-D", "-e"]
        daemon = subprocess.Popen([*net, *words, "-f", str(tmp_path / "sshd.conf")], stderr=log)
    made = There(programs=programs, config=tmp_path / "ssh.conf", daemon=daemon)
    made.make_criu()
    try:
        until(lambda: "listening" in (tmp_path / "sshd.log").read_text(), "the sshd")
        yield made
    finally:
        daemon.kill()  # and with its first process everything in its PID namespace
        daemon.wait()


def at_moment(directory: Path, moment: str, *commands: str) -> dict[str, str]:
    """Let CRIU run shell commands once, at a moment at which it calls a script, and note that it did.

    Returns what CRIU needs in its environment. The commands may use $PPID, which is CRIU.
    """
    script, configuration = directory / "act", directory / "criu.conf"
    done = directory / "acted"
    lines = ["#!/bin/sh", f'[ "$CRTOOLS_SCRIPT_ACTION" = {moment} ] && [ ! -e {done} ] || exit 0']
    script.write_text("\n".join([*lines, f": >{done}", *commands, ""]))
    script.chmod(0o755)
    configuration.write_text(f"action-script {script}\n")
    return {"CRIU_CONFIG_FILE": str(configuration)}


def waits_for(file: Path) -> str:
    """Return a shell command that waits until a file exists."""
    return f"while [ ! -e {file} ]; do sleep 0.05; done"


def stats_dump(pages: int) -> bytes:
    """CRIU's stats-dump of a dump that wrote fewer than two million pages."""
    number = bytes([pages & 0x7F | 0x80, pages >> 7 & 0x7F | 0x80, pages >> 14])
    dump = b"\x08\x01\x10\x01\x38" + number
    message = b"\x0a" + bytes([len(dump)]) + dump
    return struct.pack("<III", 0x55105940, 0x57093306, len(message)) + message


def acted(directory: Path) -> bool:
    return (directory / "acted").exists()


def main(instance: str, to: str, method: str, config: str, *more: str) -> int:
    """Move an instance, as the command does. More: bandwidth and time limit."""
    vars(moving)["SshWay"] = partial(SshWay, config=config)
    limits = dict(word.split("=") for word in more)
    how = moving.MoveOptions(
        method=Method(method),
        bandwidth=float(limits["bandwidth"]) if "bandwidth" in limits else None,
        time_limit=float(limits.get("time_limit", moving.MoveOptions.time_limit)),
    )
    try:
        moving.migrate(instance, to, how)
    except NearmetalError as e:
        print(e, file=sys.stderr)
        return int(e.exit_code)
    return 0


def moved_by_a_tool(
    *words: str, env: dict[str, str], note: Path | None = None, net: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start main() in a process of its own. note: file for its PID."""
    argv = [*net, sys.executable, "-m", "tests.system.moving_case", *words]
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, **env, "PYTHONPATH": path}
    tool = subprocess.Popen(argv, env=variables, stderr=subprocess.PIPE, text=True)
    if note is not None:
        note.write_text(f"{tool.pid}\n")
    return tool


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
