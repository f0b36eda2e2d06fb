"""The outer machine: a whole one under QEMU's emulation, bare or under Xen, reached by ssh on the loopback.

For function alone: no time that is measured in it says anything about a machine.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.nested.initramfs import write_initramfs

from nearmetal.errors import BusyError
from nearmetal.host import LocalHost
from nearmetal.host.processes.labelled import LABEL_VARIABLE
from nearmetal.host.ssh import SshHost, SshWay, ssh_host
from nearmetal.images.build import build
from nearmetal.images.forms import Form, in_form
from nearmetal.images.store import Image
from nearmetal.node.machine import image_store
from nearmetal.study_file.environments.images import read_definition

BUILD_LIMIT = 3600.0
HERE = Path(__file__).parent
NAME = "outer"
READY = "outer: ready"
BOOT_SECONDS = 1800.0
CPU = "qemu64,+svm,+npt,+ssse3,+sse4.1,+sse4.2,+popcnt"
"""As few extensions as Python packages are compiled for: by -cpu max a dom0 crashes."""
DISK_BYTES = 16 << 30
"""Of the disk for what is written; it takes room only as it fills."""
DOM0_MIB = 768
LINE = {
    True: f"dom0_mem={DOM0_MIB}M,max:{DOM0_MIB}M dom0_max_vcpus=1 console=com1 com1=115200,8n1",
    False: "console=ttyS0 quiet",
}
"""Command line, by whether it is the hypervisor's."""


@dataclass(frozen=True, kw_only=True)
class Outer:
    """ssh: into it; way: for those who connect themselves; label: of all its processes; console: its file;
    directory: for files of a test."""

    ssh: SshHost
    way: SshWay
    label: str
    console: Path
    directory: Path

    def do(self, *argv: str, timeout: float = 60) -> str:
        """Standard output of a command in it that must work."""
        done = self.ssh.run(argv, timeout=timeout)
        assert done.ok, (argv, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout


def outer_image(name: str = "outer") -> Image:
    """The root tree of name.yaml, built where it does not stand yet, with the other images of this user."""
    text = (HERE / f"{name}.yaml").read_text()
    definition = read_definition(text, f"{name}.yaml", f"nested-{name}")
    end = time.monotonic() + BUILD_LIMIT
    while True:
        try:
            return build(LocalHost(), image_store(), definition, progress=print)
        except BusyError:  # by tests of another session
            if time.monotonic() > end:
                raise
            time.sleep(1)


@contextmanager
def outer_machine(
    directory: Path,
    *,
    xen: bool,
    memory_mib: int = 2048,
    carried: Path | None = None,
    image: Image | None = None,
    written: Path | None = None,
) -> Iterator[Outer]:
    """A running one. directory: empty, for its disk, keys and console; carried: an erofs image that it has
    under /carried; image: None for the usual; written: its disk, which is made if it does not exist."""
    image = image or outer_image()
    disk = in_form(LocalHost(), image, Form.EROFS, progress=print)
    kernel = next(image.tree.glob("boot/vmlinuz-*"))
    keys = _make_keys(directory)
    given = {name: (keys / name).read_bytes() for name in ("client.pub", "server")}
    given["init"] = (HERE / "init").read_bytes()
    initramfs, written = directory / "initramfs", written or directory / "written"
    write_initramfs(image.tree, kernel.name.removeprefix("vmlinuz-"), HERE / "early-init", given, initramfs)
    if not written.exists():
        written.touch()
        os.truncate(written, DISK_BYTES)
        lazy = "lazy_itable_init=1,lazy_journal_init=1"
        subprocess.run(["mkfs.ext4", "-q", "-E", lazy, str(written)], check=True, timeout=600)
    label, console, port = f"nearmetal-test{os.getpid()}-outer", directory / "console", _free_port()
    argv = ["qemu-system-x86_64", "-accel", "tcg,tb-size=256", "-machine", "q35", "-nodefaults"]
    # More CPUs are slower: they take turns at one lock.
    argv += ["-cpu", CPU, "-m", str(memory_mib), "-smp", "1", "-display", "none", "-no-reboot"]
    argv += ["-serial", f"file:{console}"]
    if xen:
        hypervisor = directory / "xen"
        hypervisor.write_bytes(gzip.decompress(next(image.tree.glob("boot/xen-*.gz")).read_bytes()))
        modules = f"{kernel} console=hvc0 quiet,{initramfs}"
        argv += ["-kernel", str(hypervisor), "-initrd", modules, "-append", LINE[True]]
    else:
        argv += ["-kernel", str(kernel), "-initrd", str(initramfs), "-append", LINE[False]]
    disks = [(disk, "on"), (written, "off"), *([(carried, "on")] if carried is not None else [])]
    for file, read_only in disks:
        argv += ["-drive", f"file={file},if=virtio,format=raw,read-only={read_only}"]
    argv += ["-netdev", f"user,id=n,hostfwd=tcp:127.0.0.1:{port}-:22"]
    argv += ["-device", "virtio-net-pci,netdev=n,romfile="]
    with ExitStack() as stack:
        stack.enter_context(_running(argv, label, console))
        _await_server(port)
        config = _client_config(keys, port)
        way = SshWay(destination=NAME, config=str(config))
        scratch = directory / "ssh"
        scratch.mkdir()
        ssh = stack.enter_context(ssh_host(LocalHost(), way, label=label, scratch=scratch))
        yield Outer(ssh=ssh, way=way, label=label, console=console, directory=directory)


@contextmanager
def _running(argv: list[str], label: str, console: Path) -> Iterator[None]:
    errors = console.with_name("qemu.err")
    with errors.open("wb") as said:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *argv],
            env={**os.environ, LABEL_VARIABLE: label},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    try:
        end = time.monotonic() + BOOT_SECONDS
        while not console.exists() or READY not in console.read_text(errors="replace"):
            said_last = console.read_text(errors="replace")[-1500:] if console.exists() else ""
            assert process.poll() is None, f"QEMU ended: {errors.read_text()} {said_last}"
            assert time.monotonic() < end, f"no machine within {BOOT_SECONDS:g} s: {said_last}"
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait(600)


def _make_keys(directory: Path) -> Path:
    """A key pair of the client and one of the server, for this machine alone."""
    keys = directory / "keys"
    keys.mkdir(mode=0o700)
    for name in ("client", "server"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(keys / name)]
        subprocess.run(argv, check=True, timeout=600)
    return keys


def _client_config(keys: Path, port: int) -> Path:
    (keys / "known_hosts").write_text(f"{NAME} {(keys / 'server.pub').read_text()}")
    lines = [
        f"Host {NAME}",
        "HostName 127.0.0.1",
        f"Port {port}",
        "User root",
        f"HostKeyAlias {NAME}",
        f"IdentityFile {keys / 'client'}",
        "IdentitiesOnly yes",
        f"UserKnownHostsFile {keys / 'known_hosts'}",
        "GlobalKnownHostsFile /dev/null",
        "StrictHostKeyChecking yes",
        "LogLevel ERROR",
    ]
    config = keys / "config"
    config.write_text("\n".join(lines) + "\n")
    return config


def _await_server(port: int) -> None:
    """Until sshd says who it is: QEMU takes connections before the machine does."""
    end = time.monotonic() + 600
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            if line.recv(4) == b"SSH-":
                return
        time.sleep(0.1)
    raise AssertionError("no sshd in the outer machine")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
