"""Guests by libvirt without one: the domain that it is given, which daemon is asked, what is refused."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import PATIENCE, until
from tests.unit.test_guests_parts import HANGS, TOOLS, plan

from nearmetal.environments import Seat, Unavailable
from nearmetal.environments.guests.guest import GuestInterface
from nearmetal.environments.libvirt import migrate
from nearmetal.environments.libvirt.backend import Libvirt, require_rights
from nearmetal.environments.libvirt.daemon import (
    LONGEST_PLACE,
    REMEDY,
    SESSION,
    SYSTEM,
    Daemon,
    ask,
    destroy,
    destroy_domain,
    domain_names,
    find_virsh_message,
    has_failed,
    place_name,
    reached,
    usual_uri,
    virsh_argv,
)
from nearmetal.environments.libvirt.domain import GUARD, made
from nearmetal.environments.libvirt.migrate import events
from nearmetal.environments.libvirt.settings import LibvirtSettings, not_by_libvirt
from nearmetal.environments.libvirt.tap import joined, tap, tap_name
from nearmetal.environments.libvirt.xml import (
    QEMU_NAMESPACE,
    DomainPlan,
    domain_xml,
    identity,
    security_models,
)
from nearmetal.environments.qemu.argv import GuestPlan, QemuDisk, Wire
from nearmetal.errors import RunError, StudyError, UnavailableError
from nearmetal.host import Completed, runtime
from nearmetal.host.labels import OURS
from nearmetal.lifecycle import Method
from nearmetal.model.environments.guest import (
    MIB,
    Accelerator,
    Cache,
    DiskFormat,
    GuestSettings,
    MachineType,
    Nic,
    StartFrom,
)
from nearmetal.model.study import Attachment, Environment
from nearmetal.study_file import Catalog, dump_study, load_text
from nearmetal.testing.fake_host import Answer, FakeHost, FakeProcess

CARD = GuestInterface(mac="02:00:00:00:00:01", address="10.0.0.2", mask="255.0.0.0", mtu=1500)
NAME = "nearmetal-0123ab-0"
NO_DAEMON = ("virtqemud", "/usr/sbin/virtqemud", "libvirtd", "/usr/sbin/libvirtd")


def domain(guest: GuestPlan, **more: object) -> Element:
    """As libvirt reads it."""
    return ElementTree.fromstring(
        domain_xml(DomainPlan(name=NAME, guest=guest, emulator="/usr/bin/qemu", **more))  # type: ignore[arg-type]
    )


def one(parent: Element, path: str) -> Element:
    (found,) = parent.findall(path)
    return found


def text(parent: Element, path: str) -> str:
    return one(parent, path).text or ""


def test_a_domain_is_the_machine_that_qemu_alone_would_be() -> None:
    disks = (
        QemuDisk(name="image", file=Path("/a"), format=DiskFormat.QCOW2, read_only=True),
        QemuDisk(name="writable", file=Path("/b"), format=DiskFormat.RAW, read_only=False),
    )
    settings = GuestSettings(memory=512 * MIB, cache=Cache.NONE, vfio="01:00.3")
    found = domain(plan(settings, disks=disks, place=CARD, wire=Wire.TAP), cpus=(3, 5), tap="nmlv0")
    assert found.attrib == {"type": "qemu"} and text(found, "name") == NAME
    assert (text(found, "memory"), one(found, "memory").attrib) == ("512", {"unit": "MiB"})
    assert text(found, "vcpu") == "2"
    pins = [(p.get("vcpu"), p.get("cpuset")) for p in found.findall("cputune/vcpupin")]
    assert pins == [("0", "3"), ("1", "5")]
    assert one(found, "os/type").attrib == {"arch": "x86_64", "machine": "q35"}
    assert [text(found, f"os/{k}") for k in ("kernel", "initrd", "cmdline")] == ["/k", "/i", "nm.name=a"]
    assert text(found, "features/tcg/tb-cache") == "128" and found.find("memoryBacking") is None
    assert one(found, "cpu").attrib == {"mode": "maximum", "check": "none"}
    assert [text(found, f"on_{e}") for e in ("poweroff", "reboot", "crash")] == ["destroy"] * 3
    devices = one(found, "devices")
    image, writable = devices.findall("disk")
    assert one(image, "driver").attrib == {"name": "qemu", "type": "qcow2", "cache": "none", "io": "threads"}
    assert (text(image, "serial"), one(image, "target").get("dev")) == ("image", "vda")
    assert image.find("readonly") is not None and writable.find("readonly") is None
    assert one(writable, "target").get("dev") == "vdb"
    card = one(devices, "interface")
    assert card.get("type") == "ethernet" and one(card, "mac").get("address") == CARD.mac
    assert one(card, "target").attrib == {"dev": "nmlv0", "managed": "no"}
    assert one(card, "driver").get("name") == "qemu"
    where = one(devices, "hostdev/source/address").attrib
    assert where == {"domain": "0x0000", "bus": "0x01", "slot": "0x00", "function": "0x3"}
    assert one(devices, "channel/source").attrib == {"mode": "connect", "path": "/run/x/port"}
    assert one(devices, "channel/target").get("name") == "nm.agent"
    assert one(devices, "serial/source").get("path") == "/run/x/console"
    slots = [a.get("slot") for a in devices.findall("*/address")]
    assert slots == ["2", "3", "4", "5", "6"], "each device its own, on the root bus"
    label = one(found, f"{{{QEMU_NAMESPACE}}}commandline/{{{QEMU_NAMESPACE}}}env")
    assert label.attrib == {"name": "NEARMETAL_RUN", "value": NAME}


def test_a_domain_by_kvm_its_models_and_cards() -> None:
    kvm = plan(accelerator=Accelerator.KVM, cpu="host")
    found = domain(kvm)
    assert found.get("type") == "kvm" and found.find("features/tcg") is None
    assert one(found, "cpu").attrib == {"mode": "host-passthrough", "check": "none"}
    assert found.find("devices/interface") is None and found.find("cputune") is None
    named = one(domain(plan(cpu="Haswell")), "cpu/model")
    assert (named.text, named.attrib) == ("Haswell", {"fallback": "forbid"})
    for nic, wire, kind, model, driver in (
        (Nic.VHOST, Wire.TAP, "ethernet", "virtio", "vhost"),
        (Nic.E1000, Wire.TAP, "ethernet", "e1000", None),
        (Nic.RTL8139, Wire.USER, "user", "rtl8139", None),
        (Nic.VIRTIO, Wire.USER, "user", "virtio", None),
    ):
        card = one(domain(plan(GuestSettings(nic=nic), place=CARD, wire=wire), tap="t"), "devices/interface")
        how = card.find("driver")
        assert (card.get("type"), one(card, "model").get("type")) == (kind, model)
        assert (None if how is None else how.get("name")) == driver
        assert one(card, "rom").get("enabled") == "no"


def test_memory_is_shared_in_huge_pages_or_divided_as_for_qemu() -> None:
    found = domain(plan(GuestSettings(numa=2, huge_pages=True), vcpus=4))
    assert [e.tag for e in one(found, "memoryBacking")] == ["hugepages", "source", "access"]
    cells = [(c.get("id"), c.get("cpus"), c.get("memory")) for c in found.findall("cpu/numa/cell")]
    assert cells == [("0", "0,1", "512"), ("1", "2,3", "512")]
    shared = domain(plan(shared_root=True))
    assert one(shared, "memoryBacking/access").get("mode") == "shared"
    assert one(shared, "devices/filesystem/source").get("socket") == "/run/x/files"
    assert one(shared, "devices/filesystem/target").get("dir") == "root"


def test_files_keep_their_owner_and_qemu_runs_as_who_asks() -> None:
    told = (
        "<capabilities><host><secmodel><model>apparmor</model></secmodel><secmodel><model>dac</model>"
        "</secmodel><secmodel><model>none</model></secmodel></host></capabilities>"
    )
    models = security_models(told)
    assert models == ("apparmor", "dac")
    found = domain(plan(), security=models, owner=(1000, 100)).findall("seclabel")
    assert found[0].attrib == {"type": "none", "model": "apparmor"}
    assert found[1].attrib == {"type": "static", "model": "dac", "relabel": "no"}
    assert text(found[1], "label") == "+1000:+100"
    with pytest.raises(ValueError, match=r"no element|syntax"):
        security_models("no capabilities")


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"))
)
def test_every_text_of_the_user_arrives_as_it_was(words: str) -> None:
    path = Path(f"/x{words}")
    disk = QemuDisk(name="image", file=path, format=DiskFormat.RAW, read_only=True)
    found = domain(plan(kernel=path, command_line=f"nm={words}", cpu=f"m{words}", disks=(disk,)))
    assert text(found, "os/kernel") == str(path) and text(found, "os/cmdline") == f"nm={words}"
    assert text(found, "cpu/model") == f"m{words}"
    assert one(found, "devices/disk/source").get("file") == str(path)


def test_characters_that_xml_cannot_hold_are_refused() -> None:
    for bad in ("\0", "\x1b", "\ufffe"):
        with pytest.raises(UnavailableError, match="which XML cannot hold"):
            domain(plan(kernel=Path(f"/k{bad}")))


def said(argv: list[str], stderr: str = "", stdout: str = "", code: int = 1) -> Completed:
    return Completed(argv=tuple(argv), returncode=code, stdout=stdout, stderr=stderr, seconds=0.0)


def test_first_cause_of_a_virsh_failure_is_reported() -> None:
    batch = (
        "error: Failed to create domain from domain.xml\n"
        "error: internal error: process exited: 2026-01-01T00:00:00Z qemu: unable to\nfind CPU model 'x'\n\n"
        "error: failed to get domain 'a'\nerror: Domain not found: no domain with matching name 'a'\n"
    )
    told = "internal error: process exited: 2026-01-01T00:00:00Z qemu: unable to find CPU model 'x'"
    assert find_virsh_message(batch) == told
    assert find_virsh_message("error: only this\n") == "only this" and find_virsh_message("") == ""
    assert find_virsh_message(f"warning: one\n{batch}") == told and has_failed(f"warning: one\n{batch}")
    assert find_virsh_message("warning: one\n") == "warning: one" and not has_failed(
        "warning: an error: none\n"
    )


CAPABILITIES = "<capabilities><host><secmodel><model>dac</model></secmodel></host></capabilities>"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of an instance; the runtime directory is there."""
    monkeypatch.setattr(runtime, "runtime_directory", lambda: tmp_path)
    own = tmp_path / f"{NAME}-state"
    own.mkdir()
    return own


