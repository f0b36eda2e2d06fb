"""What is refused because the destination is unlike the source, or because an instance is not alone."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmetal.api.moves.plans import CHECKPOINT, MoveOptions, planned
from nearmetal.environments import GuestBase, InstanceRequest, Tools
from nearmetal.environments.external import CheckOutcome, Saved, Target, monitor, qmp_sockets
from nearmetal.environments.external.domains import LibvirtDomain
from nearmetal.environments.external.process import ProcessTree
from nearmetal.environments.guests.moves import CARRIED
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.environments.qemu.restore import checkpoint
from nearmetal.errors import UsageError
from nearmetal.host import Completed, LocalHost
from nearmetal.host.pages import shares_memory
from nearmetal.lifecycle import Method
from nearmetal.model.environments.guest import Accelerator, GuestSettings
from nearmetal.model.study import Arm, Attachment, Environment, Placement, TransportWish
from nearmetal.node.survey.available import why_unmovable
from nearmetal.testing.fake_host import FakeHost

VIRSH = ("virsh", "--quiet", "--connect")
HERE, THERE = "qemu:///system", "qemu+ssh://node7/system"


def compared(mode: str, answer: str | Completed) -> FakeHost:
    compare = ("cpu-compare", "/dev/stdin", "--error")
    return FakeHost(
        commands={
            (*VIRSH, HERE, "dumpxml", "vm"): f"<domain>\n  <cpu mode='{mode}' check='none'/>\n</domain>",
            (*VIRSH, HERE, "capabilities"): "<cpu><feature name='avx2'/></cpu>",
            (*VIRSH, THERE, *compare): answer,
        }
    )


@pytest.fixture(autouse=True)
def usual_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIBVIRT_DEFAULT_URI", raising=False)


def test_a_domain_that_sees_the_processor_does_not_move_to_a_lesser_one() -> None:
    said = "error: the CPU is incompatible with host CPU: Host CPU does not provide required features: avx2"
    lesser = Completed(argv=(), returncode=1, stdout="", stderr=said, seconds=0.0)
    vm, there = LibvirtDomain(domain="vm"), Target.parse("node7")
    for mode in ("host-passthrough", "maximum"):
        with pytest.raises(UsageError, match=f"{mode}.*node7 lacks features") as refused:
            vm.require_target(compared(mode, lesser), there)
        assert "custom" in refused.value.remedy
    vm.require_target(compared("host-passthrough", "identical"), there)
    own_model = compared("custom", lesser)
    vm.require_target(own_model, there)
    assert [call[4] for call in own_model.calls] == ["dumpxml"], "nothing is compared for a model of its own"


class Waiting:
    """A monitor of a QEMU that waits for a guest with the processor of its machine."""

    def __init__(self, path: Path) -> None:
        pass

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        of = "" if arguments is None else arguments["path"]
        return {
            "query-status": {"status": "inmigrate"},
            "query-memory-size-summary": {"base-memory": 256 << 20},
            "query-version": {"qemu": {"major": 7, "minor": 2, "micro": 0}},
            "query-cpus-fast": [{"qom-path": "/cpu"}],
            "query-kvm": {"enabled": True},
            "qom-get": {"/cpu": "host-x86_64-cpu"}.get(of, "pc-q35-7.2-machine"),
        }[command]


def test_a_guest_that_has_seen_the_processor_is_not_restored_on_a_lesser_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (monitor, qmp_sockets):
        monkeypatch.setattr(module, "Monitor", Waiting)
        monkeypatch.setattr(module, "require_qmp", lambda _: None)
    rich = FakeHost(files={"/proc/cpuinfo": "flags\t\t: fpu sse2 avx2\n"})
    poor = FakeHost(files={"/proc/cpuinfo": "flags\t\t: fpu sse2\n"})
    qemu = monitor.QemuProcess(socket=Path("a"))
    saved = Saved(name=qemu.name, method=Method.OFFLINE, own=dict(qemu.needs(rich)))
    answers = [
        {f.subject: f for f in qemu.look(host, Path("/i"), saved)}["features of the processor"]
        for host in (rich, poor)
    ]
    assert [a.answer for a in answers] == [CheckOutcome.FINE, CheckOutcome.PREVENTS]
    assert "lacks avx2" in answers[1].text and answers[1].remedy


def test_a_guest_is_not_started_from_the_checkpoint_of_another_processor_or_qemu(tmp_path: Path) -> None:
    """The directory may lie on a file system that several machines share."""
    base = GuestBase(
        kernel=tmp_path / "kernel", initramfs=tmp_path / "initramfs", root=tmp_path / "root", cache=tmp_path
    )
    qemu = tmp_path / "qemu-system-x86_64"
    for file in (base.kernel, base.initramfs, qemu):
        file.touch()
    request = InstanceRequest(
        label="l",
        hostname="h",
        environment=Environment(name="e", backend="qemu", image="own"),
        cpus=(0,),
        seat=None,
        binds=(),
        scratch=tmp_path,
    )
    made = []

    def make(_: Accelerator, file: Path) -> None:
        file.write_text("state")
        made.append(file)

    def start(flags: str) -> Path:
        tools, settings, features = Tools(directory=tmp_path), GuestSettings(), frozenset(flags.split())
        return checkpoint(base, request, tools, settings, Accelerator.KVM, features, make, program=qemu)

    files = [start(flags) for flags in ("fpu avx2", "avx2 fpu", "fpu")]
    assert files[0] == files[1] != files[2] and len(made) == 2
    os.utime(qemu, (0, 0))  # another version was installed
    assert start("fpu") != files[2] and len(made) == 3


@pytest.mark.parametrize("attachment", Attachment)
def test_a_guest_moves_where_its_network_finds_it_again(attachment: Attachment) -> None:
    guest = Environment(
        name="e", backend="qemu", image="own", attachment=attachment, guest=GuestSettings(memory=256 << 20)
    )
    why = Qemu().unmovable(guest, Method.PRECOPY)
    assert (why is None) == (attachment in CARRIED)
    assert why is None or (attachment.value in why.reason and why.remedy == "attachment: veth-bridge")
    stays = {Attachment.SRIOV, Attachment.PHYS, Attachment.USER, Attachment.VETH}
    assert stays.isdisjoint(CARRIED)


def test_ranks_that_share_memory_across_instances_are_not_made_ready_for_moves() -> None:
    machine: Any = SimpleNamespace(host=FakeHost(root=True))

    def said(transport: TransportWish, instances: int) -> str | None:
        environment = Environment(
            name="e",
            backend="namespaces",
            attachment=Attachment.VETH_BRIDGE,
            movable=True,
            transport=transport,
        )
        place = Placement(name="p", instances=instances, tasks=1)
        return why_unmovable(machine, Arm(environment=environment, placement=place))

    why = "environment e: its ranks share memory across instances, which no instance takes along; "
    assert said(TransportWish.SHM, 2) == f"{why}transport: tcp"
    assert said(TransportWish.AUTO, 2) is None and said(TransportWish.SHM, 1) is None


SHARING = """
import mmap, os, sys, time
memory = mmap.mmap(-1, 8192)
memory[0] = 1
if len(sys.argv) > 1 and os.fork() == 0:
    memory[1] = 2
