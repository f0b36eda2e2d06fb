"""Virtual machines without one: what a kernel and QEMU are told, what a console says, what travels."""

from __future__ import annotations

import gzip
import json
import lzma
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard

from nearmetal.environments import Available, GuestBase, InstanceRequest, Seat, Tools, Unavailable
from nearmetal.environments.guests.guest import (
    GuestInterface,
    boot_phases,
    command_line,
    console_words,
    host_cpus_of,
    how_far,
    members,
    require_attachment,
    require_base,
    tuning,
)
from nearmetal.environments.guests.initramfs import USUAL, initramfs, kernel_version, modules_of
from nearmetal.environments.guests.kvm import KvmAnswer, kvm_answer
from nearmetal.environments.guests.needs import (
    device_helps,
    network_drivers,
    of_one_machine,
    require_device,
    require_drivers,
    require_memory,
    require_tree,
    require_vhost,
)
from nearmetal.environments.guests.tap import USER_PLACE, place_of, taken_place, tap_argv
from nearmetal.environments.qemu.argv import GuestPlan, QemuDisk, Sockets, Wire, qemu_argv
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.environments.qemu.guest import FORGETS_WRITES, accelerator_of, cpu_of, qemu_answer
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import Completed, cpio
from nearmetal.host.guest_line import Clocks, Hello
from nearmetal.host.processes.ranks import RankHolds, parse_holdings
from nearmetal.model.change import replace
from nearmetal.model.environments.guest import (
    MIB,
    Accelerator,
    Cache,
    DiskFormat,
    GuestSettings,
    MachineType,
    Nic,
)
from nearmetal.model.environments.network import NetworkSettings, Offloads
from nearmetal.model.study import (
    Arm,
    Attachment,
    Design,
    Environment,
    Mode,
    Pinning,
    Placement,
    Shared,
    Study,
)
from nearmetal.node.bases import require_room
from nearmetal.node.cpus import vcpus_of
from nearmetal.node.survey.accelerator import ANY_CPU, EMULATED_CPU, flags_of, resolved
from nearmetal.testing.fake_host import FakeHost
from nearmetal.workloads.build import FLAGS

TOOLS = Tools(directory=Path("/opt/tools"))
WORKS = '{"steps": [], "works": true, "reason": "", "remedy": "", "nanoseconds": 0.4, "tsc_khz": 2000000}'
HANGS = (
    '{"steps": [{"step": "long mode", "answer": "it hangs"}], "works": false,'
    ' "reason": "it hangs (long mode)", "remedy": "another machine", "tsc_khz": 2000000}'
)


def environment(attachment: Attachment = Attachment.NONE, **more: object) -> Environment:
    return Environment(name="vm", backend="qemu", attachment=attachment, placements=("1x2",), **more)  # type: ignore[arg-type]


def asked(attachment: Attachment = Attachment.NONE, **more: object) -> InstanceRequest:
    return InstanceRequest(
        label="nearmetal-0123ab-0",
        hostname="nm0",
        environment=environment(attachment),
        cpus=(2, 3),
        seat=None,
        binds=(),
        scratch=Path("/run/x"),
        **more,  # type: ignore[arg-type]
    )


USUAL_GUEST = GuestSettings()


def plan(settings: GuestSettings = USUAL_GUEST, **more: object) -> GuestPlan:
    fields: dict[str, object] = {
        "accelerator": Accelerator.TCG,
        "vcpus": 2,
        "cpu": "max",
        "kernel": Path("/k"),
        "initramfs": Path("/i"),
        "command_line": "nm.name=a",
        "disks": (),
        "sockets": Sockets(directory=Path("/run/x")),
        "shared_root": False,
        "place": None,
        **more,
    }
    return GuestPlan(settings=settings, **fields)  # type: ignore[arg-type]


def after(argv: list[str], option: str) -> list[str]:
    return [argv[i + 1] for i, word in enumerate(argv) if word == option]