def test_a_daemon_that_answers_is_used_and_noted(state: Path) -> None:
    for root, uri in ((True, SYSTEM), (False, SESSION)):
        asking = tuple(virsh_argv(uri, ["capabilities"]))
        host = FakeHost(commands={asking: CAPABILITIES}, root=root)
        assert usual_uri(host) == uri
        with reached(host, TOOLS, None, NAME, state, None) as found:
            assert (found.uri, found.own, found.security) == (uri, False, ("dac",))
            assert (state / "libvirt").read_text() == uri


def test_requested_daemon_that_does_not_answer_is_not_replaced(state: Path) -> None:
    asking = virsh_argv(SYSTEM, ["capabilities"])
    silent = said(asking, "error: failed to connect\nerror: Failed to connect socket: No such file\n")
    host = FakeHost(commands={tuple(asking): silent}, missing=("virtqemud", "libvirtd"))
    with (
        pytest.raises(
            UnavailableError,
            match="qemu:///system: virsh ended with 1: Failed to connect socket: No such file",
        ) as told,
        reached(host, TOOLS, SYSTEM, NAME, state, None),
    ):
        pass
    assert "systemctl start" in told.value.remedy
    host = FakeHost(commands={tuple(asking): silent}, missing=NO_DAEMON)
    with (
        pytest.raises(UnavailableError, match="none is installed") as told,
        reached(host, TOOLS, None, NAME, state, None),
    ):
        pass
    assert told.value.remedy == REMEDY