os.write(1, b"%d\\n" % os.getpid())
time.sleep(1000)
"""


@pytest.fixture
def sharing() -> Iterator[list[int]]:
    """A process and its child, which write to the same memory."""
    with subprocess.Popen([sys.executable, "-c", SHARING, "2"], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = {int(parent.stdout.readline()), int(parent.stdout.readline())}
        child = (pids - {parent.pid}).pop()
        try:
            yield [parent.pid, child]
        finally:
            os.kill(child, 9)
            parent.kill()


def test_a_process_is_not_taken_from_the_one_with_which_it_shares_memory(sharing: list[int]) -> None:
    parent, child = sharing
    assert shares_memory([child]) == parent and shares_memory([parent]) == child
    assert shares_memory([parent, child]) is None
    with pytest.raises(UsageError, match=f"pid:{child} shares memory with process {parent}") as refused:
        planned(LocalHost(), ProcessTree(pid=child), Target.parse("./i"), MoveOptions(), CHECKPOINT)
    assert f"end process {parent}" in refused.value.remedy


def test_memory_of_its_own_and_of_named_files_is_in_nobodys_way(tmp_path: Path) -> None:
    file = tmp_path / "shared"
    file.write_bytes(bytes(8192))
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 8192) as memory:
        memory[0] = 1
        with subprocess.Popen([sys.executable, "-c", SHARING], stdout=subprocess.PIPE) as alone:
            assert alone.stdout is not None and alone.stdout.readline()
            assert shares_memory([alone.pid]) is None
            alone.kill()


SYSTEM_V = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
number = libc.shmget(0, 4096, 0o1600)
assert number >= 0 and libc.shmat(number, None, 0) not in (None, 2**64 - 1)
libc.shmctl(number, 0, None)
print(number, flush=True)
sys.stdin.read()
"""


def test_segments_of_two_ipc_namespaces_are_not_shared_although_they_have_one_number() -> None:
    unshare = ["unshare", "--ipc", "--user", "--map-root-user"]
    if subprocess.run([*unshare, "true"]).returncode:
        pytest.skip("no namespaces here")
    argv = [*unshare, sys.executable, "-c", SYSTEM_V]

    def begun() -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    with begun() as one, begun() as other:
        numbers = [p.stdout.readline() for p in (one, other) if p.stdout is not None]
        assert numbers[0] == numbers[1] == b"0\n"
        assert shares_memory([one.pid]) is None
        one.kill()
        other.kill()
