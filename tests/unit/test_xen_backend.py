"""The backend xen without a hypervisor: what it writes, what it refuses, what it makes of xl's answers."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.environments import GuestBase, InstanceRequest, Unavailable
from nearmetal.environments.xen import leftovers as xen_leftovers
from nearmetal.environments.xen import line as xen_line
from nearmetal.environments.xen.backend import lacks, require_fitting_hypervisor, require_fitting_request
from nearmetal.environments.xen.config import DomainConfig, DomainDisk, Interface, config_text
from nearmetal.environments.xen.counters import HypervisorSource
from nearmetal.environments.xen.disk import disks_made
from nearmetal.environments.xen.dom0 import Dom0Access, LeftoverNote
from nearmetal.environments.xen.leftovers import domain_names
from nearmetal.environments.xen.line import choose_agent_network
from nearmetal.environments.xen.settings import Dom0, XenDisk, XenDiskKind, XenScheduler, XenSettings, XenType
from nearmetal.environments.xen.xl import XenFacts, Xl
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import Completed, LocalHost
from nearmetal.host.ssh import LOST, SshHost, SshWay, client, remote_words, ssh_host
from nearmetal.model.environments.guest import MIB, GuestSettings
from nearmetal.model.environments.network import Seat
from nearmetal.model.scope import Scope
from nearmetal.model.study import Attachment, Environment, Limits
from nearmetal.testing.fake_host import FakeHost, FakeProcess

DOMAIN = DomainConfig(
    name="nearmetal-3f9a1c-0-0",
    type=XenType.PV,
    kernel="/boot/vmlinuz",
    ramdisk="/run/initramfs",
    command_line="console=hvc0 nm.name=a",
    memory=128 * MIB,
    vcpus=2,
)
FACTS = XenFacts(
    version="4.17.7",
    cpus=2,
    scheduler=XenScheduler.CREDIT2,
    capabilities=frozenset({"xen-3.0-x86_64", "hvm-3.0-x86_64", "hap"}),
    free_memory=1 << 30,
    virtual=False,
)


def request(
    *, attachment: Attachment = Attachment.NONE, seat: Seat | None = None, **fields: object
) -> InstanceRequest:
    environment = Environment(
        name="vm",
        backend="xen",
        image="small",
        attachment=attachment,
        placements=(),
        **fields,  # type: ignore[arg-type]
    )
    base = GuestBase(kernel=Path("/k"), initramfs=Path("/i"), root=Path("/r"), cache=Path("/c"))
    return InstanceRequest(
        label="nearmetal-3f9a1c-0-0",
        hostname="nm0",
        environment=environment,
        cpus=(0,),
        seat=seat,
        binds=(),
        scratch=Path("/s"),
        base=base,
    )


def failed(words: str, code: int = 1) -> Completed:
    return Completed(argv=(), returncode=code, stdout="", stderr=words, seconds=0.0)


def test_a_configuration_says_all_that_was_asked() -> None:
    disks = (
        DomainDisk(target="/srv/root.erofs", vdev="xvda", writable=False, script="/run/attach"),
        DomainDisk(target="/dev/vg0/w", vdev="xvdb", writable=True, script="/run/attach"),
    )
    vifs = (
        Interface(mac="00:16:3e:00:00:01", bridge="line:169.254.1.1/30", script="/run/vif"),
        Interface(mac="00:16:3e:00:00:02", bridge="xenbr0"),
    )
    text = config_text(replace(DOMAIN, disks=disks, interfaces=vifs))
    assert text == (
        'name = "nearmetal-3f9a1c-0-0"\ntype = "pv"\nkernel = "/boot/vmlinuz"\nramdisk = "/run/initramfs"\n'
        'cmdline = "console=hvc0 nm.name=a"\nmemory = 128\nvcpus = 2\n'
        'on_poweroff = "destroy"\non_reboot = "destroy"\non_crash = "preserve"\n'
        'disk = ["format=raw,vdev=xvda,access=ro,script=/run/attach,target=/srv/root.erofs", '
        '"format=raw,vdev=xvdb,access=rw,script=/run/attach,target=/dev/vg0/w"]\n'
        'vif = ["mac=00:16:3e:00:00:01,bridge=line:169.254.1.1/30,script=/run/vif", '
        '"mac=00:16:3e:00:00:02,bridge=xenbr0"]\n'
    )


def test_a_guest_with_emulated_devices_gets_no_screen() -> None:
    text = config_text(replace(DOMAIN, type=XenType.HVM))
    assert 'vga = "none"\n' in text and "vnc = 0\n" in text


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_no_text_becomes_another_setting(target: str, bridge: str, line: str) -> None:
    """Whatever a path or a name holds, the file has its one line for each key, or is refused."""
    domain = replace(
        DOMAIN,
        command_line=line,
        disks=(DomainDisk(target=target, vdev="xvda", writable=False, script="/run/attach"),),
        interfaces=(Interface(mac="00:16:3e:00:00:01", bridge=bridge),),
    )
    try:
        text = config_text(domain)
    except UnavailableError:
        return
    lines = text.split("\n")
    assert [entry.partition(" = ")[0] for entry in lines[:-1]] == [
        *("name", "type", "kernel", "ramdisk", "cmdline", "memory", "vcpus"),
        *("on_poweroff", "on_reboot", "on_crash", "disk", "vif"),
    ]
    assert lines[4] == f'cmdline = "{line}"'
    assert lines[-3] == f'disk = ["format=raw,vdev=xvda,access=ro,script=/run/attach,target={target}"]'
    assert lines[-2] == f'vif = ["mac=00:16:3e:00:00:01,bridge={bridge}"]'


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"own": XenSettings(scheduler=XenScheduler.CREDIT)}, "runs the scheduler credit2"),
        ({"guest": GuestSettings(memory=2 << 30)}, "wants 2048 MiB, the hypervisor has 1024 MiB"),
        ({"guest": GuestSettings(memory=16 * MIB)}, "too little to boot in"),
    ],
)
def test_request_beyond_the_hypervisor_is_refused(fields: dict[str, object], what: str) -> None:
    with pytest.raises(UnavailableError, match=what) as caught:
        require_fitting_hypervisor(FACTS, request(**fields))  # type: ignore[arg-type]  # the fields that a case varies
    assert caught.value.remedy
    require_fitting_hypervisor(FACTS, request())


def test_types_of_guests_need_what_they_need() -> None:
    without = replace(FACTS, capabilities=frozenset({"xen-3.0-x86_64"}))
    assert lacks(FACTS, XenType.HVM) is None and lacks(without, XenType.PV) is None
    assert "no virtualisation" in (lacks(without, XenType.PVH) or "")
    with pytest.raises(UnavailableError, match="no pvh guests here"):
        require_fitting_hypervisor(without, request())
    with pytest.raises(UnavailableError, match="only credit and credit2"):
        require_fitting_hypervisor(replace(FACTS, scheduler=None), request(own=XenSettings(weight=2)))
    with pytest.raises(UnavailableError, match="CPU 2 is requested, and there are 2"):
        require_fitting_hypervisor(FACTS, replace(request(), cpus=(0, 2)))


SEAT = Seat(netns="/run/netns/x", address="10.99.0.2", interface="eth0", port="eth1")


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (replace(request(), base=None), "no kernel for a guest"),
        (request(attachment=Attachment.HOST), "cannot have attachment host"),
        (request(limits=Limits(cpu_quota=0.5)), "no control group does"),
        (
            request(
                attachment=Attachment.VETH_BRIDGE, seat=SEAT, own=XenSettings(dom0=Dom0(destination="far"))
            ),
            "reaches no guest on far",
        ),
    ],
)
def test_request_that_no_xen_guest_can_meet_is_refused(asked: InstanceRequest, what: str) -> None:
    with pytest.raises(UnavailableError, match=what) as caught:
        require_fitting_request(asked)
    assert caught.value.remedy


def test_image_host_is_refused() -> None:
    asked = request()
    assert asked.base is not None
    with pytest.raises(UnavailableError, match="no image host"):
        require_fitting_request(replace(asked, base=replace(asked.base, root=None)))


def test_a_machine_without_a_hypervisor_says_which_way_it_lacks_one() -> None:
    assert isinstance(none := Xl(FakeHost(missing=("xl",))).facts(), Unavailable)
    assert "no xl on fake" in none.reason and none.remedy
    there = FakeHost(
        programs={"xl": "/usr/sbin/xl"},
        commands={("xl", "info"): failed("xencall: error: Could not obtain handle on privileged command\n")},
    )
    assert isinstance(silent := Xl(there).facts(), Unavailable)
    assert "Could not obtain handle" in silent.reason
    lost = FakeHost(
        programs={"xl": "/usr/sbin/xl"},
        commands={("xl", "info"): replace(failed("mux_client_request_alive"), returncode=LOST)},
        root=False,
    )
    assert isinstance(gone := Xl(lost).facts(), Unavailable) and "does not answer" in gone.reason
    user = FakeHost(
        programs={"xl": "/usr/sbin/xl"},
        commands={("xl", "info"): failed("xencall: error")},
        root=False,
    )
    assert isinstance(asked := Xl(user).facts(), Unavailable) and "needs root" in asked.reason


def test_first_error_of_xl_is_the_reason() -> None:
    host = FakeHost(
        commands={
            ("xl", "create", "-p", "/c"): failed(
                "Parsing config from /c\n"
                "libxl: error: libxl_exec.c:117:libxl_report_child_exitstatus: script failed\n"
                "libxl: error: libxl_create.c:1921:domcreate_attach_devices: unable to add vif devices\n",
                3,
            ),
            ("xl", "unpause", "g"): failed("", 124),
        }
    )
    with pytest.raises(RunError, match=r"^the guest cannot be created: xl ended with 3: libxl_exec\.c:117"):
        Xl(host).create("/c")
    with pytest.raises(RunError, match="xl did not end within"):
        Xl(host).unpause("g")


def test_scheduler_share_that_xl_did_not_set_is_reported() -> None:
    listed = "Name ID Weight Cap\ng 1 256 0\n"
    host = FakeHost(
        commands={
            ("xl", "sched-credit2", "-d", "g", "-w", "300"): "",
            ("xl", "sched-credit2", "-d", "g"): listed,
        }
    )
    with pytest.raises(RunError, match="weight 300 and cap None were requested"):
        Xl(host).set_share(XenScheduler.CREDIT2, "g", weight=300, cap=None)
    assert Xl(host).set_share(XenScheduler.CREDIT2, "g", weight=None, cap=None).weight == 256


def test_each_virtual_cpu_is_pinned_and_read_back() -> None:
    listed = "g 1 0 1 -b- 0.1 1 / all\ng 1 1 0 -b- 0.1 {} / all\n"
    commands: dict[tuple[str, ...], str] = {
        ("xl", "vcpu-pin", "g", str(n), str(cpu)): "" for n, cpu in enumerate((1, 0))
    }
    host = FakeHost(commands={**commands, ("xl", "vcpu-list", "g"): listed.format("0")})
    Xl(host).pin("g", (1, 0))
    host = FakeHost(commands={**commands, ("xl", "vcpu-list", "g"): listed.format("1")})
    with pytest.raises(RunError, match="vCPU 1 was pinned to CPU 0"):
        Xl(host).pin("g", (1, 0))


def test_a_line_takes_addresses_that_nobody_has() -> None:
    host = FakeHost(commands={("ip", "-4", "-oneline", "address", "show"): "1: lo inet 127.0.0.1/8\n"})
    lines = {choose_agent_network(host, "k").dom0 for _ in range(50)}
    assert len(lines) > 40 and all(a.startswith("169.254.") for a in lines)
    one = choose_agent_network(host, "k")
    assert one.mac.startswith("00:16:3e:") and one.dom0 != one.guest


@pytest.mark.parametrize(
    ("asked", "what"), [(MIB, "contains data"), (9 * MIB, "8 MiB large, 9 MiB are requested")]
)
def test_a_device_that_holds_something_or_too_little_is_not_touched(asked: int, what: str) -> None:
    disk = XenDisk(kind=XenDiskKind.BLOCK, path="/dev/sdx")
    host = FakeHost(
        commands={
            ("test", "-b", "/dev/sdx"): "",
            ("blockdev", "--getsize64", "/dev/sdx"): f"{8 * MIB}\n",
            ("wipefs", "--noheadings", "/dev/sdx"): "DEVICE OFFSET TYPE\nsdx 0x438 ext4\n",
        }
    )
    with (
        pytest.raises(UnavailableError, match=what),
        disks_made(host, disk, "nearmetal-3f9a1c-0-0", writable=asked, swap=None),
    ):
        pass
    assert not any(call[0].startswith("mk") for call in host.calls)


def test_volumes_are_made_and_go() -> None:
    name, target = "nearmetal-3f9a1c-0-0-writable", "/dev/vg0/nearmetal-3f9a1c-0-0-writable"
    make = ("lvcreate", "--yes", "--wipesignatures", "y", "--name", name, "--size", "64m", "vg0")
    host = FakeHost(
        programs={"lvcreate": "/usr/sbin/lvcreate"},
        commands={
            make: "",
            ("mkfs.ext4", "-q", "-F", "-E", "nodiscard", target): failed("no room\n"),
            ("lvremove", "--force", f"vg0/{name}"): "",
        },
    )
    disk = XenDisk(kind=XenDiskKind.LVM, path="vg0")
    with (
        pytest.raises(RunError, match=r"cannot be formatted: mkfs\.ext4 ended with 1: no room"),
        disks_made(host, disk, "nearmetal-3f9a1c-0-0", writable=64 * MIB, swap=None),
    ):
        pass
    assert host.calls[-1][0] == "lvremove"


def test_a_machine_that_is_no_dom0_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        xen_leftovers, "noted", lambda: ()
    )  # other runs of this user may have guests elsewhere
    assert domain_names(FakeHost(missing=("xl",))) == ()


def test_words_for_another_machine_are_quoted() -> None:
    text = remote_words(["echo", "a b; rm -rf /", "$HOME"], timeout=5, env={"A": "b c"}, cwd=Path("/x y"))
    assert text == "env -C '/x y' 'A=b c' timeout --kill-after=1 5 echo 'a b; rm -rf /' '$HOME'"
    assert remote_words(["xl", "list"], timeout=None, env=None, cwd=None) == "xl list"
    own = client(SshWay(destination="node7", config="/c f"), Path("/s"))
    assert own == ["ssh", "-F", "/c f", "-o", "BatchMode=yes", "-o", "ControlPath=/s"]


def test_one_look_serves_all_guests_of_a_dom0_for_a_moment() -> None:
    header = "NAME STATE CPU(sec) CPU(%) MEM(k) MEM(%) MAXMEM(k) MAXMEM(%) VCPUS NETS NETTX(k) NETRX(k) VBDS "
    header += "VBD_OO VBD_RD VBD_WR VBD_RSECT VBD_WSECT SSID\n"
    rows = "".join(f"{name} --b--- 9 0 131072 6 131072 6 1 0 0 0 1 0 7 0 56 0 0\n" for name in ("a", "b"))
    host = FakeHost(name="dom0-of-looks", commands={("xentop", "-b", "-f", "-i", "1"): header + rows})
    one, two = (HypervisorSource(scope=Scope(kind="xen", name=n), guest=n, xl=Xl(host)) for n in ("a", "b"))
    assert one.read() == two.read()
    assert one.read()["disk_reads"] == 7 and "memory_bytes" not in one.read()
    assert len(host.calls) == 1
    assert HypervisorSource(scope=Scope(kind="xen", name="gone"), guest="gone", xl=Xl(host)).read() == {}
    assert len(host.calls) == 1 and Xl(host).counters()["a"]["memory_bytes"] == 131072 * 1024


def test_cpus_of_another_machine_are_those_that_may_be_used_there(tmp_path: Path) -> None:
    way, socket = SshWay(destination="node7"), tmp_path / "c"
    argv = (*client(way, socket), "-T", "--", "node7", "timeout --kill-after=1 60 cat /proc/self/status")
    local = FakeHost(commands={argv: "Name:\tcat\nCpus_allowed_list:\t4-6,9\nNoNewPrivs:\t0\n"})
    assert SshHost(local, way, socket).cpus() == (4, 5, 6, 9)


def test_files_of_a_guest_are_never_readable_for_others(tmp_path: Path) -> None:
    path, host = tmp_path / "guest.cfg", LocalHost()
    modes: list[int] = []

    class Watching(LocalHost):
        def run(self, argv: Sequence[str], **options: Any) -> Completed:
            done = host.run(argv, **options)
            modes.append(stat.S_IMODE(path.stat().st_mode))
            return done

    Dom0Access(host=Watching(), ssh=None, directory=str(tmp_path)).write("guest.cfg", "nm.key=secret\n")
    assert set(modes) == {0o600} and path.read_text() == "nm.key=secret\n"


def test_files_of_a_guest_are_copied_by_names_of_nearmetal(tmp_path: Path) -> None:
    """Older scp passes names to a shell of the other machine."""
    way, socket = SshWay(destination="node7"), tmp_path / "c"
    source = tmp_path / "vmlinuz $(touch x)"
    options = client(way, socket)[1:]
    argv = ("scp", "-q", *options, "--", str(source), "node7:/var/tmp/nearmetal-1/kernel")
    far = SshHost(FakeHost(commands={argv: ""}), way, socket)
    at = Dom0Access(host=far, ssh=far, directory="/var/tmp/nearmetal-1")
    assert at.take(source, "kernel") == "/var/tmp/nearmetal-1/kernel"


def test_lost_connection_is_reported(tmp_path: Path) -> None:
    way, socket = SshWay(destination="node7"), tmp_path / "c"
    argv = (*client(way, socket), "-T", "--", "node7", "timeout --kill-after=1 5 xl list")
    local = FakeHost(commands={argv: failed("", 255)})
    far = SshHost(local, way, socket)
    assert (
        far.run(["xl", "list"], timeout=5).failure() == "xl ended with 255: the connection to node7 is lost"
    )
    socket.touch()
    assert far.run(["xl", "list"], timeout=5).failure() == "xl ended with 255 and printed no message"
    with pytest.raises(RunError, match="no descriptor can be handed"):
        far.run(["xl", "list"], timeout=5, pass_fds=(3,))


def test_no_connection_says_why_and_what_must_work(tmp_path: Path) -> None:
    said = tmp_path / "ssh.err"
    process = FakeProcess(())
    process.end()

    class Host(FakeHost):
        def start(self, argv: Sequence[str], **_: object) -> FakeProcess:
            assert argv[-2:] == ["--", "node7"], "no option of ssh, whatever it is called"
            said.write_text("root@node7: Permission denied (publickey).\n")
            return process

    with (
        pytest.raises(UnavailableError, match="no connection to node7: root@node7: Perm") as caught,
        ssh_host(
            Host(programs={"ssh": "/usr/bin/ssh"}),
            SshWay(destination="node7"),
            label=f"nearmetal-testssh{os.getpid()}",
            scratch=tmp_path,
        ),
    ):
        pass
    assert "ssh node7 true" in caught.value.remedy
    with (
        pytest.raises(UnavailableError, match="ssh is not installed"),
        ssh_host(FakeHost(missing=("ssh",)), SshWay(destination="a"), label="l", scratch=tmp_path),
    ):
        pass


def test_a_guest_that_nobody_can_tell_of_is_not_taken_for_gone() -> None:
    """xl list may not answer on a dom0 that its guests leave no CPU."""
    answers: list[str | Completed] = [failed("", 124), "g 1 128 1 -b---- 0.1\n", failed("", 124), "Name\n"]
    host = FakeHost(
        commands={("xl", "list"): lambda _: answers.pop(0), ("xl", "destroy", "g"): failed("busy\n")}
    )
    Xl(host).destroy("g")
    assert not answers and host.calls.count(("xl", "destroy", "g")) == 4
    with pytest.raises(RunError, match="the guests cannot be listed: xl did not end within"):
        Xl(FakeHost(commands={("xl", "list"): failed("", 124)})).find("g")


def test_boot_is_watched_and_continues_while_xl_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xen_line, "_LOOK_AT_GUEST", 0.0)
    monkeypatch.setattr(xen_line, "_APART", 0.0)
    answers: list[str | Completed] = []
    host = FakeHost(commands={("xl", "list"): lambda _: answers.pop(0)})
    line = FakeProcess(())
    said = tmp_path / "console"
    said.write_text("Kernel panic - not syncing: no root\n")
    gone = xen_line.watched(Xl(host), "g", line, said)

    def told(answer: str | Completed) -> str:
        answers.append(answer)
        return gone()

    assert told("g 1 128 1 -b---- 0.1\n") == "" and told(failed("", 124)) == ""
    assert "Kernel panic" in told("g 1 128 1 ---sc- 0.1\n") and "Kernel panic" in told("Name\n")
    line.end()
    assert told("g 1 128 1 -b---- 0.1\n") == told(failed("", 124)) == "the line to the guest is closed"


def test_looks_keep_a_distance_that_their_cost_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = [0.0]
    monkeypatch.setattr(xen_line, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(_: Sequence[str]) -> str:
        now[0] += 3.0
        return "g 1 128 1 -b---- 0.1\n"

    host = FakeHost(commands={("xl", "list"): slow})
    gone = xen_line.watched(Xl(host), "g", FakeProcess(()), tmp_path / "none")
    for _ in range(70):
        now[0] += 1.0
        assert gone() == ""
    assert len(host.calls) == 2  # after 2 s, and a minute after the first had answered


def test_a_dom0_that_is_gone_keeps_nobody_from_removing_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    here = FakeHost(name="here")
    names = {"here": {"nearmetal-3f9a1c-0-0"}}
    removed: list[str] = []

    def visit(dom0: Dom0 | None, _: str) -> AbstractContextManager[FakeHost]:
        if dom0 is not None:
            raise UnavailableError("no connection to far", remedy="ssh far true")
        return nullcontext(here)

    places = tuple(LeftoverNote(dom0=d, disks="/var/tmp") for d in (Dom0(destination="far"), None))
    monkeypatch.setattr(xen_leftovers, "visited", visit)
    monkeypatch.setattr(xen_leftovers, "_places", lambda _: places)
    monkeypatch.setattr(xen_leftovers, "_names", lambda dom0, _: names[dom0.name])
    monkeypatch.setattr(xen_leftovers, "_remove", lambda _, __, name: removed.append(name))
    xen_leftovers.remove_named(here, "nearmetal-3f9a1c-0-0")
    assert removed == ["nearmetal-3f9a1c-0-0"]
    with pytest.raises(UnavailableError, match="no connection to far"):
        xen_leftovers.remove_named(here, "nearmetal-3f9a1c-9-9")
