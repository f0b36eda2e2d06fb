"""nearmetal itself on an emulated dom0: an MPI job over two PV guests and one in a PVH guest against the bare
dom0, weighed, with a verdict told; and what xl gives guests beyond the smallest. For function alone; minutes
long, so not among the usual tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.nested.inside import booted, built_image, carried_disk, nearmetal, whole_kernel
from tests.nested.machine import Outer
from tests.nested.parts import Parts
from tests.nested.test_nested_xen import guest, moved_to, out

from nearmetal.environments.xen.guest import XenInstance
from nearmetal.environments.xen.settings import XenDisk, XenDiskKind, XenType
from nearmetal.environments.xen.xl import Xl
from nearmetal.errors import RunError, UnavailableError
from nearmetal.lifecycle import Method
from nearmetal.model.environments.guest import MIB, GuestSettings

pytestmark = [pytest.mark.more, pytest.mark.timeout(7200)]  # everything is emulated

IMAGE = "debian-mpi"
DISK, SWAP, GROUP = 64 * MIB, 32 * MIB, 256 * MIB
SECTOR = 512
"""Of what the kernel counts, whatever the disk has."""
LINES = 1 << 15
DOUBLED = """\
set -e
cd /var/tmp
echo {mark} >probe
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    cat probe probe >twice
    busybox mv twice probe
done
busybox sync"""
"""Quicker than a program that writes line by line."""
STUDY = """\
name: nested-emulated-xen
question: does it work? (every figure is of an emulator)
environments:
  bare: {{backend: native, image: debian-mpi}}
  pv:
    backend: xen
    image: debian-mpi
    attachment: veth-bridge
    guest: {{memory: 256 MiB, vcpus: 1, kernel: {kernel}, boot_timeout: 30 min}}
    xen: {{type: pv, weight: 512}}
    placements: [2x1]
  pvh:
    backend: xen
    image: debian-mpi
    guest: {{memory: 256 MiB, vcpus: 1, kernel: {kernel}, boot_timeout: 30 min}}
    attachment: none
    xen: {{type: pvh}}
    placements: [1x2]
placements:
  1x2: {{instances: 1, tasks: 2, oversubscribe: true}}
  2x1: {{instances: 2, tasks: 1, oversubscribe: true}}
workloads:
  latency: {{kernel: pingpong, bytes: 8 B, trips: 2}}
design:
  baseline: bare
  min_blocks: 6
  max_blocks: 6
  max_time: 50 min
  slices: 2
"""
GUEST = """\
environments:
  vm:
    backend: xen
    image: debian-mpi
    attachment: veth-bridge
    placements: [1x1]
    guest: {{memory: 128 MiB, vcpus: 1, kernel: {kernel}, boot_timeout: 30 min}}
    xen: {{type: pvh}}
placements:
  1x1: {{instances: 1, tasks: 1}}
workloads:
  moved:
    subject: migrate
"""
MOVES = (
    """\
name: nested-xen-moves
question: does it work? (every figure is of an emulator)
"""
    + GUEST
    + """\
    methods: [offline, precopy]
    count: 1
    working_set: 4 MiB
    dirty_rate: 1 MiB/s
design: {{baseline: vm, mode: plain, margin: 10 %, seed: 1, max_time: 50 min}}
"""
)
JOB = (
    """\
name: nested-xen-{of}
question: does it work? (every figure is of an emulator)
"""
    + GUEST
    + """\
    of: {of}
    ranks: 2
    method: {method}
    count: 1
    time_limit: 15 min
    working_set: 1 MiB
    dirty_rate: 1 MiB/s
design: {{baseline: vm, mode: plain, margin: 10 %, seed: 1, max_time: 95 min}}
"""
)
METHODS = {"job": Method.OFFLINE, "rank": Method.PRECOPY}
"""How all guests of a job are moved, and the guest of one of its ranks."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outer]:
    """A dom0 with nearmetal and the study in it."""
    image, top = built_image(IMAGE), tmp_path_factory.mktemp("whole")
    fields = {"kernel": whole_kernel()}
    studies = {"study.yaml": STUDY.format(**fields), "moves.yaml": MOVES.format(**fields)}
    for of, method in METHODS.items():
        studies[f"{of}.yaml"] = JOB.format(of=of, method=method, **fields)
    for name, text in studies.items():
        (top / name).write_text(text)
    carry, machine = top / "carry", top / "machine"
    carry.mkdir()
    machine.mkdir()
    disk = carried_disk(carry, image, {name: top / name for name in studies})
    with booted(machine, disk, image, xen=True) as outer:
        yield outer


