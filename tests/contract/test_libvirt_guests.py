"""Guests that libvirt starts: that they are what those of QEMU are, and that nothing of them stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract import guests
from tests.contract.answers import checked
from tests.contract.guests import HOST, NEEDED, SMALL, booted, request
from tests.contract.test_backends_unprivileged import HERE, NOBODY, as_nobody, python_for_nobody
from tests.contract.test_guests import small_image
from tests.contract.test_guests_network import guest_on, says, settled
from tests.contract.test_network_attachments import PYTHON, SERVER, standing
from tests.patience import until

from nearmetal.environments import Available, Bind, GuestBase, Tools
from nearmetal.environments.leftovers import find_all, remove_any
from nearmetal.environments.libvirt.backend import LIBVIRT_STEP, Libvirt
from nearmetal.environments.libvirt.daemon import Daemon, ask, reached
from nearmetal.environments.libvirt.settings import LibvirtSettings
from nearmetal.environments.libvirt.xml import DomainPlan, domain_xml
from nearmetal.environments.qemu.argv import GuestPlan, QemuDisk, Sockets
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host.processes import labelled as processes
from nearmetal.host.runtime import cache_directory, scratch_directory
from nearmetal.model.environments.guest import MIB, Accelerator, DiskFormat, GuestSettings
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Attachment, Environment
from nearmetal.network.plan import NetworkRequest

pytestmark = [
    pytest.mark.more,
    *NEEDED,
    pytest.mark.skipif(
        shutil.which("virsh") is None and not os.environ.get("CI"), reason="libvirt is not installed"
    ),
]
LIBVIRT = Libvirt()


def base(tools: Tools, directory: Path) -> GuestBase:
    """What libvirt finds out about QEMU is kept where users keep it: it takes seconds."""
    return replace(guests.base(tools, directory), cache=cache_directory())


def bears(label: str) -> Callable[[str], bool]:
    return lambda other: other.startswith(label)


@contextmanager
def daemon(tools: Tools) -> Iterator[Daemon]:
    """A session daemon that is not of a guest's."""
    label = f"nearmetal-check-{os.getpid()}-others"
    with (
        scratch_directory(f"{label}-state") as state,
        reached(HOST, tools, None, label, state, cache_directory()) as found,
    ):
        yield found


def test_check_says_which_daemon_it_would_take(tools: Tools) -> None:
    answer = checked("libvirt", tools)
    assert isinstance(answer, Available)
    assert answer.version.startswith("libvirt ") and ", QEMU " in answer.version
    assert answer.notes[0].startswith("by ")
    assert answer.notes[1:] == getattr(checked("qemu", tools), "notes", ())[: len(answer.notes) - 1]


def test_a_guest_is_run_counted_and_gone(tools: Tools, tmp_path: Path) -> None:
    bind = tmp_path / "bind"
    bind.mkdir()
    (bind / "given").write_text("from outside\n")
    asked = request("va", base(tools, tmp_path), tmp_path, binds=(bind,))
    asked = replace(asked, views=(Bind(bind, Path(__file__).parent),))
    with booted(tools, asked, LIBVIRT) as guest:

        def run(*argv: str) -> str:
            done = HOST.run(guest.command(argv), timeout=600)
            assert done.ok, done.stderr
            return done.stdout

        assert run("sh", "-c", "hostname; cat $0; nproc", f"{bind}/given") == "nmva\nfrom outside\n1\n"
        assert run("ls", str(Path(__file__).parent)) == "given\n"
        assert run("uname", "-r").strip() != os.uname().release
        assert processes.label_of(Path(f"/proc/{guest.pid}/environ").read_bytes()) == asked.label
        (thread,) = guest.threads
        assert os.sched_getaffinity(thread) == set(asked.cpus)
        (source,) = guest.sources
        before = source.read()
        run("sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done")
        after = source.read()
        assert (after["vcpu"] or 0) > (before["vcpu"] or 0) > 0, "its thread ran"
        assert (after["vcpu_delay"] or 0) >= (before["vcpu_delay"] or 0)
        for group in set(guest.cgroups.values()):
            assert str(guest.pid) in (group / "cgroup.procs").read_text().split()
        assert {LIBVIRT_STEP, "firmware", "kernel", "agent"} <= guest.phases.keys()
        whole = sum(v for k, v in guest.phases.items() if k not in ("first_instruction", "first_command"))
        assert whole == pytest.approx(guest.phases["first_instruction"])
        assert asked.label in LIBVIRT.instance_names(HOST)
        assert guest.trouble() == ""
    assert not processes.labelled(bears(asked.label)) and find_all(HOST, asked.label) == ()


