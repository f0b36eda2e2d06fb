"""Names, images and command lines of instances that nearmetal has not started."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest
from tests.system.moving_case import stats_dump

from nearmetal.api.moves import moving, past, plans, restore_plans, speeds
from nearmetal.api.moves.dumps import removed_if_failed
from nearmetal.api.moves.past import past_moves
from nearmetal.environments import Criu, Unavailable
from nearmetal.environments.external import (
    KINDS,
    DestinationKind,
    External,
    Facts,
    Moves,
    Saved,
    Target,
    Work,
    again_line,
    find_external,
    forget_restored,
    read_interrupted,
    read_saved,
    remove_images,
    require_kept,
    require_new,
    require_room,
    require_way,
    take_back,
    write_begun,
    write_handed_over,
    write_restored,
    write_saved,
)
from nearmetal.environments.external.containers import LxcContainer, RuncContainer
from nearmetal.environments.external.domains import LibvirtDomain
from nearmetal.environments.external.dumping import fields_of
from nearmetal.environments.external.xen_domains import XenDomain
from nearmetal.errors import RunError, UnavailableError, UsageError
from nearmetal.host import Completed, LocalHost
from nearmetal.host.mounts import private_tmpfs
from nearmetal.host.pages import regions
from nearmetal.host.ssh import SshHost
from nearmetal.lifecycle import Costs, Estimate, Method
from nearmetal.model.change import replace
from nearmetal.testing.fake_host import FakeHost

CRIU = Criu(argv=("/usr/sbin/criu",), version="4.2.1")
WORK = Work(criu=lambda _: CRIU)
KEPT = Work(criu=lambda _: CRIU, keep_running=True)
VIRSH = ("virsh", "--quiet", "--connect", "qemu:///system")
INFO = "Id:             1\nState:          running\nUsed memory:    262144 KiB\n"
OWN = os.getpid()
HOST = LocalHost()


def failed(text: str) -> Completed:
    return Completed(argv=(), returncode=1, stdout="", stderr=text, seconds=0.0)


def late() -> Completed:
    """A command that was killed at its time limit."""
    return Completed(argv=(), returncode=124, stdout="", stderr="", seconds=600.0)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("qmp:a", DestinationKind.SOCKET),
        ("./dir", DestinationKind.DIRECTORY),
        ("/var/tmp/x", DestinationKind.DIRECTORY),
        (".", DestinationKind.DIRECTORY),
        ("node7", DestinationKind.HOST),
        ("root@node7", DestinationKind.HOST),
        ("qemu+ssh://node7/system", DestinationKind.HOST),
    ],
)
def test_kind_of_a_destination_follows_from_its_text(text: str, way: DestinationKind) -> None:
    assert Target.parse(text).way is way


def test_a_prefix_says_the_kind_and_each_has_one() -> None:
    for kind in KINDS:
        text = "7" if kind == "pid" else "name"
        assert find_external(FakeHost(), f"{kind}:{text}").name == f"{kind}:{text}"
    with pytest.raises(UsageError, match="by Podman itself") as found:
        find_external(FakeHost(), "podman:web")
    assert found.value.remedy.startswith("podman container checkpoint --export FILE web; ")
    assert find_external(FakeHost(), "4711").name == "pid:4711"
    assert find_external(FakeHost(), "./a b/qmp.sock").name == "qmp:a b/qmp.sock"


def test_a_name_without_a_prefix_is_looked_for_everywhere() -> None:
    state = json.dumps({"status": "running", "pid": OWN, "bundle": "/b"})
    commands: dict[tuple[str, ...], str | Completed] = {
        (*VIRSH, "dominfo", "web"): failed("error: failed to get domain 'web'"),
        ("runc", "state", "web"): state,
        ("lxc-info", "--name", "web", "--pid", "--no-humanize"): failed("web doesn't exist"),
    }
    programs = {p: f"/usr/bin/{p}" for p in ("virsh", "runc", "lxc-info")}
    host = FakeHost(commands=commands, programs=programs, missing=["xl"])
    assert find_external(host, "web").name == "runc:web"
    twice = commands | {("lxc-info", "--name", "web", "--pid", "--no-humanize"): f"{OWN}\n"}
    with pytest.raises(UsageError, match="several") as refused:
        find_external(FakeHost(commands=twice, programs=programs, missing=["xl"]), "web")
    assert refused.value.remedy == "write runc:web or lxc:web"
    with pytest.raises(UsageError, match="no running instance is named 'web'"):
        find_external(FakeHost(missing=["virsh", "runc", "lxc-info", "xl"]), "web")


def test_a_container_of_runc() -> None:
    state = json.dumps({"status": "running", "pid": OWN, "bundle": "/bundle"})
    words = ("--image-path", "/i", "--work-path", "/i", "--tcp-established", "--ext-unix-sk", "--shell-job")
    options = ("runc", "--criu", "/usr/sbin/criu")
    keep = (*options, "checkpoint", *words, "--file-locks", "--leave-running", "web")
    back = (*options, "restore", *words, "--file-locks", "--detach", "--bundle", "/bundle", "web")
    host = FakeHost(commands={("runc", "state", "web"): state, keep: ""}, programs={"runc": "/usr/bin/runc"})
    web = RuncContainer(container="web")
    facts = web.inspect(host)
    assert OWN in facts.processes and facts.memory > 1 << 20 and facts.guest is None
    web.checkpoint(host, KEPT, Path("/i"), Method.CRIU)
    saved = Saved(name=web.name, method=Method.CRIU, own=web.needs(host))
    with pytest.raises(RunError, match=r"runc has a container web on .* already"):
        web.restore(host, WORK, Path("/i"), saved)
    elsewhere = FakeHost(commands={("runc", "state", "web"): failed("none"), back: ""})
    assert web.restore(elsewhere, WORK, Path("/i"), saved) == "runc:web"
    assert not host.never_used() and not elsewhere.never_used()
    resume = ("runc", "resume", "web")
    refusing = FakeHost(
        commands={("runc", "state", "web"): state, keep: failed("no"), resume: failed("it is not paused")},
        programs={"runc": "/usr/bin/runc"},
    )
    with pytest.raises(RunError, match=r"no checkpoint of container web, which continues: .*no"):
        web.checkpoint(refusing, KEPT, Path("/i"), Method.CRIU)
    assert not refusing.never_used(), "a container that is frozen is let go on"
    paused = json.dumps({"status": "paused", "pid": OWN, "bundle": "/bundle"})
    stopped = FakeHost(commands={("runc", "state", "web"): paused}, programs={"runc": "/usr/bin/runc"})
    with pytest.raises(UsageError, match="web is paused"):
        web.inspect(stopped)


def test_a_container_is_written_in_rounds_and_each_is_handed_over(tmp_path: Path) -> None:
    """Each round refers to the one before, and the last dump to the last round."""
    state = json.dumps({"status": "running", "pid": 1 << 22, "bundle": "/bundle"})
    pages = (20_000, 1_000)

    def write(number: int, words: Sequence[str]) -> str:
        images = Path(words[words.index("--image-path") + 1])
        assert images == tmp_path / f"round-{number}" and [*tmp_path.glob("round-*")] and not handed[number:]
        (images / "stats-dump").write_bytes(stats_dump(pages[number]))
        return ""

    handed: list[Path] = []
    rounds = {
        number: ("--pre-dump", *(("--parent-path", f"../round-{number - 1}") if number else ()))
        for number in range(2)
    }
    last = ("--parent-path", "round-1")

    def command(images: Path, more: tuple[str, ...]) -> tuple[str, ...]:
        words = ("--image-path", str(images), "--work-path", str(images), "--tcp-established")
        options = ("--ext-unix-sk", "--shell-job", "--file-locks")
        return ("runc", "--criu", "/usr/sbin/criu", "checkpoint", *words, *options, *more, "web")

    commands: dict[tuple[str, ...], str | Callable[[Sequence[str]], str]] = {
        ("runc", "state", "web"): state,
        command(tmp_path / "round-0", rounds[0]): partial(write, 0),
        command(tmp_path / "round-1", rounds[1]): partial(write, 1),
        command(tmp_path, last): "",
    }
    host = FakeHost(commands=commands, programs={"runc": "/usr/bin/runc"})
    work = replace(WORK, round_written=handed.append)
    RuncContainer(container="web").checkpoint(host, work, tmp_path, Method.CRIU_PRECOPY)
    assert handed == [tmp_path / "round-0", tmp_path / "round-1"]
    assert host.calls[-1] == command(tmp_path, last) and not host.never_used()


def test_a_container_of_lxc_in_a_directory_of_its_own() -> None:
    named = ("--name", "web", "--lxcpath", "/srv/lxc")
    path = "PATH=/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
    said = ("sh", "-c", 'exec "$@" >>"$0" 2>&1', "/i/lxc-checkpoint.log")
    run = (*said, "env", path, "lxc-checkpoint", *named, "--checkpoint-dir", "/i")
    host = FakeHost(
        commands={
            ("lxc-info", *named, "--pid", "--no-humanize"): f"{OWN}\n",
            run: "",
        },
        programs={"lxc-info": "/usr/bin/lxc-info"},
    )
    stopped = FakeHost(
        commands={
            ("lxc-info", *named, "--pid", "--no-humanize"): failed("it does not run"),
            (*run, "--restore", "--daemon"): "",
        }
    )
    web = LxcContainer(container="/srv/lxc/web")
    assert web.inspect(host).processes[0] == OWN
    web.checkpoint(host, KEPT, Path("/i"), Method.CRIU)
    saved = Saved(name=web.name, method=Method.CRIU)
    with pytest.raises(RunError, match=r"runs on .* already"):
        web.restore(host, WORK, Path("/i"), saved)
    assert web.restore(stopped, WORK, Path("/i"), saved) == web.name
    assert not host.never_used() and not stopped.never_used()


def domain_host(more: Mapping[str, str | Completed] = MappingProxyType({})) -> FakeHost:
    commands: dict[tuple[str, ...], str | Completed] = {
        (*VIRSH, "dominfo", "vm"): INFO,
        **{(*VIRSH, *words.split()): answer for words, answer in more.items()},
    }
    return FakeHost(
        commands=commands, programs={"virsh": "/usr/bin/virsh"}, files={"/run/libvirt/qemu/vm.pid": "4711\n"}
    )


def test_a_domain_of_libvirt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIBVIRT_DEFAULT_URI", raising=False)
    vm = LibvirtDomain(domain="vm")
    facts = vm.inspect(domain_host())
    assert (facts.memory, facts.processes, facts.guest) == (256 << 20, (4711,), 256 << 20)
    live = "migrate --live --auto-converge --bandwidth 100 vm qemu+ssh://node7/system"
    host = domain_host(
        {
            "migrate-setmaxdowntime vm 80": "",
            live: "",
            "domjobinfo --completed vm": "Total downtime:   61           ms\n",
        }
    )
    work = Work(criu=lambda _: CRIU, bandwidth=100 << 20, downtime_limit=0.08)
    moved = vm.migrate(host, work, Target.parse("node7"), Method.PRECOPY)
    assert moved.downtime == 0.061 and moved.now == "libvirt:vm at qemu+ssh://node7/system"
    refused = domain_host(
        {
            "migrate-setmaxdowntime vm 300": "",
            "migrate vm qemu+ssh://node7/system": failed("error: Failed\nerror: no route"),
            "domstate vm": "running\n",
        }
    )
    with pytest.raises(RunError, match=r"was not moved by offline, it continues: .*no route"):
        vm.migrate(refused, WORK, Target.parse("node7"), Method.OFFLINE)
    vm.checkpoint(domain_host({f"save vm {tmp_path}/guest.state": ""}), WORK, tmp_path, Method.OFFLINE)
    saved = Saved(name=vm.name, method=Method.OFFLINE)
    assert vm.restore(domain_host({"restore /i/guest.state": ""}), WORK, Path("/i"), saved) == vm.name
    slow = domain_host({"restore /i/guest.state": late(), "domstate vm": "running\n"})
    assert vm.restore(slow, WORK, Path("/i"), saved) == vm.name, "the daemon has gone on without virsh"
    slow = domain_host({"restore /i/guest.state": late(), "domstate vm": "paused\n"})
    with pytest.raises(RunError, match="may still restore it, and says: paused") as unknown:
        vm.restore(slow, WORK, Path("/i"), saved)
    assert unknown.value.remedy.startswith("virsh domstate vm; if it is shut off: nearmetal restore")
    with pytest.raises(UsageError, match="ends the domain"):
        vm.checkpoint(domain_host(), KEPT, Path("/i"), Method.OFFLINE)


def test_a_domain_of_xen() -> None:
    table = "Name     ID   Mem VCPUs\tState\tTime(s)\nvm        3   128     1     -b----       2.1\n"
    vm, programs = XenDomain(domain="vm"), {"xl": "/usr/sbin/xl"}
    saved = Saved(name=vm.name, method=Method.OFFLINE)
    auto = ("grep", "-s", "-l", "-E", "-e", """^ *name *= *["']vm["']""", "-R", "/etc/xen/auto")
    listed, restore, destroy = (
        ("xl", "list", "vm"),
        ("xl", "restore", "/i/guest.state"),
        ("xl", "destroy", "vm"),
    )
    host = FakeHost(commands={listed: table, auto: failed("")}, programs=programs)
    assert vm.inspect(host).memory == 128 << 20 and not vm.inspect(host).warning
    with pytest.raises(RunError, match="Xen has a domain vm already"):
        vm.restore(host, WORK, Path("/i"), saved)
    silent = FakeHost(commands={listed: failed("cannot connect to xenstore")}, programs=programs)
    with pytest.raises(RunError, match="the state of xl:vm is not known"):
        vm.restore(silent, WORK, Path("/i"), saved)
    free = failed("vm is an invalid domain identifier")
    good = FakeHost(commands={listed: free, restore: ""}, programs=programs)
    assert vm.restore(good, WORK, Path("/i"), saved) == "xl:vm" and not good.never_used()
    killed = FakeHost(commands={listed: free, restore: late(), destroy: ""}, programs=programs)
    with pytest.raises(RunError, match="domain vm is not restored"):
        vm.restore(killed, WORK, Path("/i"), saved)
    assert not killed.never_used(), "what it had built is destroyed"

    def interrupt(_: Sequence[str]) -> str:
        raise KeyboardInterrupt

    interrupted = FakeHost(commands={listed: free, restore: interrupt, destroy: ""}, programs=programs)
    with pytest.raises(KeyboardInterrupt):
        vm.restore(interrupted, WORK, Path("/i"), saved)
    assert interrupted.calls[-1] == destroy
    with pytest.raises(UnavailableError, match="xl is not installed"):
        vm.inspect(FakeHost(missing=["xl"]))


@pytest.mark.parametrize("kind", KINDS)
def test_each_says_how_it_moves_or_why_not(kind: str) -> None:
    found: External = find_external(FakeHost(), f"{kind}:{7 if kind == 'pid' else 'x'}")
    for way in DestinationKind:
        if way not in found.moves_by:
            why = found.refuses(way)
            assert why.reason and why.remedy
    assert found.checkpoints_by and Method.AUTO not in found.checkpoints_by
    assert isinstance(found, Moves) == (DestinationKind.DIRECTORY not in found.moves_by)


def test_the_images_are_described_last_and_checked_first(tmp_path: Path) -> None:
    images = tmp_path / "i"
    require_new(images)
    (images / "pages-1.img").write_bytes(b"x" * 9)
    (images / "dump.log").write_text("said\n")
    with pytest.raises(UsageError, match="no complete checkpoint"):
        read_saved(images)
    saved = Saved(name="pid:7", method=Method.CRIU, own={"options": "--shell-job"})
    write_begun(images, saved)
    with pytest.raises(UsageError, match="no complete checkpoint") as begun:
        read_saved(images)
    assert begun.value.remedy.startswith("if the instance still runs")
    assert write_saved(images, saved) == 9 and read_saved(images) == replace(saved, size=9)
    (images / "dump.log").write_text("said more\n")
    assert read_saved(images) == replace(saved, size=9), "a log is no image"
    with pytest.raises(UsageError, match="not empty"):
        require_new(images)
    (images / "pages-1.img").write_bytes(b"x" * 8)
    with pytest.raises(UsageError, match=r"pages-1.img has 8 of 9 bytes"):
        read_saved(images)
    (images / "pages-1.img").unlink()
    with pytest.raises(UsageError, match=r"pages-1.img is missing"):
        read_saved(images)
    (images / "nearmetal-checkpoint.json").write_text("{}")
    with pytest.raises(UsageError, match="is damaged"):
        read_saved(images)


def test_images_without_a_description_can_be_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match="pid:7 was written to files, but not their description") as failed:
        write_saved(tmp_path, Saved(name="pid:7", method=Method.CRIU))
    assert failed.value.remedy == f"if it does not run: nearmetal restore {tmp_path}"
    assert not (tmp_path / "nearmetal-checkpoint.json").exists(), "no empty one"