def test_the_place_of_our_own_daemon_is_short_and_found_by_clean() -> None:
    for label in (NAME, "nearmetal-check-4194304-a-slot-of-a-name-that-is-long", f"{NAME}-{'x' * 80}"):
        name = place_name(label)
        assert len(f"/tmp/{name}") <= LONGEST_PLACE and OURS.fullmatch(name)
        assert name.startswith(label[:24].rstrip("-")) and place_name(f"{label}y") != name
    # Of sun_path, libvirt's longest way to a socket below it (qemu_domain.c, virDomainDefGetShortName).
    assert LONGEST_PLACE + len(f"/c/libvirt/qemu/lib/domain-1-{'n' * 20}/monitor.sock") < 108


def test_domains_of_every_daemon_that_was_noted_are_found_and_destroyed(state: Path) -> None:
    noted = "qemu+unix:///session?socket=/tmp/x"
    (state / "libvirt").write_text(noted)
    mine = tuple(virsh_argv(noted, ["list", "--all", "--name"]))
    usual = virsh_argv(SYSTEM, ["list", "--all", "--name"])
    end = tuple(virsh_argv(noted, ["destroy", NAME]))
    have = {"virsh": "/usr/bin/virsh"}
    host = FakeHost(
        commands={mine: f"{NAME}\nweb\n\n", tuple(usual): said(usual, "error: no\n"), end: ""}, programs=have
    )
    assert domain_names(host) == (NAME, "web")
    destroy_domain(host, NAME)
    assert host.calls[-1] == end
    for words in (
        "error: failed to get domain 'x'\n",
        "error: Domain not found: no domain\n",
        "error: Failed to destroy\nerror: Requested operation is not valid: domain is not running\n",
    ):
        destroy(FakeHost(commands={end: said([*end], words)}), noted, NAME)
    with pytest.raises(RunError, match=r"cannot be destroyed: virsh ended with 1: denied"):
        destroy(
            FakeHost(commands={end: said([*end], "error: Failed to destroy\nerror: denied\n")}), noted, NAME
        )
    assert domain_names(FakeHost(missing=("virsh",))) == ()
    assert not ask(host, SYSTEM, "list", "--all", "--name").ok


