"""Nodes for tests of ssh: on the loopback interface a daemon for each, with a host name and mounts of its
own."""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.patience import until


@contextmanager
def daemons(place: Path, nodes: Mapping[str, str], silent: tuple[str, ...] = ()) -> Iterator[Path]:
    """Run a daemon for each node. Yields a configuration of ssh that names them.

    place: an empty directory; known_hosts is the file `known` in it.
    nodes: names, with a shell line that prepares the machine that the node sees.
    silent: names of nodes where nothing listens.
    """
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    assert sshd is not None, "apt-get install openssh-server"
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True)
    shutil.copy(place / "user.pub", place / "authorized")
    ports = _free_ports(len(nodes) + len(silent))
    key = (place / "host.pub").read_text()
    (place / "known").write_text("".join(f"[127.0.0.1]:{port} {key}" for port in ports))
    hosts = "".join(
        f"Host {name}\n  Port {port}\n" for name, port in zip((*nodes, *silent), ports, strict=True)
    )
    config = place / "config"
    config.write_text(
        f"{hosts}Host *\n  HostName 127.0.0.1\n  IdentityFile {place}/user\n"
        f"  UserKnownHostsFile {place}/known\n  GlobalKnownHostsFile /dev/null\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)  # where it separates its privileges
    with ExitStack() as stack:
        for (name, line), port in zip(nodes.items(), ports, strict=False):
            settings = place / f"{name}.conf"
            settings.write_text(
                f"ListenAddress 127.0.0.1:{port}\nHostKey {place}/host\nStrictModes no\nUsePAM no\n"
                f"AuthorizedKeysFile {place}/authorized\nPidFile none\nPermitRootLogin prohibit-password\n"
            )
            script = f"hostname {shlex.quote(name)} && {line or 'true'} && exec {sshd} -D -e -f {settings}"
            process = subprocess.Popen(
                ["unshare", "--uts", "--mount", "sh", "-c", script], stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait, timeout=60)
            stack.callback(process.terminate)
            until(partial(_listens, port), f"sshd of {name} listens")
        yield config


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def _listens(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0