def test_archives_hold_what_was_put_into_them() -> None:
    every = [
        cpio.directory("a"),
        cpio.file("a/b", b"12345", 0o755),
        cpio.link("a/c", "b"),
        cpio.fifo("a/d"),
        cpio.file("empty", b""),
    ]
    packed = cpio.pack(every)
    assert list(cpio.unpack(packed)) == every and len(packed) % 4 == 0
    for torn in (packed[:50], packed[:-30], b"x" * 200):
        with pytest.raises(ValueError, match="not a whole archive"):
            list(cpio.unpack(torn))


def test_members_of_a_bind_are_those_that_a_guest_can_have(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"x")
    (tmp_path / "l").symlink_to("d")
    names = {m.name: m.mode >> 12 for m in members([tmp_path, tmp_path / "gone"])}
    own = str(tmp_path).lstrip("/")
    assert names == {own: 4, f"{own}/d": 4, f"{own}/d/f": 8, f"{own}/l": 10}
    with (tmp_path / "big").open("wb") as file:
        file.truncate(300 * MIB)
    with pytest.raises(RunError, match="is too large: at most 256 MiB"):
        list(members([tmp_path]))


def bzimage(version: str) -> bytes:
    head = bytearray(0x1000)
    head[0x1FE:0x200] = b"\x55\xaa"
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x20E, 0x600)
    head[0x800 : 0x800 + len(version) + 1] = version.encode() + b"\0"
    return bytes(head)


def test_a_kernel_says_its_version_or_is_none(tmp_path: Path) -> None:
    kernel = tmp_path / "vmlinuz"
    kernel.write_bytes(bzimage("6.1.0-5-cloud (someone) #1"))
    assert kernel_version(kernel) == "6.1.0-5-cloud"
    whole = bzimage("6.1.0-5-cloud")
    for wrong, told in (
        (b"MZ arm64", "another architecture"),
        (b"\x7fELF", "an ELF file"),
        (whole[:0x206], "incomplete"),
        (whole[:0x700], "incomplete"),
    ):
        kernel.write_bytes(wrong)
        with pytest.raises(UnavailableError, match=told):
            kernel_version(kernel)
    with pytest.raises(UnavailableError, match="No such file"):
        kernel_version(tmp_path / "none")


def test_modules_come_in_the_order_in_which_they_need_each_other(tmp_path: Path) -> None:
    modules = tmp_path / "6.1"
    modules.mkdir()
    (modules / "modules.dep").write_text(
        "kernel/b/virtio_blk.ko.xz: kernel/a/virtio_ring.ko kernel/a/virtio.ko\n"
        "kernel/a/virtio_ring.ko:\nkernel/a/virtio.ko: kernel/a/virtio_ring.ko\nkernel/c/other.ko:\n"
        "kernel/b/erofs.ko.zst:\nkernel/b/overlay.ko.gz:\n"
    )
    for name in ("a", "b"):
        (modules / "kernel" / name).mkdir(parents=True)
    (modules / "kernel/b/virtio_blk.ko.xz").write_bytes(lzma.compress(b"blk"))
    (modules / "kernel/b/erofs.ko.zst").write_bytes(zstandard.ZstdCompressor().compress(b"erofs"))
    (modules / "kernel/b/overlay.ko.gz").write_bytes(gzip.compress(b"overlay"))
    (modules / "kernel/a/virtio_ring.ko").write_bytes(b"ring")
    (modules / "kernel/a/virtio.ko").write_bytes(b"virtio")
    names = [p.name for p in modules_of(modules, USUAL)]
    assert names == ["virtio_ring.ko", "virtio.ko", "virtio_blk.ko.xz", "erofs.ko.zst", "overlay.ko.gz"]
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nm-guest").write_bytes(b"init")
    (tools / "nm-box").write_bytes(b"box")
    made = initramfs(tmp_path, modules, Tools(directory=tools))
    inside = {m.name: m.data for m in cpio.unpack(made.read_bytes())}
    assert inside["init"] == b"init" and inside["tools/nm-box"] == b"box" and "tools/nm-guest" not in inside
    assert [inside[f"modules/{name}.ko"] for name in ("virtio_blk", "erofs", "overlay")] == [
        *(b"blk", b"erofs", b"overlay")
    ]
    assert inside["modules/list"] == b"virtio_ring.ko\nvirtio.ko\nvirtio_blk.ko\nerofs.ko\noverlay.ko\n"
    assert initramfs(tmp_path, modules, Tools(directory=tools)) == made
    assert modules_of(tmp_path / "none", USUAL) == []