def test_images_that_another_host_restores_are_not_restored_here_unasked(tmp_path: Path) -> None:
    require_kept(tmp_path)
    write_handed_over(tmp_path, "node7", Path("/var/tmp/x"))
    file = tmp_path / "nearmetal-handed-over.txt"
    with pytest.raises(UsageError, match="were copied to node7:/var/tmp/x, to restore the instance") as kept:
        require_kept(tmp_path)
    assert kept.value.remedy.endswith(f"if it does not run: rm {file} && nearmetal restore {tmp_path}")
    take_back(tmp_path)
    require_kept(tmp_path)
    assert again_line(tmp_path) == f"nearmetal restore {tmp_path}"


def test_images_whose_restore_was_ended_are_not_restored_unasked(tmp_path: Path) -> None:
    write_restored(tmp_path, "runc:b", finished=False)
    with pytest.raises(UsageError, match=r"restored runc:b; runc:b may run") as kept:
        require_kept(tmp_path)
    note = tmp_path / "nearmetal-restored.txt"
    assert kept.value.remedy.endswith(f"if it does not run: rm {note} && nearmetal restore {tmp_path}")
    forget_restored(tmp_path)
    require_kept(tmp_path)


def test_images_are_restored_a_second_time_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under another name, or at another socket, a second copy would run beside the first."""

    class Restored:
        name, keeps_name, moves_by = "runc:b", False, dict[DestinationKind, tuple[Method, ...]]()

        def require_programs(self, *_: object) -> None:
            pass

        def restore(self, *_: object) -> str:
            return self.name

    monkeypatch.setattr(restore_plans, "named", lambda _: Restored())
    monkeypatch.setattr(moving, "_alone", lambda _: nullcontext())
    monkeypatch.setattr(moving, "work_of", lambda *_: WORK)
    monkeypatch.setattr(moving, "planned_restore", lambda *_: None)
    monkeypatch.setattr(moving, "remember_restore", lambda *_: None)
    (tmp_path / "pages-1.img").write_bytes(b"x" * 9)
    write_saved(tmp_path, Saved(name="runc:a", method=Method.CRIU))
    assert moving.restore(tmp_path, "runc:b").now == "runc:b"
    with pytest.raises(UsageError, match="were restored already, as runc:b") as refused:
        moving.restore(tmp_path, "runc:c")
    note = tmp_path / "nearmetal-restored.txt"
    assert refused.value.remedy.endswith(f"nowhere any more: rm {note} && nearmetal restore {tmp_path}")
    note.unlink()
    moving.restore(tmp_path, "runc:b")


@pytest.mark.parametrize("name", ["pid:7", "libvirt:vm", "xl:vm"])
def test_an_instance_whose_images_hold_its_name_gets_no_other(tmp_path: Path, name: str) -> None:
    write_saved(tmp_path, Saved(name=name, method=Method.OFFLINE))
    other = f"{name.partition(':')[0]}:8"
    with pytest.raises(UsageError, match=f"contains {name}, which does not become {other}"):
        restore_plans.read(HOST, tmp_path, other, complete=True)
    assert restore_plans.read(HOST, tmp_path, name, complete=True)[1].name == name


def test_a_directory_of_another_user_takes_no_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        require_new(tmp_path)


def test_a_file_that_libvirt_has_completed_is_whole(tmp_path: Path) -> None:
    saved = Saved(name="libvirt:vm", method=Method.OFFLINE)
    write_begun(tmp_path, saved)
    for magic, found in ((b"LibvirtQemudPart", None), (b"LibvirtQemudSave", saved)):
        (tmp_path / "guest.state").write_bytes(magic + b"x" * 8)
        assert read_interrupted(tmp_path) == found


@pytest.mark.parametrize("name", ["qmp:/run/vm", "xl:vm"])
def test_a_state_that_has_its_name_is_whole(tmp_path: Path, name: str) -> None:
    """It gets its name when it is complete."""
    saved = Saved(name=name, method=Method.OFFLINE)
    write_begun(tmp_path, saved)
    (tmp_path / ".guest.state").write_bytes(b"x" * 99)
    assert read_interrupted(tmp_path) is None
    (tmp_path / ".guest.state").rename(tmp_path / "guest.state")
    assert read_interrupted(tmp_path) == saved


def test_an_interrupted_checkpoint_is_restored_only_if_its_instance_has_ended(tmp_path: Path) -> None:
    state = ("runc", "state", "web")
    programs = {"runc": "/usr/bin/runc", "virsh": "/usr/bin/virsh", "xl": "/usr/sbin/xl"}
    table = "Name     ID   Mem VCPUs\tState\tTime(s)\nvm        3   128     1     ---s--       2.1\n"

    def states(instance: External, argv: tuple[str, ...], *answers: str | Completed) -> list[str]:
        hosts = [FakeHost(commands={argv: answer}, programs=programs) for answer in answers]
        return [instance.remaining_state(host) for host in hosts]

    web, vm = RuncContainer(container="web"), LibvirtDomain(domain="vm")
    told = [json.dumps({"status": status}) for status in ("running", "paused", "stopped")]
    gone = failed("container does not exist")
    assert states(web, state, *told, gone) == ["is running", "is paused", "", ""]
    with pytest.raises(RunError, match="the state of runc:web is not known"):
        states(web, state, failed("permission denied"))
    domstate = (*VIRSH, "domstate", "vm")
    gone = failed("error: failed to get domain 'vm'")
    assert states(vm, domstate, "paused\n", "shut off\n", gone) == ["is paused", "", ""]
    with pytest.raises(RunError, match="the state of libvirt:vm is not known"):
        states(vm, domstate, failed("error: Failed to connect socket"))
    listed = ("xl", "list", "vm")
    assert states(XenDomain(domain="vm"), listed, table, failed("invalid domain identifier")) == [
        "exists: xl list shows ---s--",
        "",
    ]
    assert find_external(FakeHost(), f"pid:{OWN}").remaining_state(HOST) == "still runs"
    assert find_external(FakeHost(), f"qmp:{tmp_path}/none").remaining_state(HOST) == ""
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(tmp_path / "busy"))
        busy.listen()
        with pytest.raises(RunError, match=r"is not known: .* it does not greet within"):
            find_external(FakeHost(), f"qmp:{tmp_path}/busy").remaining_state(HOST)


def test_images_of_a_command_that_was_killed_are_whole_if_criu_had_ended(tmp_path: Path) -> None:
    saved = Saved(name="pid:7", method=Method.CRIU)
    pages, lazy = bytes([8, 1]), bytes([0x20, 2, 0x28, 1])
    present = bytes([0x20, 4, 0x28, 1])

    def pagemap(*entries: bytes) -> None:
        content = b"".join(struct.pack("<I", len(e)) + e for e in (pages, *entries))
        (tmp_path / "pagemap-7.img").write_bytes(bytes(8) + content)

    write_begun(tmp_path, saved)
    pagemap(present)
    (tmp_path / "pages-1.img").write_bytes(bytes(4096))
    assert read_interrupted(tmp_path) is None, "the last image is missing"
    (tmp_path / "inventory.img").write_bytes(b"x")
    assert read_interrupted(tmp_path) == saved
    (tmp_path / "pages-1.img").write_bytes(bytes(4095))
    assert read_interrupted(tmp_path) is None, "torn"
    pagemap(lazy)
    assert read_interrupted(tmp_path) is None, "its memory is with the source"
    (tmp_path / "pagemap-7.img").unlink()
    assert read_interrupted(tmp_path) is None, "its memory is at a page server"


class Own:
    """An instance of which only is known whether it still runs."""

    def __init__(self, runs: bool) -> None:
        self.runs = runs

    def inspect(self, host: Any) -> None:
        if not self.runs:
            raise UsageError("no such instance")


@pytest.mark.parametrize("error", [RunError("the time limit is over"), KeyboardInterrupt()])
@pytest.mark.parametrize("runs", [True, False])
def test_images_are_removed_only_if_the_instance_continues(
    tmp_path: Path, runs: bool, error: BaseException
) -> None:
    """Otherwise they may be all that is left of it."""
    (tmp_path / "pages-1.img").write_text("x")
    with pytest.raises(type(error)), removed_if_failed(LocalHost(), cast(External, Own(runs)), tmp_path):
        raise error
    assert (tmp_path / "pages-1.img").exists() is not runs


def test_torn_images_are_removed_and_logs_kept(tmp_path: Path) -> None:
    images = tmp_path / "i"
    (images / "round-0").mkdir(parents=True)
    for file in ("pages-1.img", "dump.log", "round-0/pages-1.img", "round-0/dump.log"):
        (images / file).write_text("x")
    (images / "parent").symlink_to("round-0")
    remove_images(images)
    assert sorted(p.name for p in images.rglob("*") if p.is_file()) == ["dump.log", "dump.log"]
    for log in images.rglob("*.log"):
        log.unlink()
    remove_images(images)
    assert not images.exists()


@pytest.mark.parametrize(
    ("instance", "way", "method", "bandwidth", "said"),
    [
        ("pid:7", DestinationKind.HOST, Method.CRIU, 1e6, None),
        ("runc:x", DestinationKind.HOST, Method.CRIU_PRECOPY, 1e6, None),
        ("pid:7", DestinationKind.DIRECTORY, Method.CRIU, 1e6, "by itself, as fast as the disk takes them"),
        ("lxc:x", DestinationKind.DIRECTORY, Method.CRIU, 1e6, "by itself"),
        ("pid:7", DestinationKind.HOST, Method.CRIU_LAZY, 1e6, "criu-lazy sends memory by CRIU itself"),
        ("qmp:x", DestinationKind.SOCKET, Method.PRECOPY, 1e6, None),
        ("libvirt:x", DestinationKind.HOST, Method.PRECOPY, 1 << 20, None),
        ("libvirt:x", DestinationKind.HOST, Method.PRECOPY, 1e6, "whole MiB/s"),
        ("xl:x", DestinationKind.HOST, Method.STREAM, 1e9, "no limit"),
    ],
)
def test_a_bandwidth_is_kept_or_refused(
    instance: str, way: DestinationKind, method: Method, bandwidth: float, said: str | None
) -> None:
    why = find_external(FakeHost(), instance).exceeds(way, method, bandwidth)
    assert why is None if said is None else (why is not None and said in why.reason and why.remedy)


def test_a_method_without_sense_on_one_machine_says_why() -> None:
    require_way(DestinationKind.HOST, Method.CRIU_LAZY)
    require_way(DestinationKind.DIRECTORY, Method.CRIU)
    for method in (Method.CRIU_LAZY, Method.CRIU_PAGESERVER):
        with pytest.raises(UsageError, match=method.value) as refused:
            require_way(DestinationKind.DIRECTORY, method)
        assert "--to with a host name" in refused.value.remedy


def test_room_is_asked_for_where_the_images_will_be(tmp_path: Path) -> None:
    assert require_room(tmp_path / "not" / "yet", 1) > 0
    with pytest.raises(UnavailableError, match="MiB are free") as refused:
        require_room(tmp_path, 1 << 60)
    assert "--to" in refused.value.remedy


def test_room_is_needed_for_files_in_memory_and_not_for_memory_that_is_fetched_later() -> None:
    facts = Facts(memory=100, files=7)
    assert facts.image_bytes([Method.CRIU]) == facts.image_bytes([Method.CRIU_LAZY, Method.CRIU]) == 107
    assert facts.image_bytes([Method.CRIU_LAZY]) == 7


def test_files_in_a_tmpfs_of_a_container_are_part_of_its_checkpoint() -> None:
    """A tmpfs that this process sees too is none of its own, nor is one that another mount hides."""
    assert private_tmpfs(OWN) == private_tmpfs(1 << 30) == 0
    mount, write = "mount -t tmpfs -o size=16m none /mnt", "head -c 1M /dev/zero >/mnt"
    words = f"{mount} && {write}/hidden && {mount} && {write}/a && {write}/b && echo ready && read end"
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", words]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        if process.stdout.readline() != b"ready\n":
            pytest.skip("no user namespaces here")
        try:
            assert private_tmpfs(process.pid) == 2 << 20
            assert find_external(HOST, f"pid:{process.pid}").inspect(HOST).files == 2 << 20
        finally:
            process.stdin.close()


SMAPS = """\
00400000-00500000 r-xp 00000000 fe:00 42   /usr/bin/program
Size:               1024 kB
Rss:                 800 kB
Anonymous:             0 kB
Swap:                  0 kB
7f0000000000-7f0010000000 rw-p 00000000 00:00 0
Size:             262144 kB
Rss:              131072 kB
Anonymous:        131072 kB
Swap:               4096 kB
VmFlags: rd wr mr mw me ac sd
7f0020000000-7f0020100000 rw-s 00000000 00:01 9   /memfd:guest (deleted)
Rss:                 512 kB
Anonymous:             0 kB
7f0030000000-7f0030100000 rw-s 00000000 fe:00 9   /srv/database
Rss:                 512 kB
Anonymous:             0 kB
"""


def test_the_memory_of_a_process_is_what_belongs_to_no_file() -> None:
    private, shared = regions(SMAPS)
    assert (private.start, private.size) == (0x7F0000000000, 256 << 20)
    assert private.touched == 132 << 20 and not private.shared
    assert shared.touched == 512 << 10 and shared.shared


def test_damaged_lines_and_earlier_moves_by_other_rules_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    times = {"predicted_total": 1.0, "total": 2.0, "predicted_downtime": None, "downtime": None}
    old = {"kind": "pid checkpoint directory", "method": "criu", **times}
    line = json.dumps({"rules": past._RULES, **old})
    (tmp_path / "nearmetal").mkdir()
    (tmp_path / "nearmetal" / "moves.jsonl").write_bytes(
        b"[1]\n\xff\n" + line.encode() + b"\n" + json.dumps(old).encode() + b'\n{"kind"'
    )
    assert [move.total for move in past_moves()] == [2.0]


@pytest.fixture
def unmeasured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """A machine on which nothing is measured for a plan: the speeds that would be measured, each half of the
    one before."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = iter([1e9, 5e8, 2.5e8, 1e8])
    monkeypatch.setattr(speeds, "_write_speed", lambda _: next(found))
    monkeypatch.setattr(speeds, "_ssh_speed", lambda _: next(found))
    monkeypatch.setattr(plans, "_criu", lambda _: CRIU)
    monkeypatch.setattr(plans, "_require_like", lambda *_: ())
    return found