def test_mpi_over_guests_is_weighed(whole: Outer) -> None:
    words = ["run", "/carried/study.yaml", "--max-blocks", "1", "--json"]
    told = json.loads(nearmetal(whole, words, timeout=3000))
    assert not guests_of(whole)
    cells = {(c["arm"].partition("~")[0], c["metric"]): c for c in told["cells"]}
    assert {"pv/2x1", "pvh/1x2"} <= {arm for arm, _ in cells}
    assert all(c["verdict"] and c["n"] == 1 for c in cells.values())
    assert all(c["guest"].startswith("Xen in TCG: QEMU ") for c in cells.values())
    assert any("emulated: " in text for text in told["warnings"])


def test_a_guest_moves_between_two_addresses_of_its_network(whole: Outer) -> None:
    trials = trials_of(whole, "moves")
    assert {t["arm"].partition("/")[0] for t in trials} == {"vm-offline", "vm-precopy"}
    for trial in trials:
        assert trial["status"] == "ok", trial
        rows = {r["metric"]: r for r in trial["rows"] if r["workload"] == "moved"}
        # The client heard the same address from there, and nobody twice.
        assert min(rows["silence"]["values"]) > 0 and min(rows["stopped"]["values"]) > 0
        assert rows["total"]["verification"]["wrong_pages"] == 0
        assert min(rows["sent"]["values"]) >= 128 << 20


@pytest.mark.parametrize("of", METHODS)
def test_ranks_of_a_job_move(whole: Outer, of: str) -> None:
    for trial in trials_of(whole, of):
        assert trial["status"] == "ok", trial
        facts = trial["facts"]["moved"]
        assert facts["of"] == of and len(facts["moves"]) == 1
        (verified,) = [r["verification"] for r in trial["rows"] if r["metric"] == "total"]
        assert verified["passes"] >= 2 and verified["wrong_pages"] == verified["wrong_messages"] == 0


def trials_of(dom0: Outer, study: str) -> list[dict[str, Any]]:
    """The trials of one round of a study that was carried into a dom0."""
    results = f"/written/{study}"
    words = ["run", f"/carried/{study}.yaml", "--results", results, "--max-blocks", "1", "--json"]
    nearmetal(dom0, words, timeout=6000)
    assert not guests_of(dom0)
    lines = dom0.do("sh", "-c", f"cat {results}/*/trials/*.jsonl").splitlines()
    return [json.loads(line) for line in lines]


def guests_of(dom0: Outer) -> list[str]:
    return [d.name for d in Xl(dom0.ssh).domains() if d.name.startswith("nearmetal-")]


def test_a_bridge_that_is_not_there_is_told_by_xl(whole: Outer, parts: Parts, tmp_path: Path) -> None:
    with (
        pytest.raises(RunError, match="cannot be created"),
        guest(whole, parts, tmp_path, type=XenType.PV, bridge="nobridge0"),
    ):
        pass
    assert not guests_of(whole)


def test_a_pvh_guest_says_that_it_is_one(whole: Outer, parts: Parts, tmp_path: Path) -> None:
    with guest(whole, parts, tmp_path, type=XenType.PVH, weight=100) as g:
        assert out(g, "cat", "/sys/hypervisor/guest_type") == "PVH"
    assert not guests_of(whole)


def test_an_hvm_guest_boots_with_its_disks_and_moves(whole: Outer, parts: Parts, tmp_path: Path) -> None:
    """Its firmware reads kernel and initramfs byte by byte from the device model, each byte an exit that the
    emulator emulates: a minute alone on a CPU, so it is given more time than others."""
    settings = GuestSettings(memory=128 * MIB, boot_timeout=1800, writable=DISK, swap=SWAP)
    hvm = guest(whole, parts, tmp_path, settings=settings, type=XenType.HVM)
    with hvm as g, ExitStack() as moves:
        assert out(g, "cat", "/sys/hypervisor/guest_type") == "HVM"
        require_disks(g, root="xvde", writable="xvdf", swap="xvdg")
        require_written(g, whole, "xvdf", f"/var/tmp/{g.label}-writable")
        assert device_models(whole) == 1
        out(g, "sh", "-c", "echo 4711 >/var/tmp/kept")
        now = g
        for method in (Method.OFFLINE, Method.PRECOPY):
            moved = moves.enter_context(moved_to(method.value, parts, now, method, time_limit=1800.0))
            assert isinstance(moved.instance, XenInstance)
            now = moved.instance
            assert guests_of(whole) == [now.domain.name] and device_models(whole) == 1
            assert out(now, "cat", "/var/tmp/kept") == "4711"
            require_disks(now, root="xvde", writable="xvdf", swap="xvdg")
    assert not guests_of(whole)
    assert device_models(whole) == 0


def device_models(dom0: Outer) -> int:
    return dom0.do("ps", "-e", "-o", "args=").count(" -xen-domid ")