def test_a_run_asks_no_daemon_that_was_not_noted(state: Path) -> None:
    host = FakeHost()
    assert domain_names(host, noted=True) == () and not host.calls
    (state / "libvirt").write_text(SESSION)
    mine = tuple(virsh_argv(SESSION, ["list", "--all", "--name"]))
    host = FakeHost(commands={mine: f"{NAME}\n"}, programs={"virsh": "/usr/bin/virsh"})
    assert Libvirt().recorded_instances(host) == (NAME,) and host.calls == [mine]


def test_a_note_that_is_not_ours_is_not_believed(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = state / "libvirt"
    for bad in (
        "qemu+ext:///session?command=/tmp/x",
        "qemu+ssh://other/system",
        "qemu:///session?socket=/x;command=/tmp/x",
        "qemu:///session?socket=/x&command=/tmp/x",
        f"{SESSION}\n",
        f"{SESSION}\nqemu+ext:///session",
        "",
    ):
        note.write_text(bad)
        assert domain_names(FakeHost(), noted=True) == ()
    note.write_text(SESSION)
    assert tuple(runtime.own_notes("libvirt")) == (SESSION,)
    theirs = tmp_path / "nearmetal-aaaaaa-state"
    theirs.symlink_to(state)
    linked = tmp_path / "nearmetal-bbbbbb-state"
    linked.mkdir()
    (linked / "libvirt").symlink_to(note)
    assert tuple(runtime.own_notes("libvirt")) == (SESSION,)
    monkeypatch.setattr("os.geteuid", lambda: state.stat().st_uid + 1)
    assert tuple(runtime.own_notes("libvirt")) == ()


def test_guest_log_is_removed_for_session_daemons_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    log = tmp_path / "libvirt/qemu/log" / f"{NAME}.log"
    log.parent.mkdir(parents=True)
    for uri, goes in (
        (SESSION, True),
        ("qemu+unix:///session?socket=/run/x/libvirt-sock", True),
        (SYSTEM, False),
        ("qemu+unix:///system", False),
    ):
        log.touch()
        destroy(FakeHost(commands={tuple(virsh_argv(uri, ["destroy", NAME])): ""}), uri, NAME)
        assert log.exists() != goes, uri


def creating(name: str) -> tuple[str, ...]:
    """As the guard is started that makes the domain."""
    first = (
        f'create --file domain.xml --paused; qemu-monitor-command {name} \'{{"execute":"query-cpus-fast"}}\''
    )
    return ("sh", "-c", GUARD, "sh", first, f"destroy {name}", *virsh_argv(SESSION, []))


def test_the_guard_destroys_the_domain_when_its_input_ends_or_its_command_fails(tmp_path: Path) -> None:
    program, said = tmp_path / "virsh", tmp_path / "said"
    program.write_text(f'#!/bin/sh\necho "$@" >>{said}; [ "$2" != wrong ]\n')
    program.chmod(0o755)
    for first in ("made", "wrong"):
        argv = ["sh", "-c", GUARD, "sh", first, "destroy x", str(program), "--uri"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE) as guard:
            until(said.exists, "the first command")
            assert guard.stdin is not None
            if first == "wrong":
                guard.wait(PATIENCE)
            guard.stdin.close()
        assert said.read_text() == f"--uri {first}\n--uri destroy x\n"
        said.unlink()


def test_events_of_a_move_have_their_times_and_status() -> None:
    text = (
        'listeningevent MIGRATION at 1795694820.955001 for domain \'a\': {"status":"setup"}\n'
        "event STOP at 1795694821.285002 for domain 'a': <null>\n"
        "event STOP at 1795694821.285900 for domain 'b': <null>\n"
        'event MIGRATION at 1795694821.286003 for domain \'a\': {"status":"pre-switchover"}\nevent RES'
    )
    assert events(text, "a") == {
        "MIGRATION setup": 1795694820.955001,
        "STOP": 1795694821.285002,
        "MIGRATION pre-switchover": 1795694821.286003,
    }


def test_what_libvirt_does_not_move_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text("1\n")
    monkeypatch.setattr(migrate, "USERFAULTFD", allowed)
    guest = GuestSettings(memory=256 * MIB)
    good = Environment(
        name="e", backend="libvirt", image="debian-kernel", attachment=Attachment.VETH_BRIDGE, guest=guest
    )
    assert all(Libvirt().unmovable(good, method) is None for method in Libvirt.moves_by)
    for words, wrong in {
        "huge pages": replace(good, guest=replace(guest, huge_pages=True)),
        "virtiofs": replace(good, image="host"),
        "attachment user": replace(good, attachment=Attachment.USER),
    }.items():
        why = Libvirt().unmovable(wrong, Method.PRECOPY)
        assert why is not None and words in why.reason and why.remedy
    allowed.write_text("0\n")
    found = Libvirt().unmovable(good, Method.POSTCOPY)
    assert found is not None and "userfaultfd" in found.remedy
    assert Libvirt().unmovable(good, Method.PRECOPY) is None


def test_the_identity_of_a_domain() -> None:
    xml = "<domain><uuid>1-2</uuid><os><type machine='pc-q35-7.2'>hvm</type></os></domain>"
    assert identity(xml) == ("1-2", "pc-q35-7.2")
    with pytest.raises(ValueError, match="no element"):
        identity("")


@pytest.mark.parametrize("own", [False, True])
def test_a_domain_that_does_not_come_is_ended_after_its_client(state: Path, own: bool) -> None:
    client = FakeProcess(creating(NAME))
    end = tuple(virsh_argv(SESSION, ["destroy", NAME]))

    def destroyed(argv: object) -> str:
        assert client.killed
        return ""

    host = FakeHost(processes={creating(NAME): client}, commands={end: destroyed})
    (state / "virsh.txt").touch()
    (state / "virsh-errors.txt").write_text("error: Failed to create domain\nerror: no such model\n")
    daemon = Daemon(uri=SESSION, own=own)
    with (
        pytest.raises(RunError, match="while it booted: no such model"),
        made(host, daemon, NAME, "<domain/>", state),
    ):
        pass
    assert host.calls == [creating(NAME), end]


@pytest.mark.parametrize("own", [False, True])
def test_a_warning_of_virsh_is_no_failure(state: Path, own: bool) -> None:
    class Client(FakeProcess):
        def poll(self) -> int | None:
            told = f'{{"return":[{{"cpu-index":0,"thread-id":{qemu.pid}}}]}}\n'
            (state / "virsh.txt").write_text(told)
            return super().poll()

    client = Client(creating(NAME))
    end = tuple(virsh_argv(SESSION, ["destroy", NAME]))
    host = FakeHost(processes={creating(NAME): client}, commands={end: ""})
    (state / "virsh.txt").touch()
    (state / "virsh-errors.txt").write_text("warning: this libvirt is old\n")
    with subprocess.Popen(["sleep", "3600"]) as qemu:
        with made(host, Daemon(uri=SESSION, own=own), NAME, "<domain/>", state) as found:
            assert found.threads == (qemu.pid,) and found.process.poll() is None
        assert qemu.wait(600) != 0 and client.killed
    # Our own daemon ends with its guest: asking it would be counted to the stop.
    assert host.calls == [creating(NAME), *(() if own else (end,))]


def test_check_names_the_line_that_installs_it(state: Path) -> None:
    qemu = "/usr/bin/qemu-system-x86_64"
    tools = {TOOLS / name: TOOLS / name for name in ("nm-box", "nm-init")}
    commands: dict[tuple[str, ...], Answer] = {
        (qemu, "--version"): "QEMU emulator version 7.2.1\n",
        ("/opt/tools/nm-box", "kvm"): HANGS,
    }
    host = FakeHost(programs={"qemu-system-x86_64": qemu, **tools}, missing=("virsh",), commands=commands)
    found = Libvirt().check(host, TOOLS)
    assert isinstance(found, Unavailable)
    assert (found.reason, found.remedy) == ("virsh is not installed", REMEDY)
    asking = virsh_argv(SYSTEM, ["capabilities"])
    host = FakeHost(
        programs={"qemu-system-x86_64": qemu, "virsh": "/usr/bin/virsh", **tools},
        missing=NO_DAEMON,
        commands={
            **commands,
            ("virsh", "--version"): "9.0.0\n",
            tuple(asking): said(asking, "error: failed to connect\n"),
        },
    )
    found = Libvirt().check(host, TOOLS)
    assert isinstance(found, Unavailable)
    assert found.reason == "no daemon of libvirt answers, and none is installed"
    assert found.remedy == REMEDY and list(state.parent.iterdir()) == [state]


def test_a_tap_is_made_here_and_taken_away() -> None:
    name = tap_name(NAME)
    assert len(name) <= 15 and name != tap_name(f"{NAME}1")
    making = ("ip", "tuntap", "add", "dev", name, "mode", "tap", "user", "0")
    alias = ("ip", "link", "set", "dev", name, "alias", NAME)
    away = ("ip", "link", "del", "dev", name)

    host = FakeHost(commands={making: "", alias: "", away: ""})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.geteuid", lambda: 0)
        with tap(host, NAME) as made:
            assert made == name and host.calls == [making, alias]
        assert host.calls[-1] == away
        refused = said([*making], "ioctl(TUNSETIFF): Operation not permitted\n")
        with (
            pytest.raises(RunError, match="the guest's tap: ip ended with 1: ioctl"),
            tap(FakeHost(commands={making: refused}), NAME),  # another's of that name stays
        ):
            pass
        host = FakeHost(commands={making: "", alias: said([*alias], "no\n"), away: ""})
        with pytest.raises(RunError, match="the guest's tap: ip ended with 1: no"), tap(host, NAME):
            pass
        assert host.calls[-1] == away


def test_seat_that_cannot_be_entered_is_reported() -> None:
    seat = Seat(netns="/run/netns/no-such", address="10.99.0.2", interface="eth0", port="port0")
    with pytest.raises(RunError, match="address eth0: No such file"), joined(FakeHost(), "nmlv0", seat, CARD):
        pass


REFUSED = (
    (GuestSettings(machine=MachineType.MICROVM), Attachment.NONE, "machine"),
    (GuestSettings(snapshot=True), Attachment.NONE, "snapshot"),
    (GuestSettings(start=StartFrom.RESTORED), Attachment.NONE, "start"),
    (GuestSettings(cpu="max,-avx"), Attachment.NONE, "cpu"),
    (GuestSettings(), Attachment.MACVTAP, "attachment"),
)


@pytest.mark.parametrize(("settings", "attachment", "key"), REFUSED, ids=[k for _, _, k in REFUSED])
def test_settings_that_libvirt_cannot_express_are_named(
    settings: GuestSettings, attachment: Attachment, key: str
) -> None:
    ((found, why),) = not_by_libvirt(settings, attachment)
    assert found == key and "backend: qemu" in why
    assert not tuple(not_by_libvirt(replace(GuestSettings(), cpu="Haswell"), Attachment.VETH_BRIDGE))


def test_settings_beyond_the_rights_of_our_own_daemon_are_refused() -> None:
    ours, theirs = Daemon(uri="x", own=True), Daemon(uri=SYSTEM, own=False)
    for settings, key in ((GuestSettings(huge_pages=True), "huge_pages"), (GuestSettings(vfio="1"), "vfio")):
        require_rights(theirs, settings, "vm")
        with pytest.raises(UnavailableError, match=f"environment vm: guest: {key}: only the machine's own"):
            require_rights(ours, settings, "vm")
    require_rights(ours, GuestSettings(), "vm")


CATALOG = Catalog(
    backends=("native", "qemu", "libvirt"), kernels={"ep": {"class": ("S | W", "problem size")}}
)
STUDY = """\
name: guests
environments:
  native: {{backend: native, placements: [1x1]}}
  vm: {{backend: {backend}, image: own, attachment: {attachment}, placements: [1x1]{more}}}
placements: {{1x1: {{instances: 1, tasks: 1}}}}
workloads: {{ep: {{kernel: ep, class: S}}}}
design: {{baseline: native, seed: 1}}
"""


def study(more: str = "", backend: str = "libvirt", attachment: str = "none") -> str:
    return STUDY.format(backend=backend, attachment=attachment, more=more)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (study(", guest: {machine: microvm}"), "vm.guest.machine: libvirt has no microvm"),
        (study(", guest: {start: restored}"), "vm.guest.start: libvirt restores a guest under its old name"),
        (study(", guest: {snapshot: true}"), "vm.guest.snapshot: libvirt would write the changes beside it"),
        (study(", guest: {cpu: 'max,-avx'}"), "vm.guest.cpu: libvirt takes the name of a model"),
        (study(attachment="macvtap"), "vm.attachment: libvirt does not accept a macvtap"),
        (
            study(", libvirt: {uri: 'qemu:///system'}", "qemu"),
            "vm.libvirt: backend qemu is not libvirt; write backend: libvirt",
        ),
        (study(", libvirt: {uri: 'qemu+ssh://other/system'}"), "is not the URI of a libvirt of this machine"),
        (
            study(", libvirt: {uri: 'qemu:///system?socket=/x;command=y'}"),
            "is not the URI of a libvirt of this machine",
        ),
    ],
)
def test_mistake_in_a_study_is_reported_before_anything_starts(own: str, told: str) -> None:
    with pytest.raises(StudyError) as found:
        load_text(own, "s.yaml", CATALOG)
    assert told in str(found.value) and "s.yaml:4:" in str(found.value)