def process_of(facts: Facts, way: DestinationKind, methods: tuple[Method, ...]) -> External:
    costs = Costs(fixed=Estimate.exactly(0.2), setup=Estimate.exactly(0.0))
    process = SimpleNamespace(
        name="pid:4711",
        checkpoints_by=methods,
        moves_by={way: methods},
        require_programs=lambda *_: None,
        inspect=lambda _: facts,
        costs=lambda _: costs,
    )
    return cast(External, process)


ELSEWHERE = cast(SshHost, SimpleNamespace(name="elsewhere"))


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("method", "needed"), [(Method.CRIU_LAZY, 7), (Method.CRIU, 107), (Method.AUTO, 107)]
)
def test_a_plan_asks_for_the_room_that_its_methods_need(
    method: Method, needed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(plans, "require_room", lambda _, size: asked.append(size))
    monkeypatch.setattr(plans, "_require_remote_room", lambda _, size: asked.append(size))
    process = process_of(Facts(memory=100, files=7), DestinationKind.HOST, (Method.CRIU, Method.CRIU_LAZY))
    target = Target(way=DestinationKind.HOST, text="elsewhere")
    plans.planned(HOST, process, target, plans.MoveOptions(method=method), plans.MIGRATE, ELSEWHERE)
    assert asked == [needed, needed]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("full", ["require_room", "_require_remote_room"])
def test_a_method_whose_images_do_not_fit_is_not_chosen(full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def room(_: object, size: int) -> int:
        if size > 50:
            raise UnavailableError(f"{size} B needed, 50 free", where="/full", remedy="--to")
        return 50

    for check in ("require_room", "_require_remote_room"):
        monkeypatch.setattr(plans, check, room if check == full else lambda *_: 10**9)
    methods = (Method.CRIU, Method.CRIU_LAZY, Method.CRIU_PAGESERVER)
    target = Target(way=DestinationKind.HOST, text="elsewhere")

    def planned(files: int, method: Method) -> plans.MovePlan:
        process = process_of(Facts(memory=100, files=files), DestinationKind.HOST, methods)
        options = plans.MoveOptions(method=method)
        return plans.planned(HOST, process, target, options, plans.MIGRATE, ELSEWHERE)

    plan = planned(7, Method.AUTO)
    assert [p.method for p in plan.methods] == [plan.method] == [Method.CRIU_LAZY]
    assert plan.notes[:2] == tuple(
        f"{m} is left out: 107 B needed, 50 free (/full; next: --to)"
        for m in (Method.CRIU, Method.CRIU_PAGESERVER)
    )
    for files, method, needed in ((7, Method.CRIU, 107), (60, Method.AUTO, 60), (60, Method.CRIU_LAZY, 60)):
        with pytest.raises(UnavailableError, match=f"{needed} B needed"):
            planned(files, method)


@pytest.mark.usefixtures("unmeasured")
def test_memory_is_fetched_later_only_if_the_other_host_can(monkeypatch: pytest.MonkeyPatch) -> None:
    lack = Unavailable(reason="no userfaultfd", remedy="another kernel")
    there = replace(CRIU, unable={Method.CRIU_LAZY: lack})
    monkeypatch.setattr(plans, "_criu", lambda host: there if host is ELSEWHERE else CRIU)
    monkeypatch.setattr(plans, "_require_remote_room", lambda *_: None)
    target = Target(way=DestinationKind.HOST, text="elsewhere")
    process = process_of(Facts(memory=100), DestinationKind.HOST, (Method.CRIU, Method.CRIU_LAZY))

    def planned(method: Method) -> plans.MovePlan:
        return plans.planned(
            HOST, process, target, plans.MoveOptions(method=method), plans.MIGRATE, ELSEWHERE
        )

    plan = planned(Method.AUTO)
    assert [p.method for p in plan.methods] == [Method.CRIU]
    assert plan.notes[0] == "criu-lazy is left out: criu-lazy on elsewhere: no userfaultfd"
    with pytest.raises(UnavailableError, match="criu-lazy on elsewhere: no userfaultfd"):
        planned(Method.CRIU_LAZY)


@pytest.mark.parametrize("where", ["directory", "host"])
def test_the_speed_of_a_destination_is_measured_once_for_all_methods(
    where: str, unmeasured: Iterator[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "_require_remote_room", lambda *_: None)
    target = Target.parse(str(tmp_path) if where == "directory" else "elsewhere")
    remote = None if where == "directory" else ELSEWHERE
    methods = (Method.CRIU, Method.CRIU_PAGESERVER, Method.CRIU_PRECOPY)
    process = process_of(Facts(memory=10**8), target.way, methods)
    plan = plans.planned(HOST, process, target, plans.MoveOptions(), plans.MIGRATE, remote)
    files, server, precopy = plan.methods
    assert next(unmeasured) == 5e8
    assert files.downtime == server.downtime and files.downtime.value == pytest.approx(0.2 + 0.4)
    # The dirty rate is not known, so nothing is certain about pre-copy.
    assert "the dirty rate is not known" in plan.notes[0] and not precopy.converges
    assert precopy.downtime.low >= 0.2 + 0.07


def test_the_state_of_a_process_is_read_whatever_its_name(tmp_path: Path) -> None:
    program = tmp_path / os.fsdecode(b"\xff)")
    shutil.copy("/bin/sleep", program)
    process = subprocess.Popen([program, "60"])
    try:
        fields = fields_of(process.pid)
        assert fields is not None and fields[0] in "RSD"
    finally:
        process.kill()
        process.wait()
    assert fields_of(process.pid) is None
