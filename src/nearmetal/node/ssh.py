"""Instances reached by ssh instead of an agent.

Each instance runs an sshd on its own address, with keys made for this run only. The machine's own ssh
configuration is not read, and nothing is left behind.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..environments import Instance, Seat
from ..errors import RunError, UnavailableError
from ..host import Host, Process
from ..host.processes.labelled import LABEL_VARIABLE
from ..host.processes.running import await_true
from ..host.untrusted import UntrustedDirectory

PORT = 2222
START_SECONDS = 60.0
"""Seconds after which an sshd that does not listen has failed. Normally it takes about 20 ms."""
_ALIAS = "nearmetal"
_REMEDY = "apt-get install openssh-server openssh-client, in the image too, or write reach: agent"


@dataclass(frozen=True, kw_only=True)
class SshKeys:
    """Keys and programs by which mpirun reaches instances.

    directory: directory of both key pairs, readable by its owner only.
    user: the user of nearmetal, as which the servers run.
    ssh, sshd: paths of the programs.
    """

    directory: Path
    user: str
    ssh: str
    sshd: str


def make_keys(host: Host, scratch: Path) -> SshKeys:
    """Make a key pair for the client and one for all servers, in a new directory below scratch.

    Raises UnavailableError if ssh is not installed, or if nearmetal does not run as root: sshd changes its
    root directory and groups.
    """
    if not host.is_root():
        raise UnavailableError("an sshd in an instance needs root", remedy="run as root, or reach: agent")
    programs = {name: host.which(name) or host.which(f"/usr/sbin/{name}") for name in ("ssh", "sshd")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        raise UnavailableError(f"no {' and no '.join(missing)} here", remedy=_REMEDY)
    directory = scratch / "ssh"
    directory.mkdir(mode=0o700)
    for name in ("client", "server"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", _ALIAS, "-f", str(directory / name)]
        host.run(argv, timeout=START_SECONDS).require("no key pair", remedy=_REMEDY, error=UnavailableError)
    kind, key, *_ = (directory / "server.pub").read_text().split()
    (directory / "known_hosts").write_text(f"{_ALIAS} {kind} {key}\n")
    # Not getpass.getuser(), which trusts $LOGNAME: `su` leaves there who called it.
    user = pwd.getpwuid(os.geteuid()).pw_name
    return SshKeys(directory=directory, user=user, ssh=programs["ssh"] or "", sshd=programs["sshd"] or "")


def server_config(keys: SshKeys, address: str, environment: Mapping[str, str]) -> str:
    """Return the sshd_config(5) of one instance.

    environment: variables of every command that runs in it; their values contain no spaces.
    """
    given = " ".join(f"{name}={value}" for name, value in environment.items())
    lines = {
        "ListenAddress": address,
        "Port": str(PORT),
        "HostKey": str(keys.directory / "server"),
        "AuthorizedKeysFile": str(keys.directory / "client.pub"),
        "AllowUsers": keys.user,
        "PermitRootLogin": "prohibit-password",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "StrictModes": "no",  # A parent of the directory may be one that every user may change, such as /tmp.
        "UsePAM": "no",
        "UseDNS": "no",
        "PidFile": "none",
        "X11Forwarding": "no",
        "AllowTcpForwarding": "no",
        "PrintMotd": "no",
        "MaxStartups": "100",
        "SetEnv": given,
    }
    return "".join(f"{key} {value}\n" for key, value in lines.items())


def client_config(keys: SshKeys, addresses: Mapping[str, str]) -> str:
    """Return the ssh_config(5) of mpirun."""
    hosts = "".join(f"Host {name}\n  HostName {address}\n" for name, address in addresses.items())
    lines = {
        "Port": str(PORT),
        "User": keys.user,
        "IdentityFile": str(keys.directory / "client"),
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": str(keys.directory / "known_hosts"),
        "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": _ALIAS,
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "LogLevel": "ERROR",
    }
    return f"{hosts}Host *\n" + "".join(f"  {key} {value}\n" for key, value in lines.items())


@contextmanager
def ssh_servers(
    host: Host,
    keys: SshKeys,
    instances: Sequence[Instance],
    seats: Sequence[Seat],
    *,
    directory: Path,
    private: Path,
    environment: Mapping[str, str],
) -> Iterator[tuple[str, ...]]:
    """Run an sshd in every instance until exit. Yields the command line of a client that reaches them by host
    name.

    directory: directory for the configurations of the servers, with the same path inside the instances.
    private: directory that no instance sees, for the configuration of the client, which may name programs,
        and for the output of the servers.
    environment: variables of every command that the client starts in an instance.

    Raises RunError with the output of an sshd that fails.
    """
    with ExitStack() as stack:
        servers: list[tuple[str, Process, Path]] = []
        for number, (instance, seat) in enumerate(zip(instances, seats, strict=True)):
            config, log = directory / f"sshd-{number}.conf", private / f"sshd-{number}.log"
            inside = {**environment, LABEL_VARIABLE: instance.label}
            text = server_config(keys, seat.address, inside)
            UntrustedDirectory(directory).overwrite(config.name, text.encode())
            log.touch()
            # sshd confines its unprivileged child to this directory; on Debian it is below /run and must be
            # created.
            host.run(instance.command(["mkdir", "-p", "/run/sshd"]), timeout=START_SECONDS).require(
                f"{instance.hostname}"
            )
            argv = instance.command([keys.sshd, "-D", "-e", "-f", str(config)])
            process = host.start(argv, stdout=log, stderr=log, cwd=Path("/"))
            stack.callback(process.kill)
            servers.append((instance.hostname, process, log))
        for name, process, log in servers:
            _await_listening(name, process, log)
        client = private / "ssh.conf"
        addresses = {i.hostname: seat.address for i, seat in zip(instances, seats, strict=True)}
        client.write_text(client_config(keys, addresses))
        yield keys.ssh, "-F", str(client)


def _await_listening(name: str, process: Process, log: Path) -> None:
    def output() -> str:
        return log.read_text(errors="replace")

    if not await_true(lambda: "Server listening" in output(), START_SECONDS, process, every=0.002):
        words = "; ".join(output().strip().splitlines()[-2:]) or "no output"
        raise RunError(f"no sshd in {name}: {words[:300]}", remedy=_REMEDY)
