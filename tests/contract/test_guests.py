"""What virtual machines keep of the contract, and what they offer besides. They boot in seconds, so one that
is as usual serves most tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract import guests
from tests.contract.answers import checked
from tests.contract.guests import HOST, NEEDED, SMALL, booted, request
from tests.contract.test_network_attachments import CLIENT, PYTHON, SERVER
from tests.patience import one_fits, until

from nearmetal.environments import Available, Bind, Enclosed, InstanceRequest, RemoteInstance, Tools
from nearmetal.environments.containers.namespaces import Namespaces
from nearmetal.environments.guests.guest import GuestInstance
from nearmetal.environments.guests.initramfs import initramfs
from nearmetal.environments.guests.kvm import kvm_answer
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import Completed, cpio
from nearmetal.host.guest_line import GuestLine
from nearmetal.host.leftovers import find, remove
from nearmetal.host.processes import labelled as processes
from nearmetal.host.processes.failure import find_error_line
from nearmetal.model.environments.guest import (
    MIB,
    Accelerator,
    Cache,
    DiskFormat,
    GuestSettings,
    MachineType,
    StartFrom,
)
from nearmetal.model.environments.network import NetworkSettings, Offloads, Seat
from nearmetal.model.study import Attachment, Environment, Limits
from nearmetal.node.guests import check_networks

pytestmark = [pytest.mark.beside, *NEEDED]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guests")


@pytest.fixture(scope="module")
def guest(tools: Tools, place: Path) -> Iterator[GuestInstance]:
    """One with the machine's own root, a directory of ours bound, and views of another."""
    bind = place / "bind"
    bind.mkdir()
    (bind / "given").write_text("from outside\n")
    base = guests.base(tools, place, further=("veth", "bridge"))
    view = place / "view"
    view.mkdir()
    (view / "given").write_text("in a view\n")
    views = tuple(Bind(view, there) for there in VIEWS)
    asked = replace(request("a", base, place, binds=(bind,)), views=views)
    with booted(tools, asked) as instance:
        yield instance


VIEWS = (Path(__file__).parent, Path("/tmp/nearmetal-view"), Path("/new/view"))
"""Paths at which the guest sees another directory. The machine has the first."""


def run(guest: GuestInstance, *argv: str, **more: object) -> Completed:
    return HOST.run(guest.command(argv), timeout=600, **more)  # type: ignore[arg-type]


def test_check_says_what_runs_guests_here(tools: Tools) -> None:
    answer, kvm = checked("qemu", tools), kvm_answer(HOST, tools)
    assert isinstance(answer, Available) and answer.version.startswith("QEMU ")
    assert kvm.works == (not any("TCG" in note for note in answer.notes))
    assert kvm.works or (kvm.reason and kvm.remedy and kvm.steps)


def test_kvm_is_refused_where_it_runs_no_guest(tools: Tools, place: Path) -> None:
    if kvm_answer(HOST, tools).works:
        pytest.skip("KVM runs guests here")
    asked = request("k", guests.base(tools, place), place, replace(SMALL, accelerator=Accelerator.KVM))
    with pytest.raises(UnavailableError, match="KVM runs no guest here"), booted(tools, asked):
        pass


def test_clocks_and_cpu_counters_of_the_guest_are_read(guest: GuestInstance) -> None:
    first, second = sorted((guest.clocks() for _ in range(5)), key=lambda clocks: clocks.error)[:2]
    assert 0 < first.error < 10e9, "half of a round trip"
    assert abs(first.monotonic - second.monotonic) <= first.error + second.error + 1e6
    (source,) = guest.sources
    before = source.read()
    assert run(guest, "sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done").ok
    after = source.read()
    assert (after["vcpu"] or 0) > (before["vcpu"] or 0) > 0, "its thread ran"
    assert (after["vcpu_delay"] or 0) >= (before["vcpu_delay"] or 0)


