"""Workers by ssh, with a daemon of our own on the loopback interface. Two names of it stand for two hosts."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.patience import until
from tests.system.engine_runs import claims, here, nearmetal, on, records, require_whole, started

pytestmark = [pytest.mark.more]
__all__ = ["here"]


@dataclass(frozen=True)
class Daemon:
    """config: a configuration of ssh that names it n1 and n2; known: its known_hosts."""

    config: Path
    known: Path

    @property
    def options(self) -> list[str]:
        return ["--engine-option", "hosts=n1,n2", "--engine-option", f"config={self.config}"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("sshd")
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    assert sshd is not None, "apt-get install openssh-server"
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True)
    shutil.copy(place / "user.pub", place / "authorized")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (place / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {place}/host\nAuthorizedKeysFile {place}/authorized\n"
        f"StrictModes no\nUsePAM no\nPidFile {place}/pid\nPermitRootLogin prohibit-password\n"
    )
    known = place / "known"
    known.write_text(f"[127.0.0.1]:{port} {(place / 'host.pub').read_text()}")
    config = place / "config"
    config.write_text(
        f"Host n1 n2\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {place}/user\n"
        f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)  # where it separates its privileges
    process = subprocess.Popen([sshd, "-D", "-e", "-f", place / "sshd_config"], stderr=subprocess.DEVNULL)
    try:
        until(lambda: _listens(port), "sshd listens", 30)
        yield Daemon(config, known)
    finally:
        process.terminate()
        process.wait(timeout=60)


def _listens(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def test_rounds_by_ssh(here: Path, daemon: Daemon) -> None:
    done = nearmetal(*on("ssh", 8, *daemon.options), cwd=here)
    assert done.returncode == 0, done.stderr
    require_whole(here, done.stdout, 8)
    assert len({r["run"] for r in records(here)}) == 2


def test_a_machine_whose_key_is_not_known_is_not_used(here: Path, daemon: Daemon) -> None:
    kept = daemon.known.read_text()
    stranger = daemon.config.with_name("stranger")
    stranger.write_text(
        daemon.config.read_text().replace(str(daemon.known), "/dev/null") + "  ControlPath none\n"
    )
    options = ["--engine-option", "hosts=n1,n2", "--engine-option", f"config={stranger}"]
    for control in Path("/run/nearmetal").glob("ssh-*"):
        control.unlink()  # an open connection needs no key
    done = nearmetal(*on("ssh", 8, *options), cwd=here)
    assert done.returncode == 4 and "Host key verification failed" in done.stderr
    assert "n1" in done.stderr and records(here) == [] and daemon.known.read_text() == kept


@pytest.mark.apart
def test_an_interrupted_run_ends_its_workers(here: Path, daemon: Daemon) -> None:
    run = started(*on("ssh", 3000, *daemon.options), cwd=here)
    until(lambda: len(claims(here, "done")) >= 2)
    run.terminate()
    _, said = run.communicate(timeout=600)
    assert run.returncode == 130 and "nearmetal resume" in said
    time.sleep(0.5)
    assert claims(here, "held") == []
    assert "running" not in nearmetal("status", cwd=here).stdout.replace("running now", "")