def test_kernel_command_line_contains_what_nm_guest_reads() -> None:
    place = GuestInterface(mac="02:00:00:00:00:01", address="10.99.0.2", mask="255.255.255.0", mtu=1500)
    words = command_line(
        asked(), TOOLS, root="serial:image:erofs", port="virtio:p", console="ttyS0", place=place
    ).split()
    assert {"console=ttyS0", "panic=-1", "nm.name=nm0", "nm.root=serial:image:erofs"} <= set(words)
    assert "nm.net=eth0,10.99.0.2/24,1500" in words and "nm.tools=/opt/tools" in words
    assert not any(w.startswith(("nm.upper", "nm.swap")) for w in words)
    routed = replace(place, routes=tuple(f"10.{i}.0.0/16:10.99.0.1" for i in range(200)))
    with pytest.raises(UnavailableError, match="command line would be"):
        command_line(asked(), TOOLS, root="r:erofs", port="virtio:p", console="ttyS0", place=routed)


def test_nm_box_tells_the_place_of_a_seat() -> None:
    told = (
        '{"mac": "02:aa:bb:cc:dd:ee", "mtu": 9000, "address": "10.99.0.2", "mask": "255.255.255.255", '
        '"routes": ["10.99.0.0/24:10.99.0.1"]}'
    )
    assert place_of(told).words() == "eth0,10.99.0.2/32,9000,10.99.0.0/24:10.99.0.1"


def test_a_seat_is_handed_over_by_a_tap_of_its_own_kind() -> None:
    seat = Seat(netns="/run/netns/a", address="10.99.0.2", interface="eth0", port="port0")
    plain = ["/opt/tools/nm-box", "tap", "--netns", "/run/netns/a", "--interface", "eth0"]
    assert tap_argv(TOOLS, seat, Attachment.VETH, vhost=True) == [*plain, "--vhost"]
    assert tap_argv(TOOLS, seat, Attachment.MACVTAP) == [*plain, "--macvtap"]
    told = (
        '{"mac": "02:aa:bb:cc:dd:ee", "mtu": 1500, "address": "10.99.0.2", "mask": "255.0.0.0", "routes": []}'
    )
    host = FakeHost(commands={(*plain, "--macvtap"): told})
    assert taken_place(host, TOOLS, seat, Attachment.MACVTAP).mac == "02:aa:bb:cc:dd:ee"
    said = Completed(argv=(), returncode=111, seconds=0.0, stdout="", stderr="x: no such device")
    with pytest.raises(
        RunError, match="the guest cannot take eth0: nm-box ended with 111: x: no such device"
    ):
        taken_place(FakeHost(commands={(*plain, "--macvtap"): said}), TOOLS, seat, Attachment.MACVTAP)


def test_kernel_command_line_contains_the_network_settings() -> None:
    asked_for = NetworkSettings(
        rto_min=0.004,
        congestion_control="reno",
        queue_length=77,
        offloads=Offloads(tso=False, gro=True),
        mtu=1400,
        rate=1e6,
    )
    words = "rto_min=4,congestion_control=reno,queue_length=77,tso=0,gro=1"
    assert tuning(asked_for) == words and tuning(NetworkSettings(mtu=1400)) == ""
    own = replace(asked(), environment=replace(environment(Attachment.USER), network=asked_for))
    given = {"root": "r:erofs", "port": "virtio:p", "console": "ttyS0"}
    line = command_line(own, TOOLS, **given, place=USER_PLACE)
    assert f" nm.tune={words}" in line and "nm.net=eth0,10.0.2.15/24,1500,0.0.0.0/0:10.0.2.2" in line
    assert "nm.tune" not in command_line(own, TOOLS, **given)  # type: ignore[arg-type]