def test_a_view_shows_a_directory_at_another_path(guest: GuestInstance, place: Path) -> None:
    before = sorted(VIEWS[0].iterdir())
    script = 'for d; do cd "$d" && echo * && cat given && echo inside >given && cat given || exit; done'
    done = run(guest, "sh", "-c", script, "sh", *map(str, VIEWS))
    assert done.stdout == "given\nin a view\ninside\n" * len(VIEWS), done
    assert sorted(VIEWS[0].iterdir()) == before
    assert (place / "view" / "given").read_text() == "in a view\n"


def test_a_command_has_streams_status_environment_and_directory(guest: GuestInstance) -> None:
    assert isinstance(guest, RemoteInstance)
    done = run(
        guest,
        "sh",
        "-c",
        "hostname; echo $GIVEN; pwd; echo bad >&2; exit 7",
        env={"GIVEN": "a b"},
        cwd=Path("/usr"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "nma\na b\n/usr\n", "bad\n")
    text = "".join(f"line {i}\n" for i in range(60_000))
    assert run(guest, "cat", stdin=text).stdout == text
    assert run(guest, "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    missing = run(guest, "/no/such")
    assert missing.returncode == 127
    assert str(find_error_line(missing.stderr)) == "nm-guest: exec: No such file or directory (/no/such)"


def test_guest_has_its_own_kernel_network_and_root(guest: GuestInstance) -> None:
    assert run(guest, "uname", "-r").stdout.strip() != os.uname().release
    assert run(guest, "ls", "/sys/class/net").stdout.split() == ["lo"]
    assert run(guest, "nproc").stdout == "1\n"
    assert run(guest, "touch", "/etc/of-the-guest").ok and not Path("/etc/of-the-guest").exists()
    assert {
        "firmware",
        "kernel",
        "modules",
        "root",
        "network",
        "agent",
        "first_instruction",
    } <= guest.phases.keys()
    whole = sum(v for k, v in guest.phases.items() if k not in ("first_instruction", "first_command"))
    assert guest.phases["first_command"] > 0
    assert whole == pytest.approx(guest.phases["first_instruction"])


@pytest.mark.attack
def test_root_of_the_guest_writes_nothing_on_the_machine(guest: GuestInstance, place: Path) -> None:
    again = (
        "mkdir /tmp/again && mount -t virtiofs -o ro root /tmp/again && mount -o remount,rw /tmp/again &&"
        f" echo x > /tmp/again{place}/planted"
    )
    tried = run(guest, "sh", "-c", again)
    assert "Read-only file system" in tried.stderr and not tried.ok
    assert not (place / "planted").exists()


def test_many_commands_at_once_do_not_wait_for_each_other(guest: GuestInstance) -> None:
    sleeping = [subprocess.Popen(guest.command(["sleep", "3600"])) for _ in range(8)]
    assert run(guest, "echo", "there").stdout == "there\n"
    for process in sleeping:
        process.send_signal(signal.SIGTERM)
    assert [p.wait(600) for p in sleeping] == [-signal.SIGTERM] * 8


def test_a_killed_caller_takes_its_command_along(guest: GuestInstance) -> None:
    caller = subprocess.Popen(guest.command(["sleep", "4711"]))
    count = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [4]711'"
    until(lambda: run(guest, "sh", "-c", count).stdout == "1\n")
    caller.kill()
    caller.wait()
    until(lambda: run(guest, "sh", "-c", count).stdout == "0\n")


def test_files_links_and_fifos_go_in_and_what_was_written_comes_out(
    guest: GuestInstance, place: Path
) -> None:
    bind = place / "bind"
    assert run(guest, "cat", str(bind / "given")).stdout == "from outside\n"
    (bind / "more").mkdir()
    (bind / "more" / "program").write_text("#!/bin/sh\necho ran $0\n")
    (bind / "more" / "program").chmod(0o755)
    (bind / "link").symlink_to("more/program")
    guest.copy_in([bind])
    assert run(guest, str(bind / "link")).stdout == f"ran {bind / 'link'}\n"
    run(guest, "sh", "-c", f"head -c 300000 /dev/urandom > {bind}/big; sha256sum < {bind}/big > {bind}/sum")
    guest.copy_out([bind / "big", bind / "sum", bind / "not-there"])
    assert (bind / "sum").read_text() == HOST.run(["sh", "-c", f"sha256sum < {bind}/big"], timeout=600).stdout


def test_fifos_are_carried_with_their_end(guest: GuestInstance, place: Path) -> None:
    inward, outward = place / "inward", place / "outward"
    for path in (inward, outward):
        os.mkfifo(path)
    guest.copy_in([inward, outward])
    reader = os.open(outward, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(inward, os.O_RDWR)
    carriers = [guest.carry(inward, inward=True), guest.carry(outward, inward=False)]
    command = subprocess.Popen(guest.command(["sh", "-c", f"cat {inward} > {outward}; echo end > {outward}"]))
    try:
        os.write(writer, b"token\n")
        said = b""

        def more() -> bytes:
            nonlocal said
            with contextlib.suppress(BlockingIOError):
                said += os.read(reader, 100)
            return said

        until(lambda: more() == b"token\n")
        os.close(writer)
        until(lambda: more() == b"token\nend\n")
        assert command.wait(600) == 0
    finally:
        for carrier in carriers:
            carrier.kill()
        command.kill()
        os.close(reader)


def test_clocks_of_the_guest_are_exact_to_a_round_trip(guest: GuestInstance) -> None:
    with GuestLine(guest.socket) as line:
        first, second = line.clocks(), line.clocks()
    assert abs(first.monotonic - second.monotonic) <= first.error + second.error + 5_000_000
    before = time.monotonic_ns()
    now = int(float(run(guest, "cut", "-d ", "-f1", "/proc/uptime").stdout) * 1e9)
    assert before - 1e9 < guest.on_host(now) < time.monotonic_ns() + 1e9


def test_ranks_are_seen_inside(guest: GuestInstance) -> None:
    env = {"NEARMETAL_JOB": "here", "OMPI_COMM_WORLD_RANK": "3"}
    process = subprocess.Popen(guest.command(["sleep", "3600"]), env={**os.environ, **env})
    until(lambda: guest.rank_holdings("NEARMETAL_JOB=here").keys() == {3})
    assert guest.rank_holdings("NEARMETAL_JOB=there") == {}
    process.terminate()
    process.wait(600)


def inner(place: Path, slot: str, **more: object) -> InstanceRequest:
    """Of a container in a guest that stands."""
    scratch = place / f"scratch-{slot}"
    scratch.mkdir()
    environment = Environment(name="box", backend="namespaces", inside="tested", placements=(), **more)  # type: ignore[arg-type]
    return InstanceRequest(
        label=f"nearmetal-check-{os.getpid()}-{slot}",
        hostname=f"nm{slot}",
        environment=environment,
        cpus=(0,),
        seat=None,
        binds=(scratch,),
        scratch=scratch,
    )


@pytest.mark.more
def test_container_in_a_guest_runs_on_the_kernel_of_the_guest(
    guest: GuestInstance, tools: Tools, place: Path
) -> None:
    backend = Namespaces()
    assert isinstance(backend, Enclosed)
    asked = inner(place, "i1", attachment=Attachment.NONE)
    view = Bind(place / "bind", VIEWS[0])
    asked = replace(asked, views=(view,))
    (asked.scratch / "given").write_text("from outside\n")
    count = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[n]m-init'"
    with backend.start_inside(guest, tools, asked, alone=False) as box:
        assert isinstance(box, RemoteInstance) and isinstance(box, GuestInstance) and box.hostname == "nmi1"
        told = run(
            box,
            "sh",
            "-c",
            "hostname; uname -r; echo $$; ls /sys/class/net; cat $1",
            "-",
            f"{asked.scratch}/given",
        )
        kernel_of_guest = run(guest, "uname", "-r").stdout.strip()
        name, kernel_inside, pid, *devices, given = told.stdout.splitlines()
        assert (name, kernel_inside, devices, given) == ("nmi1", kernel_of_guest, ["lo"], "from outside")
        assert run(box, "cat", str(VIEWS[0] / "given")).stdout == "from outside\n"
        assert int(pid) < 50, "it counts processes of its own"
        assert run(box, "touch", "/etc/of-the-box", "/tmp/of-the-box").ok
        assert not run(guest, "ls", "/etc/of-the-box", "/tmp/of-the-box").stdout
        assert run(guest, "sh", "-c", count).stdout == "1\n"
        # Its clock is the guest's, turned to ours.
        assert box.phases["first_instruction"] > 0 and {"copy", "spawn", "root"} <= box.phases.keys()
        assert (box.cgroups, box.threads, box.sources) == ({}, (), ()), "the guest is not its alone"
        with backend.start_inside(guest, tools, inner(place, "i2"), alone=True) as other:
            assert run(other, "hostname").stdout == "nmi2\n" and other.cgroups == guest.cgroups
            assert other.threads == guest.threads
            process = subprocess.Popen(
                box.command(["sleep", "3600"]), env={**os.environ, "NEARMETAL_JOB": "box", "PMI_RANK": "1"}
            )
            until(lambda: box.rank_holdings("NEARMETAL_JOB=box").keys() == {1})
    assert process.wait(600) != 0, "its commands end with it"
    assert run(guest, "sh", "-c", count).stdout == "0\n" and guest.trouble() == ""
    for wrong, told_why in (
        ({"limits": Limits(cpu_quota=0.5)}, "no control groups"),
        ({"attachment": Attachment.VETH_BRIDGE}, "needs an address on a network"),
    ):
        refused = inner(place, f"w{len(told_why)}", **wrong)
        with (
            pytest.raises(UnavailableError, match=told_why),
            backend.start_inside(guest, tools, refused, alone=True),
        ):
            pass


@pytest.mark.more
def test_containers_in_one_guest_are_joined_by_veth_and_a_bridge(
    guest: GuestInstance, tools: Tools, place: Path
) -> None:
    network = NetworkSettings(mtu=1400, rto_min=4e-3, queue_length=77, offloads=Offloads(tso=False))
    ends = {
        "hub": "br0,10.99.0.1/24,1400",
        "left": "eth0,10.99.0.2/24,1400",
        "right": "eth0,10.99.0.3/24,1400",
    }
    listening = f"{PYTHON} -c '{SERVER}' 10.99.0.3 >/tmp/said 2>&1 & until grep -q g /tmp/said; do :; done"
    with guest.joined(ends, network), contextlib.ExitStack() as stack:
        boxes = []
        for name, end in list(ends.items())[1:]:
            asked = inner(place, name, attachment=Attachment.VETH_BRIDGE, network=network)
            address = end.split(",")[1].partition("/")[0]
            seat = Seat(netns=f"/run/netns/{name}", address=address, interface="eth0", port="")
            asked = replace(asked, seat=seat)
            box = stack.enter_context(Namespaces().start_inside(guest, tools, asked, alone=False))
            ((_, found),) = check_networks(asked.environment, (box,), (box,), place).items()
            assert (found["driver"], found["mtu"], found["rto_min"]) == ("veth", 1400, 0.004)
            assert box.guest is guest and box.inner_agent_line.startswith(
                f"nm{name} = {tools / 'nm-box'} enter "
            )
            boxes.append(box)
        first, second = boxes
        assert run(second, "sh", "-c", listening).ok
        said = run(first, PYTHON, "-c", CLIENT, "10.99.0.3")
        assert said.stdout == "PING\n", said.stderr
        assert not run(guest, PYTHON, "-c", CLIENT, "10.99.0.3").ok, "the guest itself is not among them"
        taken = {"new": ends["hub"], "left": ends["left"]}
        with pytest.raises(RunError, match="File exists"), guest.joined(taken, network):
            pass
        assert run(guest, "ls", "/run/netns").stdout.split() == ["hub", "left", "right"]
        assert run(second, "sh", "-c", listening.replace("said", "again")).ok
        assert run(first, PYTHON, "-c", CLIENT, "10.99.0.3").stdout == "PING\n", "they are still joined"
    assert not run(guest, "ls", "/run/netns").stdout
    assert run(guest, "ls", "/sys/class/net").stdout.split() == ["lo"]


def small_image(tools: Tools, place: Path) -> Path:
    """A tree of two programs, as a file: nothing else is needed of an image."""
    image, tree = place / "tree.erofs", place / "tree"
    if not image.exists():
        for name in ("bin", "etc", "dev", "proc", "sys", "tmp", "run", "var/tmp"):
            (tree / name).mkdir(parents=True)
        for program in ("nm-box", "nm-guest"):
            shutil.copy(tools / program, tree / "bin" / program)
        assert HOST.run(["mkfs.erofs", str(image), str(tree)], timeout=600).ok
    return image


@pytest.mark.more
def test_a_microvm_with_an_image_a_disk_and_swap_finds_each_by_its_number(tools: Tools, place: Path) -> None:
    image = small_image(tools, place)
    settings = GuestSettings(
        machine=MachineType.MICROVM,
        memory=128 * MIB,
        writable=16 * MIB,
        swap=8 * MIB,
        format=DiskFormat.QCOW2,
        cache=Cache.NONE,
        boot_timeout=SMALL.boot_timeout,
    )
    asked = request("m", guests.base(tools, place, image), place, settings)
    with booted(tools, asked) as guest:
        mounts = place / "out"
        mounts.mkdir()
        with GuestLine(guest.socket) as line:
            got = line.run(["nm-guest", "get", "/proc/swaps"], timeout=600)
            assert [len(member.data) for member in cpio.unpack(got.stdout)] == [0], (
                "its size is 0 for stat(2)"
            )
            got = line.run(["nm-guest", "get", "/bin/nm-box"], timeout=600)
        assert got.status == 0 and len(got.stdout) > (tools.directory / "nm-box").stat().st_size
        console = (guest.scratch / "console").read_text()
        assert "Adding 8188k swap on /dev/vd" in console or guest.phases["root"] > 0
        disks = Path(f"/var/tmp/{guest.label}")
        assert {p.name for p in disks.iterdir()} == {"image", "writable", "swap"}
    assert not disks.exists()


@pytest.mark.more
def test_restored_guest_is_independent_of_the_first_one(tools: Tools, place: Path) -> None:
    """It runs after a fifth of the time of a boot on an idle machine; after half of it beside other tests."""
    settings = replace(SMALL, memory=96 * MIB, start=StartFrom.RESTORED)
    of = guests.base(tools, place, small_image(tools, place))
    own = []
    for slot in ("s1", "s2"):
        with booted(tools, request(slot, of, place, settings)) as guest:
            own.append(guest.phases)
            given = place / f"given-{slot}"
            given.write_text(slot)
            guest.copy_in([given])
            given.unlink()
            guest.copy_out([given])
            assert given.read_text() == slot
    assert {"program", "restore", "agent"} <= own[1].keys()
    numbers = itertools.count(3)

    def restored_to_cold() -> float:
        times = []
        for start in (StartFrom.RESTORED, StartFrom.COLD):
            asked = request(f"s{next(numbers)}", of, place, replace(settings, start=start))
            with booted(tools, asked) as guest:
                times.append(guest.phases["first_instruction"])
        return times[0] / times[1]

    one_fits(restored_to_cold, lambda ratio: ratio < 0.5, attempts=5)
    assert len(list((place / "guests").glob("*.state"))) == 1


@pytest.mark.more
def test_a_guest_that_is_killed_says_so(tools: Tools, place: Path) -> None:
    asked = request("d", guests.base(tools, place), place)
    with booted(tools, asked) as guest:
        argv = guest.command(["sh", "-c", "echo runs; exec sleep 3600"])
        command = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert command.stdout is not None and command.stdout.readline() == "runs\n"
        assert guest.trouble() == ""
        os.kill(processes.descendant(guest.pid, "qemu-system-x86") or guest.pid, signal.SIGKILL)
        _, said = command.communicate(timeout=600)
        assert command.returncode == 111 and "the guest has gone while a command ran in it" in said
        until(lambda: guest.trouble() != "")
        assert guest.trouble().startswith("guest nmd has ended: ") and isinstance(guest.console(), str)
        with pytest.raises(RunError):
            guest.copy_in([place / "bind"])
    assert not processes.labelled(lambda label: label.startswith(asked.label))


DIES = """
import os, sys, time
from dataclasses import replace
from pathlib import Path
from tests.contract import guests
from nearmetal.environments import Tools
tools, place = Tools(directory=Path(sys.argv[1])), Path(sys.argv[2])
asked = guests.request("x", guests.base(tools, place), place)
# By this label, no test beside takes what it leaves for that of an ended nearmetal.
with guests.booted(tools, replace(asked, label=f"nearmetal-test{os.getpid()}-x")) as guest:
    print("up", flush=True)
    time.sleep(3600)
"""


@pytest.mark.more
def test_guest_whose_tool_is_killed_leaves_nothing_behind(tools: Tools, place: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", DIES, str(tools.directory), str(place)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    label = f"nearmetal-test{child.pid}-"
    assert processes.labelled(lambda other: other.startswith(label))
    child.kill()
    child.wait()
    child.stdout.close()
    until(lambda: not processes.labelled(lambda other: other.startswith(label)))
    for item in find(label):
        remove(item)
    assert find(label) == ()


FAULTS = (
    ("no module", "virtiofs: has the kernel its module"),
    ("memory", "the guest was silent for 6 s|the guest ended while it booted"),
    ("time", "the guest was silent for 0.2 s, in its "),
    ("huge", "guest nmhuge: 1048576 MiB of memory are needed, .* MiB in huge pages are free"),
    ("room", "guest nmroom: 16777216 MiB of memory are needed, .* MiB are free"),
    ("cpu", "the guest ended while it booted: .*nosuchcpu"),
    ("disk", "Could not open '/no/such.raw'|No such file"),
)


@pytest.mark.more
@pytest.mark.parametrize(("fault", "told"), FAULTS, ids=[f for f, _ in FAULTS])
def test_a_guest_that_does_not_boot_says_why(fault: str, told: str, tools: Tools, place: Path) -> None:
    own, settings = guests.base(tools, place), SMALL
    match fault:
        case "no module":
            empty = place / "modules"
            empty.mkdir()
            own = replace(own, initramfs=initramfs(place / "none", empty, tools))
        case "memory":
            settings = GuestSettings(memory=32 * MIB, boot_timeout=6.0)
        case "time":
            settings = replace(SMALL, boot_timeout=0.2)
        case "huge":
            settings = replace(SMALL, huge_pages=True, memory=1 << 40)
        case "room":
            settings = replace(SMALL, memory=1 << 44)
        case "cpu":
            settings = replace(SMALL, cpu="nosuchcpu")
        case "disk":
            own = replace(own, root=Path("/no/such.raw"), disk=True)
    slot = fault.replace(" ", "")
    asked = request(slot, own, place, settings)
    with pytest.raises((RunError, UnavailableError), match=told), booted(tools, asked):
        pass
    assert not processes.labelled(lambda label: label.startswith(asked.label))
    assert not Path(f"/run/nearmetal/{asked.label}-state").exists()


def test_qemu_is_not_asked_for_what_no_guest_has(tools: Tools, place: Path) -> None:
    asked = request("r", guests.base(tools, place), place)
    with (
        pytest.raises(UnavailableError, match="no kernel for a guest"),
        booted(tools, replace(asked, base=None)),
    ):
        pass
    assert Qemu().name == "qemu"