def test_a_guest_takes_its_seat_on_a_network(tools: Tools, tmp_path: Path) -> None:
    network = NetworkSettings(mtu=1400, rto_min=0.004, queue_length=77)
    wanted = NetworkRequest(attachment=Attachment.VETH_BRIDGE, settings=network, instances=1)
    with standing(tmp_path, None, wanted) as (built,):
        (seat,) = built.seats
        how = (tools, tmp_path, "vn", Attachment.VETH_BRIDGE, SMALL, network, seat, LIBVIRT)
        with guest_on(*how) as guest:
            environment = Environment(
                name="vm",
                backend="libvirt",
                attachment=Attachment.VETH_BRIDGE,
                network=network,
                placements=(),
            )
            assert {"driver": "virtio_net", **network.requested()}.items() <= settled(
                environment, guest
            ).items()
            server = built.hub_command([PYTHON, "-c", SERVER, built.hub_address])
            assert says(guest, server, built.hub_address, 7000, tmp_path) == "PING"
            assert (tmp_path / "server").read_text().splitlines()[-1] == seat.address
            inside = ["nsenter", f"--net={seat.netns}", "--", "ip", "-br", "link"]
            assert "nmlv" in HOST.run(inside, timeout=600).stdout
        assert "nmlv" not in HOST.run(inside, timeout=600).stdout
        assert built.trouble() == ""
    assert "nmlv" not in HOST.run(["ip", "-br", "link"], timeout=600).stdout


def test_a_daemon_of_others_is_used_and_stays(tools: Tools, tmp_path: Path) -> None:
    with daemon(tools) as others:
        asked = request("vo", base(tools, tmp_path), tmp_path, SMALL)
        own = LibvirtSettings(uri=others.uri)
        environment = replace(asked.environment, attachment=Attachment.USER, own=own)
        asked = replace(asked, environment=environment)
        with booted(tools, asked, LIBVIRT) as guest:
            assert ask(HOST, others.uri, "list", "--name").stdout.split() == [asked.label]
            assert guest.trouble() == ""
            assert guest.network("eth0")["driver"] == "virtio_net"
            # As clean does, once nobody is left who would.
            LIBVIRT.remove_instance(HOST, asked.label)
            until(lambda: guest.trouble() != "")
            LIBVIRT.remove_instance(HOST, asked.label)
        told = ask(HOST, others.uri, "list", "--all", "--name")
        assert told.ok and not told.stdout.split()
    assert not processes.labelled(bears(asked.label))
    with (
        pytest.raises(UnavailableError, match=r"libvirt at qemu\+unix") as caught,
        booted(tools, asked, LIBVIRT),
    ):
        pass
    assert "systemctl start" in caught.value.remedy


DIES = """
import sys, time
from pathlib import Path
from tests.contract import guests, test_libvirt_guests
from nearmetal.environments import Tools
tools, place = Tools(directory=Path(sys.argv[1])), Path(sys.argv[2])
asked = guests.request("vx", test_libvirt_guests.base(tools, place), place)
with guests.booted(tools, asked, test_libvirt_guests.LIBVIRT) as guest:
    print(guest.pid, flush=True)
    time.sleep(3600)
"""