def test_modules_for_networks_of_a_guest_and_inside_it() -> None:
    plain = NetworkSettings()
    assert network_drivers(plain, ()) == network_drivers(replace(plain, congestion_control="reno"), ()) == ()
    bbr = replace(plain, congestion_control="bbr")
    boxes = [replace(environment(Attachment.VETH_BRIDGE), network=n) for n in (plain, bbr)]
    assert network_drivers(bbr, boxes) == ("tcp_bbr", "veth", "bridge")
    assert network_drivers(plain, [environment(Attachment.NONE)]) == ()


def test_network_card_is_connected_to_a_tap_to_user_networking_or_to_nothing() -> None:
    for wire, netdev in (
        (Wire.TAP, "tap,id=net,fd=30"),
        (Wire.USER, "user,id=net,ipv6=off"),
        (Wire.NOTHING, "hubport,id=net,hubid=0"),
    ):
        assert after(qemu_argv("qemu", plan(place=USER_PLACE, wire=wire)), "-netdev") == [netdev]
    assert after(qemu_argv("qemu", plan()), "-netdev") == []


def test_missing_devices_for_guests_are_reported_with_a_remedy(tmp_path: Path) -> None:
    vhost, groups = tmp_path / "vhost-net", tmp_path / "groups"
    with pytest.raises(UnavailableError, match=r"nic vhost: there is no .*vhost-net") as caught:
        require_vhost(vhost)
    assert "modprobe vhost_net" in caught.value.remedy
    lacks = device_helps(vhost, groups)
    assert {what: found is not None and bool(found.remedy) for what, found in lacks.items()} == {
        "guest nic vhost": True,
        "guest vfio": True,
    }
    vhost.touch()
    (groups / "7").mkdir(parents=True)
    require_vhost(vhost)
    assert set(device_helps(vhost, groups).values()) == {None}


def test_a_network_in_user_mode_is_what_qemu_was_built_with() -> None:
    program = "/usr/bin/qemu-system-x86_64"
    asking = (program, "-netdev", "help")
    have = {"qemu-system-x86_64": program}
    told = "Available netdev backend types:\nsocket\nuser\ntap\n"
    assert Qemu().user_network(FakeHost(programs=have, commands={asking: told})) is None
    for host, reason in (
        (FakeHost(programs=have, commands={asking: "tap\n"}), "without libslirp"),
        (FakeHost(missing=("qemu-system-x86_64",)), "is not installed"),
    ):
        found = Qemu().user_network(host)
        assert isinstance(found, Unavailable) and reason in found.reason and found.remedy


def test_qemu_gets_its_machine_disks_and_card() -> None:
    disk = QemuDisk(name="image", file=Path("/a,b"), format=DiskFormat.QCOW2, read_only=True, snapshot=True)
    place = GuestInterface(mac="02:00:00:00:00:01", address="10.0.0.2", mask="255.0.0.0", mtu=1500)
    settings = GuestSettings(memory=512 * MIB, cache=Cache.NONE, nic=Nic.E1000, vfio="0000:01:00.0")
    argv = qemu_argv(
        "qemu", plan(settings, disks=(disk,), place=place, accelerator=Accelerator.KVM, cpu="host")
    )
    assert (
        after(argv, "-accel") == ["kvm"] and after(argv, "-cpu") == ["host"] and after(argv, "-m") == ["512M"]
    )
    assert after(argv, "-drive") == [
        "file=/a,,b,format=qcow2,id=image,if=none,cache=none,aio=threads,readonly=on,snapshot=on"
    ]
    assert after(argv, "-netdev") == ["tap,id=net,fd=30"]
    devices = after(argv, "-device")
    assert (
        "e1000,netdev=net,romfile=,mac=02:00:00:00:00:01" in devices
        and "vfio-pci,host=0000:01:00.0" in devices
    )
    assert "virtio-blk-pci,drive=image,serial=image" in devices and "-no-reboot" in argv


