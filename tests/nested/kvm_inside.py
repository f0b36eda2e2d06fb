"""Runs on the outer machine, with the sources that were carried there: the probe of KVM, and a guest by it.
Prints what it found as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from nearmetal.environments import GuestBase, InstanceRequest, Tools
from nearmetal.environments.guests.kvm import kvm_answer
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.host import LocalHost
from nearmetal.model.environments.guest import MIB, Accelerator, GuestSettings
from nearmetal.model.study import Attachment, Environment


def main(carried: Path, kernel: Path) -> None:
    host, tools = LocalHost(), Tools(directory=carried / "tools")
    found: dict[str, object] = {"probe": asdict(kvm_answer(host, tools))}
    check = Qemu().check(host, tools)
    found["check"] = asdict(check)
    settings = GuestSettings(accelerator=Accelerator.KVM, memory=128 * MIB, boot_timeout=1800)
    with tempfile.TemporaryDirectory() as scratch:
        request = InstanceRequest(
            label="nearmetal-test-kvm",
            hostname="nminner",
            environment=Environment(
                name="inner",
                backend="qemu",
                image="busybox",
                attachment=Attachment.NONE,
                placements=(),
                guest=settings,
            ),
            cpus=(0,),
            seat=None,
            binds=(),
            scratch=Path(scratch),
            base=GuestBase(
                kernel=kernel,
                initramfs=carried / "initramfs",
                root=carried / "root.erofs",
                cache=Path(scratch),
            ),
        )
        host.run(
            ["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"], timeout=600
        )  # often there already
        with Qemu().start(host, tools, request) as guest:
            found["exits"] = {k: v for source in guest.sources for k, v in source.read().items()}
            for name, argv in {
                "hostname": ("cat", "/proc/sys/kernel/hostname"),
                "messages": ("dmesg",),
                "processor": ("cat", "/proc/cpuinfo"),
            }.items():
                found[name] = host.run(guest.command(argv), timeout=600).stdout
            found["phases"] = dict(guest.phases)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
