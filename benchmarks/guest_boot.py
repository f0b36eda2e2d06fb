"""Time to start a guest, beyond that of QEMU itself. Compared are the times until the agent answers: of a
guest of nearmetal, of the same QEMU command by hand, and of libvirt; and of a guest that is restored from a
checkpoint, with one that boots. Also measured: a command in a running guest, and idle guests of 128 MiB.

By hand, as root, with the image debian-kernel built: python -m benchmarks.guest_boot [ROUNDS]"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.paired import interleaved, ratio, shown

from nearmetal.environments import GuestBase, InstanceRequest, Tools
from nearmetal.environments.guests.initramfs import initramfs
from nearmetal.environments.libvirt.backend import Libvirt
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.host import LocalHost, Process
from nearmetal.host.runtime import cache_directory, scratch_directory
from nearmetal.images import require_image
from nearmetal.model.environments.guest import MIB, GuestSettings, StartFrom
from nearmetal.model.study import Attachment, Environment
from nearmetal.node.bases import KERNEL_IMAGE, kernel_of
from nearmetal.node.machine import image_store, prepare_machine
from nearmetal.node.progress import NullProgress

IDLE = 8
QEMU = Qemu()


class Recording(LocalHost):
    """A host that records the QEMU command that a backend starts."""

    argv: tuple[str, ...] = ()

    def start(
        self,
        argv: Sequence[str],
        *,
        stdout: Path,
        stderr: Path,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        stdin: int | None = None,
        pass_fds: Sequence[int] = (),
        most: int | None = None,
    ) -> Process:
        if "-machine" in argv:
            at = max(i for i, word in enumerate(argv[: list(argv).index("-machine")]) if word == "--")
            self.argv = tuple(argv[at + 1 :])
        return super().start(
            argv, stdout=stdout, stderr=stderr, env=env, cwd=cwd, stdin=stdin, pass_fds=pass_fds, most=most
        )


def image(tools: Tools, place: Path) -> Path:
    """Build the smallest file system that a guest can boot with, and return its path."""
    tree, file = place / "tree", place / "tree.erofs"
    for name in ("bin", "dev", "proc", "sys", "tmp", "run"):
        (tree / name).mkdir(parents=True)
    shutil.copy(tools / "nm-box", tree / "bin")
    subprocess.run(["mkfs.erofs", str(file), str(tree)], check=True, capture_output=True)
    return file


def request(base: GuestBase, scratch: Path, settings: GuestSettings, number: int = 0) -> InstanceRequest:
    own = Path(tempfile.mkdtemp(dir=scratch))
    return InstanceRequest(
        label=f"{scratch.name}-{number}",
        hostname=f"nm{number}",
        environment=Environment(
            name="guest", backend="qemu", attachment=Attachment.NONE, placements=(), guest=settings
        ),
        cpus=LocalHost().cpus()[-1:],
        seat=None,
        binds=(),
        scratch=own,
        base=base,
    )


def by_hand(argv: Sequence[str], place: Path) -> float:
    """Start QEMU, and return the seconds until the first byte from the agent in its guest."""
    with tempfile.TemporaryDirectory(dir=place) as own, socket.socket(socket.AF_UNIX) as listening:
        old = next(w.partition("path=")[2] for w in argv if w.startswith("socket,id=agent"))
        words = [w.replace(str(Path(old).parent), own) for w in argv]
        listening.bind(f"{own}/port")
        listening.listen()
        begin = time.monotonic()
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as qemu:
            line, _ = listening.accept()
            with line:
                line.recv(1)
                seconds = time.monotonic() - begin
            qemu.kill()
    return seconds


def main(rounds: int) -> None:
    host = Recording()
    machine = prepare_machine(host, NullProgress())
    tools = machine.tools
    found = kernel_of(require_image(host, image_store(), KERNEL_IMAGE, {}).tree)
    assert found is not None
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory(f"nearmetal-check-{os.getpid()}"))
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        base = GuestBase(
            kernel=found[0],
            initramfs=initramfs(cache_directory(), found[1], tools),
            root=image(tools, place),
            cache=place,
        )
        cold = GuestSettings(memory=128 * MIB)

        def start(settings: GuestSettings, backend: Qemu | Libvirt = QEMU) -> float:
            with backend.start(host, tools, request(base, scratch, settings)) as guest:
                return guest.phases["first_instruction"]

        start(replace(cold, start=StartFrom.RESTORED))  # makes the checkpoint
        start(cold)
        argv = host.argv
        start(cold, Libvirt())  # it looks at QEMU when it is new
        seconds = interleaved(
            {
                "nearmetal": lambda: start(cold),
                "libvirt": lambda: start(cold, Libvirt()),
                "by hand": lambda: by_hand(argv, place),
                "restored": lambda: start(replace(cold, start=StartFrom.RESTORED)),
            },
            rounds,
        )
        for name, values in seconds.items():
            print(f"{name:<12}{median(values):8.3f} s")
        print(f"nearmetal / by hand  {shown(ratio(seconds['nearmetal'], seconds['by hand']))}  limit 1.15")
        print(f"libvirt / nearmetal  {shown(ratio(seconds['libvirt'], seconds['nearmetal']))}")
        print(f"restored / cold      {shown(ratio(seconds['restored'], seconds['nearmetal']))}  limit 0.2")
        with Qemu().start(host, tools, request(base, scratch, cold)) as guest:
            commands = []
            for _ in range(10 * rounds):
                begin = time.monotonic()
                host.run(guest.command(["/bin/nm-box"]), timeout=20)
                commands.append(time.monotonic() - begin)
        print(f"command              {1e3 * median(commands):.1f} ms  limit 100 ms")
        before, begin = _available(), time.monotonic()
        for number in range(IDLE):
            stack.enter_context(Qemu().start(host, tools, request(base, scratch, cold, number + 1)))
        each = (before - _available()) / IDLE
        print(f"{IDLE} idle guests        {time.monotonic() - begin:.1f} s, {each / MIB:.0f} MiB each")


def _available() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * next(int(w.split()[1]) for w in lines if w.startswith("MemAvailable"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