def test_a_microvm_has_no_pci_and_vhost_a_descriptor() -> None:
    place = GuestInterface(mac="02:00:00:00:00:01", address="10.0.0.2", mask="255.0.0.0", mtu=1500)
    argv = qemu_argv("qemu", plan(GuestSettings(machine=MachineType.MICROVM, nic=Nic.VHOST), place=place))
    assert not any("-pci" in d for d in after(argv, "-device"))
    assert after(argv, "-netdev") == ["tap,id=net,fd=30,vhost=on,vhostfd=31"]
    assert after(argv, "-accel")[0].startswith("tcg")


def test_memory_is_shared_in_huge_pages_or_divided_where_asked_for() -> None:
    argv = qemu_argv("qemu", plan(GuestSettings(numa=2, huge_pages=True), vcpus=4))
    assert after(argv, "-object") == [
        f"memory-backend-memfd,id=mem{n},size=512M,share=on,hugetlb=on" for n in (0, 1)
    ]
    assert after(argv, "-numa") == [
        "node,nodeid=0,memdev=mem0,cpus=0,cpus=1",
        "node,nodeid=1,memdev=mem1,cpus=2,cpus=3",
    ]
    shared = qemu_argv("qemu", plan(shared_root=True))
    assert after(shared, "-machine") == ["q35,memory-backend=mem0"] and after(shared, "-numa") == []
    assert "vhost-user-fs-pci,chardev=files,tag=root" in after(shared, "-device")
    assert "-object" not in qemu_argv("qemu", plan())


def test_a_console_tells_why_a_guest_ended_and_how_far_a_silent_one_came() -> None:
    panic = "[ 1.0] booting\n[ 2.0] Kernel panic - not syncing: VFS: Unable to mount root\n[ 2.1] CPU: 0\n"
    assert console_words(panic) == "Kernel panic - not syncing: VFS: Unable to mount root"
    fault = "[    9.1] general protection fault, probably for non-canonical address 0xdead: 0000 [#1]\r\n"
    fatal = "[    9.3] Kernel panic - not syncing: Fatal exception in interrupt\r\n"
    assert console_words(f"x\n{fault}[    9.2] RIP: 0010:f+0x1/0x2\n{fatal}") == (
        "general protection fault, probably for non-canonical address 0xdead: 0000 [#1]; "
        "Kernel panic - not syncing: Fatal exception in interrupt"
    )
    own = "mount the image: has the kernel its file system?: No such device (/dev/vda:erofs)"
    line = json.dumps(
        {"event": "error", "program": "nm-guest", "process": "", "what": own}, separators=(",", ":")
    )
    assert console_words(f"x\n{line}\nreboot: Power down\n") == f"nm-guest: {own}"
    assert console_words("a\r\nb\r\n\n") == "b" and console_words("") == "its console is empty"
    assert how_far("") == "in its firmware, or in a kernel that prints nothing"
    assert how_far("[0.0] Linux") == "in its kernel" and how_far(line) == "in its init"


REGISTERS = "\nCPU#0\nRAX=0000000000000000 RBX=0\n{name}={at} RFL=00000046 [---Z-P-] CPL=0\nES =0000\n"


def test_hang_report_names_last_boot_step_or_cpu_position() -> None:
    marks = "nm-step: modules\nnm-step: root\n"
    assert how_far(f"[0.0] Linux\n{marks}") == "in its init, at root"
    assert console_words(f"Loading x\n{marks}") == "Loading x", "a mark is no reason"
    in_kernel = REGISTERS.format(name="RIP", at="ffffffff81000000")
    in_firmware = REGISTERS.format(name="EIP", at="0000fff0")
    assert how_far("", in_kernel) == "in its kernel"
    assert how_far("", in_firmware).startswith("in its firmware")
    assert how_far(marks, in_firmware) == "in its init, at root"


MEMINFO = """\
MemTotal:       24576000 kB
MemAvailable:    2097152 kB
HugePages_Free:       16
Hugepagesize:       2048 kB
"""