def require_disks(g: XenInstance, *, root: str, writable: str, swap: str | None, size: int = DISK) -> None:
    """That the guest has the disks that were asked for, each of its size and for what it is there."""

    def of(disk: str, what: str) -> int:
        return int(out(g, "cat", f"/sys/block/{disk}/{what}"))

    assert of(root, "ro") == 1 and of(root, "size") > 0
    assert of(writable, "ro") == 0 and of(writable, "size") * SECTOR == size
    assert "overlay / overlay" in out(g, "cat", "/proc/mounts")
    # What is written goes there: its ext4 is what the root has room of.
    blocks, block = out(g, "busybox", "stat", "-f", "-c", "%b %S", "/").split()
    room = int(blocks) * int(block)
    assert 0.8 * size < room <= size
    listed = [line.split() for line in out(g, "cat", "/proc/swaps").splitlines()[1:]]
    # The first page of a swap space says what it is.
    assert [(line[0], int(line[2])) for line in listed] == (
        [(f"/dev/{swap}", SWAP // 1024 - 4)] if swap is not None else []
    )
    assert swap is None or of(swap, "size") * SECTOR == SWAP


def require_written(g: XenInstance, dom0: Outer, disk: str, device: str) -> None:
    """That what the guest writes is read back from its disk and not from its memory, and lies on what dom0
    has for it."""
    mark = f"written by {g.label}"
    text = f"{mark}\n" * LINES
    out(g, "sh", "-c", DOUBLED.format(mark=mark))
    before = counted(g, disk)
    out(g, "sh", "-c", "echo 3 >/proc/sys/vm/drop_caches")
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    assert out(g, "busybox", "md5sum", "/var/tmp/probe").split()[0] == digest
    after = counted(g, disk)
    assert before[1] >= len(text) and after[0] - before[0] >= len(text)
    assert int(dom0.do("grep", "-a", "-c", "-F", mark, device)) > 0.9 * LINES


def counted(g: XenInstance, disk: str) -> tuple[int, int]:
    """Bytes read from a disk and written to it (Documentation/block/stat.rst)."""
    words = out(g, "cat", f"/sys/block/{disk}/stat").split()
    return int(words[2]) * SECTOR, int(words[6]) * SECTOR


def test_disks_as_logical_volumes_and_as_a_device(whole: Outer, parts: Parts, tmp_path: Path) -> None:
    """Both on loop devices of the dom0; each vCPU of two is pinned to the one CPU that there is."""
    settings = GuestSettings(memory=128 * MIB, boot_timeout=1800, vcpus=2, writable=DISK, swap=SWAP)
    whole.do("truncate", "--size", str(GROUP), "/written/group")
    loop = whole.do("losetup", "--find", "--show", "/written/group").strip()
    whole.do("vgcreate", "vgtest", loop)
    lvm = XenDisk(kind=XenDiskKind.LVM, path="vgtest")
    with guest(whole, parts, tmp_path, settings=settings, type=XenType.PV, disk=lvm) as g:
        volumes = whole.do("lvs", "--noheadings", "--options", "lv_name").split()
        assert sorted(volumes) == [f"{g.label}-swap", f"{g.label}-writable"]
        require_disks(g, root="xvda", writable="xvdb", swap="xvdc")
        require_written(g, whole, "xvdb", f"/dev/vgtest/{g.label}-writable")
        cpus = Xl(whole.ssh).virtual_cpus(g.label)
        assert [v.number for v in cpus] == [0, 1] and {v.hard for v in cpus} <= {"0", "all"}
    assert whole.do("lvs", "--noheadings").split() == []
    whole.do("vgremove", "--force", "vgtest")
    whole.do("wipefs", "--all", loop)
    block = XenDisk(kind=XenDiskKind.BLOCK, path=loop)
    alone = GuestSettings(memory=128 * MIB, boot_timeout=1800, writable=DISK)
    with guest(whole, parts, tmp_path, settings=alone, type=XenType.PV, disk=block) as g:
        # All of the device, however little was asked for.
        require_disks(g, root="xvda", writable="xvdb", swap=None, size=GROUP)
        require_written(g, whole, "xvdb", loop)
    refused = [
        # It holds an ext4 now, which nobody writes over unasked.
        (alone, block, "contains data"),
        (
            GuestSettings(memory=128 * MIB, boot_timeout=1800, writable=2 * GROUP),
            XenDisk(kind=XenDiskKind.BLOCK, path=loop, overwrite=True),
            "256 MiB large, 512 MiB are requested",
        ),
    ]
    for how, disk, what in refused:
        with (
            pytest.raises(UnavailableError, match=what),
            guest(whole, parts, tmp_path, settings=how, type=XenType.PV, disk=disk),
        ):
            pass
    again = XenDisk(kind=XenDiskKind.BLOCK, path=loop, overwrite=True)
    with guest(whole, parts, tmp_path, settings=alone, type=XenType.PV, disk=again) as g:
        require_disks(g, root="xvda", writable="xvdb", swap=None, size=GROUP)
        # Of the guest before it nothing is left to be seen.
        assert "probe" not in out(g, "ls", "/var/tmp")
    whole.do("losetup", "--detach", loop)
