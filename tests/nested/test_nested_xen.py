"""Guests of a real Xen, on a dom0 that is emulated, reached by ssh: every step that the backend has. For
function alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.nested.machine import Outer, outer_machine
from tests.nested.parts import Parts

from nearmetal.environments import InstanceRequest, Unavailable
from nearmetal.environments.xen.backend import Xen, XenInstance
from nearmetal.environments.xen.kept import kept_names, remove_named
from nearmetal.environments.xen.settings import Dom0, XenDisk, XenScheduler, XenSettings, XenType
from nearmetal.environments.xen.xl import Xl
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import LocalHost
from nearmetal.host.leftovers import find
from nearmetal.model.environments.guest import MIB, GuestSettings
from nearmetal.model.study import Attachment, Environment

pytestmark = pytest.mark.more

HOST = LocalHost()
LABEL = f"nearmetal-test{os.getpid()}xen"


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


def test_a_pv_guest_is_pinned_weighed_counted_saved_and_restored(
    dom0: Outer, parts: Parts, tmp_path: Path
) -> None:
    settings = GuestSettings(memory=128 * MIB, boot_timeout=1800, writable=64 * MIB, swap=32 * MIB)
    xl, saved = Xl(dom0.ssh), "/var/tmp/saved"
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
        (source,) = [s for s in g.sources if s.name == "xen.nmguest"]
        counted = source.read()
        assert (counted["disk_reads"] or 0) >= before["disk_reads"] and "memory_bytes" not in counted
        uptime = float(out(g, "cat", "/proc/uptime").split()[0])
        dom0.do("xl", "save", g.label, saved, timeout=300)
        assert xl.find(g.label) is None
        dom0.do("xl", "restore", saved, timeout=300)
        # The same guest, over the same line.
        assert float(out(g, "cat", "/proc/uptime").split()[0]) >= uptime
        label = g.label
        # As after a kill -9: found by its name on the dom0 that was noted, and all of it removed.
        assert label in kept_names(HOST)
        remove_named(HOST, label)
        assert xl.find(label) is None and label not in kept_names(HOST)
        assert "has ended" in g.trouble() or not HOST.run(g.command(["true"]), timeout=600).ok
    assert xl.find(label) is None
    assert label not in kept_names(HOST) and find(label) == ()
    assert not [f for f in dom0.do("ls", "/var/tmp").split() if f.startswith(LABEL)]


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