def test_more_memory_than_is_free_is_refused_before_a_start() -> None:
    host = FakeHost(files={"/proc/meminfo": MEMINFO})
    require_memory(host, "guest nm0", 2 << 30, huge=False)
    require_memory(host, "guest nm0", 32 * MIB, huge=True)
    with pytest.raises(UnavailableError, match="guest nm0: 2049 MiB of memory are needed, 2048 MiB are free"):
        require_memory(host, "guest nm0", 2049 * MIB, huge=False)
    with pytest.raises(UnavailableError, match="33 MiB of memory are needed, 32 MiB in huge pages") as caught:
        require_memory(host, "guest nm0", 33 * MIB, huge=True)
    assert "vm.nr_hugepages" in caught.value.remedy
    require_memory(FakeHost(absent=("/proc/meminfo",)), "guest nm0", 1 << 50, huge=False)


def test_guests_that_stand_at_once_are_counted_together() -> None:
    host = FakeHost(files={"/proc/meminfo": MEMINFO})
    guest = environment(guest=GuestSettings(memory=900 * MIB))
    places = (Placement(name="1x2", instances=1, tasks=2), Placement(name="2x1", instances=2, tasks=1))
    asked_for = Study(
        name="s",
        question="",
        environments=(replace(guest, name="a"), replace(guest, name="b", placements=("2x1",))),
        placements=places,
        workloads=(),
        design=Design(baselines=("a",), margin=0.03, confidence=0.95, seed=1, mode=Mode.PLAIN),
    )
    backends = {"qemu": Qemu()}
    require_room(host, asked_for, backends)  # one after the other
    sliced = replace(asked_for, design=replace(asked_for.design, mode=Mode.SLICES))
    # The baseline stands twice: against itself too.
    with pytest.raises(UnavailableError, match="guests that run at the same time: 3600 MiB"):
        require_room(host, sliced, backends)


def test_boot_phases_are_measured_on_the_clock_of_the_machine() -> None:
    ms = 1_000_000
    at = {"init": 800 * ms, "modules": 900 * ms, "root": 950 * ms, "network": 960 * ms, "agent": 1000 * ms}
    ahead = Clocks(monotonic=-500 * ms, realtime=0, error=1)  # its clock began 500 ms on the host's
    phases = boot_phases(100 * ms, 150 * ms, Hello(kernel="6.1", at=at), ahead)
    assert phases == pytest.approx(
        {
            "prepare": 0.05,
            "firmware": 0.35,
            "kernel": 0.8,
            "modules": 0.1,
            "root": 0.05,
            "network": 0.01,
            "agent": 0.04,
            "first_instruction": 1.4,
        }
    )


def test_ranks_are_pinned_to_the_cpus_of_their_guest() -> None:
    two = Arm(environment=environment(), placement=Placement(name="2x2", instances=2, tasks=2))
    assert vcpus_of(two, [(0, 1), (2, 3)], [(0,), (1,), (2,), (3,)]) == ((0,), (1,), (0,), (1,))
    loose = replace(two, placement=replace(two.placement, pinning=Pinning.INSTANCE))
    assert vcpus_of(loose, [(4, 6), (5, 7)], [(4, 6), (4, 6), (5, 7), (5, 7)]) == ((0, 1),) * 4
    one = replace(two, environment=environment(guest=GuestSettings(vcpus=1)))
    assert vcpus_of(one, [(0, 1), (2, 3)], [(0,), (1,), (2,), (3,)]) == ((0,),) * 4
    assert host_cpus_of(asked(), 3) == (2, 3, 2)