def test_a_study_with_libvirt_is_read_and_written() -> None:
    for uri in ("qemu:///system", "qemu:///session", "qemu+unix:///session?socket=/run/x/libvirt-sock"):
        text = study(f", guest: {{vcpus: 2}}, libvirt: {{uri: '{uri}'}}", attachment="user")
        found = load_text(text, "s.yaml", CATALOG)
        vm = found.environments[1]
        assert (vm.guest, vm.own) == (GuestSettings(vcpus=2), LibvirtSettings(uri=uri))
        assert load_text(dump_study(found, CATALOG), "s.yaml", CATALOG) == found


def test_a_uri_where_older_files_have_it_is_read() -> None:
    old = load_text(study(", guest: {uri: 'qemu:///system', vcpus: 2}"), "s.yaml", CATALOG)
    assert old == load_text(study(", guest: {vcpus: 2}, libvirt: {uri: 'qemu:///system'}"), "s.yaml", CATALOG)
    for text, mistake in (
        (study(", guest: {uri: 'ssh://other'}"), '4:88  environments.vm.libvirt.uri: "ssh://other" is not'),
        (study(", guest: {uri: 'qemu:///system'}", "qemu"), "environments.vm.guest.uri: unknown key"),
    ):
        with pytest.raises(StudyError) as found:
            load_text(text, "s.yaml", CATALOG)
        assert mistake in str(found.value)
