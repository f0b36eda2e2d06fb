"""Guests of a real Xen, on a dom0 that is emulated, reached by ssh: every step that the backend has, and
moves. For function alone."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from tests.nested.machine import Outer, outer_machine
from tests.nested.parts import Parts
from tests.patience import until

from nearmetal.environments import Instance, InstanceRequest, Moved, MoveRequest, Unavailable
from nearmetal.environments.xen.backend import Xen
from nearmetal.environments.xen.guest import XenInstance
from nearmetal.environments.xen.leftovers import domain_names, remove_named
from nearmetal.environments.xen.settings import Dom0, XenDisk, XenScheduler, XenSettings, XenType
from nearmetal.environments.xen.xl import Xl
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import LocalHost
from nearmetal.host.leftovers import find
from nearmetal.host.processes import labelled as processes
from nearmetal.host.processes.running import running_program
from nearmetal.lifecycle import Method, NotConvergedError
from nearmetal.model.environments.guest import MIB, GuestSettings
from nearmetal.model.study import Attachment, Environment

pytestmark = pytest.mark.more

HOST = LocalHost()
LABEL = f"nearmetal-test{os.getpid()}xen"
MOVE_SECONDS = 600.0
"""Time limit of a move that is to succeed."""
MOVING = re.compile(r"\bxl\b.{1,20}\b(save|migrate)\b", re.DOTALL)
"""Part of the command line of ssh that moves a guest."""
TICKS = "while echo tick; do sleep 1; done"


@pytest.fixture(scope="module")
def dom0(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outer]:
    with outer_machine(tmp_path_factory.mktemp("dom0"), xen=True) as outer:
        yield outer


@contextmanager
def guest(
    dom0: Outer, parts: Parts, directory: Path, *, settings: GuestSettings | None = None, **xen: object
) -> Iterator[XenInstance]:
    there = Dom0(destination=dom0.way.destination, config=dom0.way.config)
    environment = Environment(
        name="tested",
        backend="xen",
        image="busybox",
        attachment=Attachment.NONE,
        placements=(),
        guest=settings or GuestSettings(memory=128 * MIB, boot_timeout=1800),
        own=XenSettings(dom0=there, **xen),  # type: ignore[arg-type]  # the fields that a test varies
    )
    request = InstanceRequest(
        label=f"{LABEL}-{directory.name}"[:60],
        hostname="nmguest",
        environment=environment,
        cpus=(0,),
        seat=None,
        binds=(),
        scratch=directory,
        base=parts.base,
    )
    with Xen().start(HOST, parts.tools, request) as instance:
        yield instance


def out(instance: XenInstance, *argv: str) -> str:
    done = HOST.run(instance.command(argv), timeout=600)
    assert done.ok, done
    return done.stdout.strip()


def out_until(file: Path, ticks: int) -> None:
    """Wait until a command in a guest has printed so many ticks."""
    end = time.monotonic() + 600
    while file.read_text().count("tick") < ticks:
        assert time.monotonic() < end, file.read_text()
        time.sleep(0.1)


@contextmanager
def moved_to(
    name: str, parts: Parts, instance: Instance, method: Method, *, time_limit: float = MOVE_SECONDS
) -> Iterator[Moved]:
    """A guest that was moved on its dom0, where its domain has another name."""
    assert isinstance(instance, XenInstance)
    there = replace(instance.request, label=f"{instance.label}-{name}")
    request = MoveRequest(method=method, destination=there, time_limit=time_limit)
    with Xen().migrate(HOST, parts.tools, instance, request) as moved:
        yield moved


def test_a_pv_guest_is_pinned_weighed_counted_and_moved(dom0: Outer, parts: Parts, tmp_path: Path) -> None:
    settings = GuestSettings(memory=128 * MIB, boot_timeout=1800, writable=64 * MIB, swap=32 * MIB)
    xl = Xl(dom0.ssh)
    with guest(
        dom0, parts, tmp_path, settings=settings, type=XenType.PV, scheduler=XenScheduler.CREDIT2, weight=300
    ) as g:
        assert out(g, "cat", "/proc/sys/kernel/hostname") == "nmguest"
        assert out(g, "cat", "/sys/hypervisor/type") == "xen"
        assert out(g, "cat", "/sys/hypervisor/guest_type") == "PV"
        assert HOST.run(g.command(["sh", "-c", "exit 3"]), timeout=600).returncode == 3
        mounts = out(g, "cat", "/proc/mounts")
        assert "overlay / overlay" in mounts
        assert "/dev/xvdc" in out(g, "cat", "/proc/swaps")
        assert {"prepare", "kernel", "root", "agent", "first_instruction"} <= g.phases.keys()
        (vcpu,) = xl.virtual_cpus(g.label)
        assert vcpu.domain == g.label and vcpu.cpu == 0
        # What the hypervisor holds it to is read back, not believed.
        assert xl.set_share(XenScheduler.CREDIT2, g.label, weight=None, cap=None).weight == 300
        assert xl.set_share(XenScheduler.CREDIT2, g.label, weight=512, cap=50).cap == 50
        xl.set_share(XenScheduler.CREDIT2, g.label, weight=256, cap=0)
        before = xl.counters()[g.label]
        assert before["memory_bytes"] == pytest.approx(128 * MIB, rel=0.05) and before["disk_reads"] > 0
        (source,) = [s for s in g.sources if str(s.scope) == "xen.nmguest"]
        counted = source.read()
        assert (counted["disk_reads"] or 0) >= before["disk_reads"] and "memory_bytes" not in counted
        uptime = float(out(g, "cat", "/proc/uptime").split()[0])
        with (
            pytest.raises(UnavailableError, match="does not log the pages"),
            moved_to("live", parts, g, Method.PRECOPY),
        ):
            pass
        with moved_to("moved", parts, g, Method.STREAM) as moved:
            label = f"{g.label}-moved"
            assert xl.find(g.label) is None and xl.find(label) is not None
            # The same guest, over the same line, with what it was held to.
            assert float(out(g, "cat", "/proc/uptime").split()[0]) >= uptime
            assert "/dev/xvdc" in out(g, "cat", "/proc/swaps")
            assert xl.set_share(XenScheduler.CREDIT2, label, weight=None, cap=None).weight == 300
            (source,) = [s for s in moved.instance.sources if str(s.scope) == "xen.nmguest"]  # type: ignore[attr-defined]
            assert source.read()["disk_reads"] is not None
            # As after a kill -9: found by its name on the dom0 that was noted, and all of it removed.
            assert label in domain_names(HOST)
            remove_named(HOST, label)
            assert xl.find(label) is None and label not in domain_names(HOST)
            assert "has ended" in g.trouble() or not HOST.run(g.command(["true"]), timeout=30).ok
    assert xl.find(label) is None
    assert label not in domain_names(HOST) and find(label) == ()
    assert not [f for f in dom0.do("ls", "/var/tmp").split() if f.startswith(LABEL)]


@pytest.mark.apart
def test_a_pvh_guest_moves_by_every_method_and_goes_on_where_a_move_fails(
    dom0: Outer, parts: Parts, tmp_path: Path
) -> None:
    settings = GuestSettings(memory=128 * MIB, boot_timeout=1800, writable=32 * MIB)
    xl, ticks = Xl(dom0.ssh), tmp_path / "ticks"
    with guest(dom0, parts, tmp_path, settings=settings, type=XenType.PVH) as g, ExitStack() as stack:
        out(g, "sh", "-c", "echo 4711 >/var/tmp/kept")
        command = running_program(HOST, g.command(["sh", "-c", TICKS]), LABEL, ticks)
        program, now = stack.enter_context(command), g
        for number, method in enumerate(Xen.moves_by):
            moved = stack.enter_context(moved_to(str(number), parts, now, method))
            assert isinstance(moved.instance, XenInstance)
            now = moved.instance
            assert [d.name for d in xl.domains() if d.name.startswith(LABEL)] == [f"{g.label}-{number}"]
            assert 0 < moved.stopped <= moved.total and moved.sent >= 128 * MIB
            # Its disk, its memory, the command in it and the line to it are there.
            assert out(now, "cat", "/var/tmp/kept") == "4711" and program.poll() is None
            out_until(ticks, ticks.read_text().count("tick") + 2)
        for method, error in ((Method.STREAM, RunError), (Method.PRECOPY, NotConvergedError)):
            with (
                pytest.raises(error, match=r"continues at its source: .*was not done after"),
                moved_to("late", parts, now, method, time_limit=1.0),
            ):
                pass
            assert [d.name for d in xl.domains() if d.name.startswith(LABEL)] == [now.domain.name]
            out_until(ticks, ticks.read_text().count("tick") + 2)
        assert program.poll() is None
    assert not [d for d in xl.domains() if d.name.startswith(LABEL)] and find(LABEL) == ()
    assert not [f for f in dom0.do("ls", "/var/tmp").split() if f.startswith(LABEL)]


@pytest.mark.apart
@pytest.mark.parametrize("method", [Method.OFFLINE, Method.PRECOPY])
def test_where_a_guest_runs_is_said_after_the_connection_to_dom0_was_lost(
    dom0: Outer, parts: Parts, tmp_path: Path, method: Method
) -> None:
    xl = Xl(dom0.ssh)

    def ours() -> list[str]:
        return [d.name for d in xl.domains() if d.name.startswith(LABEL)]

    with guest(dom0, parts, tmp_path, type=XenType.PVH) as g:
        Thread(target=end_connection_in_a_move, args=[dom0, g.label], daemon=True).start()
        with (
            pytest.raises(RunError, match=r"the connection to \S+ was lost") as caught,
            moved_to("cut", parts, g, method),
        ):
            pass
        goes_on = "it continues at its source" in caught.value.what
        assert goes_on or "it is lost" in caught.value.what
        assert ours() == ([g.domain.name] if goes_on else [])
        time.sleep(30)  # what xl would still do
        assert ours() == ([g.domain.name] if goes_on else [])
    assert not ours() and find(LABEL) == ()


def end_connection_in_a_move(dom0: Outer, label: str) -> None:
    """End the connection to its dom0 that all commands for an instance share, once the instance moves. An
    emulated guest is moved for longer than a second."""

    def moving() -> bool:
        lines = (command_line(p) for p in Path("/proc").iterdir() if p.name.isdigit())
        return any(line.startswith(f"ssh -F {dom0.way.config}") and MOVING.search(line) for line in lines)

    until(moving, "xl moves the guest")
    time.sleep(1)
    for pid in processes.labelled(lambda other: other == label):
        if "-M" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
            os.kill(pid, signal.SIGKILL)


def command_line(process: Path) -> str:
    """The command line of a process; '' if it has ended."""
    try:
        return (process / "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def test_guest_that_cannot_start_says_why_and_leaves_nothing(
    dom0: Outer, parts: Parts, tmp_path: Path
) -> None:
    refused: list[tuple[dict[str, object], str]] = [
        ({"type": XenType.PV, "scheduler": XenScheduler.CREDIT}, "runs the scheduler credit2"),
        ({"type": XenType.PV, "disk": XenDisk(path="/nowhere")}, "no file /nowhere"),
        (
            {"type": XenType.PV, "settings": GuestSettings(memory=64 << 30)},
            "MiB that no domain has",
        ),
    ]
    for number, (how, what) in enumerate(refused):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        more = {"settings": GuestSettings(memory=128 * MIB, writable=32 * MIB), **how}
        with (
            pytest.raises((UnavailableError, RunError), match=what),
            guest(dom0, parts, scratch, **more),  # type: ignore[arg-type]
        ):
            pass
    assert not [d for d in Xl(dom0.ssh).domains() if d.name.startswith("nearmetal-")]
    assert find(LABEL) == ()


def test_no_xl_here_is_said(parts: Parts) -> None:
    """This machine is no dom0, and does not pretend to be."""
    answer = Xen().check(HOST, parts.tools)
    assert isinstance(answer, Unavailable) and "no xl" in answer.reason and answer.remedy