def test_a_guest_is_refused_what_it_cannot_have() -> None:
    base = GuestBase(kernel=Path("/k"), initramfs=Path("/i"), root=None, cache=Path("/c"))
    assert require_base(asked(base=base)) is base
    with pytest.raises(UnavailableError, match="no kernel"):
        require_base(asked())
    shares = replace(asked(base=base), environment=environment(share=(Shared.IPC,)))
    with pytest.raises(UnavailableError, match="shares no namespace"):
        require_base(shares)
    seat = Seat(netns="/run/netns/a", address="10.99.0.2", interface="eth0", port="port0")
    require_attachment(asked(), Qemu.capabilities)
    require_attachment(replace(asked(Attachment.VETH), seat=seat), Qemu.capabilities)
    for attachment, given, told in (
        (Attachment.HOST, None, "no interface in common"),
        (Attachment.IPVLAN, seat, "ipvlan delivers"),
        (Attachment.VETH, None, "needs an address"),
        (Attachment.NONE, seat, "takes no address"),
    ):
        with pytest.raises(UnavailableError, match=told):
            require_attachment(replace(asked(attachment), seat=given), Qemu.capabilities)


def test_kvm_is_used_where_it_works_and_asked_for_in_vain_elsewhere() -> None:
    def host(answer: str) -> FakeHost:
        return FakeHost(commands={("/opt/tools/nm-box", "kvm"): answer})

    assert kvm_answer(host(HANGS), TOOLS).reason == "it hangs (long mode)"
    assert accelerator_of(host(WORKS), TOOLS, GuestSettings()) is Accelerator.KVM
    assert accelerator_of(host(HANGS), TOOLS, GuestSettings()) is Accelerator.TCG
    with pytest.raises(UnavailableError, match="KVM runs no guest here: it hangs"):
        accelerator_of(host(HANGS), TOOLS, GuestSettings(accelerator=Accelerator.KVM))
    assert accelerator_of(FakeHost(), TOOLS, GuestSettings(accelerator=Accelerator.TCG)) is Accelerator.TCG
    assert (
        cpu_of(GuestSettings(), Accelerator.KVM) == "host"
        and cpu_of(GuestSettings(), Accelerator.TCG) == "max"
    )
    with pytest.raises(UnavailableError, match="needs KVM"):
        cpu_of(GuestSettings(cpu="host"), Accelerator.TCG)


@pytest.mark.parametrize(
    ("kvm", "version", "forgets"), [(HANGS, 7, True), (HANGS, 9, False), (WORKS, 7, False)]
)
def test_an_emulator_that_forgets_writes_is_noted_for_moves_alone(
    kvm: str, version: int, forgets: bool
) -> None:
    programs = {name: name for name in ("/opt/tools/nm-box", "/opt/tools/nm-init", "qemu-system-x86_64")}
    commands: dict[tuple[str, ...], Any] = {
        ("/opt/tools/nm-box", "kvm"): kvm,
        ("qemu-system-x86_64", "--version"): f"QEMU emulator version {version}.2.1 (Debian)",
    }
    answer = qemu_answer(FakeHost(commands=commands, programs=programs), TOOLS)
    assert isinstance(answer, Available) and answer.version == f"QEMU {version}.2.1"
    assert FORGETS_WRITES not in answer.notes
    assert answer.of_moves == ((FORGETS_WRITES,) if forgets else ())


def test_programs_are_compiled_for_the_processor_that_every_arm_has() -> None:
    emulated = GuestSettings(accelerator=Accelerator.TCG, accelerated_not="it hangs")
    assert flags_of(emulated) == EMULATED_CPU and emulated.label == "TCG, no KVM: it hangs"
    assert flags_of(GuestSettings(accelerator=Accelerator.KVM)) == FLAGS
    assert flags_of(GuestSettings(accelerator=Accelerator.KVM, cpu="Haswell")) == ANY_CPU


def test_sockets_and_memory_of_ranks_are_parsed_from_the_agent() -> None:
    text = (
        "0 process 12\n0 link 0100007F:1F90 0100007F:A000\n"
        "maps 7f00-7f01 rw-s 00000000 00:01 77  /dev/shm/vader_segment\n"
        "maps 7f01-7f02 r--p 00000000 08:01 5 /lib/x\n"
        "1 process 13\n"
    )
    found = parse_holdings(text, "guest")
    assert found[0] == RankHolds(
        links=frozenset({("127.0.0.1:8080", "127.0.0.1:40960")}), memory=frozenset({("00:01", "77")})
    )
    assert found[1] == RankHolds(links=frozenset(), memory=frozenset())