def test_libvirt_guest_whose_tool_is_killed_leaves_nothing_behind(tools: Tools, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", DIES, str(tools.directory), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    qemu = int(child.stdout.readline())
    label = f"nearmetal-check-{child.pid}"
    assert processes.labelled(bears(label))
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    for item in find_all(HOST, label):
        remove_any(HOST, item)
    assert find_all(HOST, label) == () and not processes.labelled(bears(label))
    until(lambda: not Path(f"/proc/{qemu}/cwd").exists(), "the end of QEMU")


def test_a_guest_that_does_not_start_says_why(tools: Tools, tmp_path: Path) -> None:
    for slot, settings, told in (
        ("vc", replace(SMALL, cpu="nosuchcpu"), "nosuchcpu"),
        ("vt", replace(SMALL, boot_timeout=0.2), "the guest was silent for 0.2 s, in its "),
    ):
        asked = request(slot, base(tools, tmp_path), tmp_path, settings)
        with pytest.raises(RunError, match=told), booted(tools, asked, LIBVIRT):
            pass
        assert not processes.labelled(bears(asked.label)) and find_all(HOST, asked.label) == ()


AS_USER = """
import os, sys
from pathlib import Path
from nearmetal.environments import GuestBase, InstanceRequest, Tools
from nearmetal.environments.libvirt.backend import Libvirt
from nearmetal.host import LocalHost
from nearmetal.host.runtime import scratch_directory
from nearmetal.model.environments.guest import MIB, GuestSettings
from nearmetal.model.study import Attachment, Environment
host, own = LocalHost(), Path(sys.argv[1])
asked = InstanceRequest(
    label=f"nearmetal-check-{os.getpid()}-vu",
    hostname="nmvu",
    environment=Environment(
        name="tested", backend="libvirt", attachment=Attachment.USER, placements=(),
        guest=GuestSettings(memory=128 * MIB, boot_timeout=1800),
    ),
    cpus=host.cpus()[-1:],
    seat=None,
    binds=(),
    scratch=own,
    base=GuestBase(
        kernel=own / "kernel", initramfs=own / "initramfs", root=own / "tree.erofs", cache=own / "cache"
    ),
)
with scratch_directory(f"{asked.label}-run"):
    with Libvirt().start(host, Tools(directory=own / "programs"), asked) as guest:
        driver, names = guest.network("eth0")["driver"], Libvirt().instance_names(host)
        print(os.geteuid(), driver, len(guest.threads), *names)
"""


def test_a_user_needs_no_root_for_one(tools: Tools, tmp_path: Path) -> None:
    image = small_image(tools, tmp_path)
    with tempfile.TemporaryDirectory(prefix="nm-nobody-", dir="/tmp") as directory:
        own = Path(directory)
        programs = Tools(directory=Path(shutil.copytree(tools.directory, own / "programs")))
        of = base(programs, tmp_path)
        for file, name in ((of.kernel, "kernel"), (of.initramfs, "initramfs"), (image, "tree.erofs")):
            shutil.copy(file, own / name)
        (own / "cache").mkdir()
        for path in (own, *own.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        done = HOST.run(
            as_nobody(python_for_nobody(), "-c", AS_USER, directory),
            timeout=600,
            cwd=Path("/"),
            env={
                "HOME": directory,
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "XDG_RUNTIME_DIR": directory,
                "XDG_STATE_HOME": f"{directory}/state",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": f"{HERE.parents[1] / 'src'}:{sysconfig.get_paths()['purelib']}",
            },
        )
        assert done.ok, done.stderr
        uid, driver, threads, label = done.stdout.split()
        assert (uid, driver, threads) == (str(NOBODY), "virtio_net", "1")
        assert label.endswith("-vu") and not (own / "nearmetal").exists()
        assert not processes.labelled(bears(label))


def test_libvirt_understands_all_that_a_guest_may_have(tools: Tools, tmp_path: Path) -> None:
    """What it would tell QEMU; nothing is started."""
    file = tmp_path / "a & b <c> 'd' \"e\", f"
    settings = GuestSettings(memory=512 * MIB, vfio="0000:01:10.0", numa=2, cpu="Haswell")
    plan = GuestPlan(
        settings=settings,
        accelerator=Accelerator.TCG,
        vcpus=2,
        cpu="Haswell",
        kernel=file,
        initramfs=file,
        command_line="a=<&>",
        disks=[
            QemuDisk(name=name, file=file, format=how, read_only=name == "image")
            for name, how in (("image", DiskFormat.QCOW2), ("swap", DiskFormat.RAW))
        ],
        sockets=Sockets(directory=tmp_path),
        shared_root=True,
        place=None,  # of a card libvirt would make a tap for this
    )
    program = shutil.which("qemu-system-x86_64") or ""
    own = tmp_path / "domain.xml"
    own.write_text(domain_xml(DomainPlan(name="nearmetal-x", guest=plan, emulator=program, cpus=(0, 1))))
    with daemon(tools) as found:
        done = ask(HOST, found.uri, "domxml-to-native", "qemu-argv", "--xml", str(own))
    assert done.ok, done.stderr
    for wanted in (
        "-append 'a=<&>'",
        "-cpu Haswell",
        "-smp 2",
        "tb-size=128",
        '"driver":"vfio-pci","host":"0000:01:10.0"',
        '"driver":"vhost-user-fs-pci"',
        '"serial":"image"',
        '"name":"nm.agent"',
        "-numa node,nodeid=1,cpus=1",
        "NEARMETAL_RUN=nearmetal-x",
    ):
        assert wanted in done.stdout, (wanted, done.stdout)
    assert done.stdout.count('"bus":"pcie.0"') == 5 and "pcie-root-port" not in done.stdout