def test_a_kernel_without_a_driver_is_refused_before_it_boots(tmp_path: Path) -> None:
    (tmp_path / "modules.dep").write_text(
        "kernel/fs/overlayfs/overlay.ko.xz:\nkernel/drivers/virtio-blk.ko: x\n"
    )
    (tmp_path / "modules.builtin").write_text(
        "kernel/drivers/char/virtio_console.ko\nkernel/fs/erofs/erofs.ko\n"
    )
    plain = GuestSettings()
    require_drivers(tmp_path, plain, shared_root=False, network=False)
    require_drivers(None, plain, shared_root=True, network=True)
    require_drivers(tmp_path / "none", plain, shared_root=True, network=True)
    for settings, shared, told in (
        (plain, True, "no driver virtiofs"),
        (GuestSettings(nic=Nic.E1000), False, "no driver e1000"),
    ):
        with pytest.raises(UnavailableError, match=told):
            require_drivers(tmp_path, settings, shared_root=shared, network=True)
    with pytest.raises(UnavailableError, match="no driver veth, bridge"):
        require_drivers(tmp_path, plain, shared_root=False, network=False, further=("veth", "bridge"))


def test_image_of_another_architecture_or_of_a_single_machine_is_reported(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "bin" / "sh").write_bytes(b"\x7fELF" + bytes(14) + (183).to_bytes(2, "little"))
    with pytest.raises(UnavailableError, match="another architecture"):
        require_tree("arm", tmp_path)
    (tmp_path / "bin" / "sh").write_bytes(b"\x7fELF" + bytes(14) + (62).to_bytes(2, "little"))
    require_tree("x86", tmp_path)
    (tmp_path / "etc" / "machine-id").touch()
    assert of_one_machine(tmp_path) == ()
    (tmp_path / "etc" / "hostname").write_text("node7\n")
    assert of_one_machine(tmp_path) == ("etc/hostname",)


def test_a_device_is_passed_through_only_from_vfio(tmp_path: Path) -> None:
    device = tmp_path / "0000:01:00.0"
    with pytest.raises(UnavailableError, match="there is none"):
        require_device("01:00.0", tmp_path)
    device.mkdir()
    with pytest.raises(UnavailableError, match="no IOMMU"):
        require_device("01:00.0", tmp_path)
    (device / "iommu_group").mkdir()
    for driver in ("ixgbevf", "vfio-pci"):
        (tmp_path / driver).mkdir()
    (device / "driver").symlink_to(tmp_path / "ixgbevf")
    with pytest.raises(UnavailableError, match="its driver is ixgbevf"):
        require_device("0000:01:00.0", tmp_path)
    (device / "driver").unlink()
    (device / "driver").symlink_to(tmp_path / "vfio-pci")
    require_device("0000:01:00.0", tmp_path)


def test_the_accelerator_is_settled_before_a_run() -> None:
    works, hangs = KvmAnswer(works=True), KvmAnswer(works=False, reason="it hangs", remedy="another machine")
    plain = environment()

    def settled(
        answer: KvmAnswer, *, settings: GuestSettings | None = None, require: bool = False
    ) -> GuestSettings:
        found = resolved(replace(plain, guest=settings), answer, require).guest
        assert found is not None
        return found

    assert settled(works).accelerator is Accelerator.KVM and settled(works).label == ""
    assert settled(hangs).label == "TCG, no KVM: it hangs"
    asked_for = GuestSettings(accelerator=Accelerator.TCG)
    assert settled(works, settings=asked_for).label == "TCG, no KVM: it was requested"
    for settings, require in ((GuestSettings(accelerator=Accelerator.KVM), False), (None, True)):
        with pytest.raises(UnavailableError, match="KVM runs no guest here: it hangs"):
            settled(hangs, settings=settings, require=require)
    assert settled(works, settings=asked_for, require=True).accelerator is Accelerator.KVM
