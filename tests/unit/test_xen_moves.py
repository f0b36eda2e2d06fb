"""Moves of guests of Xen without a hypervisor: which commands make them, and what becomes of a guest whose
move fails."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread, main_thread
from typing import Any, NoReturn

import pytest

from nearmetal.environments import InstanceRequest, Migrates, MoveBarrier, Moved, MoveRequest, Seat, Tools
from nearmetal.environments.external.contract import Target, Work
from nearmetal.environments.external.xen_domains import XenDomain
from nearmetal.environments.registry import get_backend
from nearmetal.environments.xen import leftovers as xen_leftovers
from nearmetal.environments.xen import migrate as xen_migrate
from nearmetal.environments.xen.backend import Xen
from nearmetal.environments.xen.config import DomainConfig, Interface
from nearmetal.environments.xen.dom0 import Dom0Access, LeftoverNote
from nearmetal.environments.xen.guest import XenInstance
from nearmetal.environments.xen.migrate import METHODS, migrated
from nearmetal.environments.xen.settings import XenDisk, XenSettings, XenType
from nearmetal.environments.xen.xl import Xl
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host import LocalHost, Process
from nearmetal.host.guest_line import Clocks
from nearmetal.lifecycle import Method, NotConvergedError, Phase
from nearmetal.model.environments.guest import MIB
from nearmetal.model.scope import Scope
from nearmetal.model.study import Attachment, Environment
from nearmetal.subjects.migrate import Migrate
from nearmetal.testing.fake_host import FakeProcess

FAKE = Path(__file__).with_name("fake_xl.sh")
# Not the form of a run's label: a run that starts beside these tests must not end their processes.
HERE, THERE = "nearmetal-xenmoves-0-a", "nearmetal-xenmoves-0-b"
RUNS = "-b----"
TOOLS = Tools(directory=Path("/tools"))
CLOCKS = Clocks(monotonic=7, realtime=0, error=1)


def seat(number: int) -> Seat:
    return Seat(
        netns=f"/run/netns/nm-{number}", address=f"10.99.0.{number}", interface="eth0", port=f"p{number}"
    )


class Dom0(LocalHost):
    """This machine with the xl of the test in front of all others."""

    def is_root(self) -> bool:
        return True

    def which(self, program: str) -> str | None:
        return None if program == "lvs" else shutil.which(program)


class Far(Dom0):
    """A dom0 whose connection is lost while a program runs there. New connections can be made."""

    name = "far"

    def connected(self) -> bool:
        return False

    def start(self, argv: Sequence[str], **more: Any) -> Process:
        return super().start(["sh", "-c", 'setsid "$@" & sleep 0.1; exit 255', "sh", *argv], **more)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A dom0 with nothing but files.

    domains: one for each domain.
    """

    directory: Path
    domains: Path

    def states(self) -> dict[str, str]:
        return {file.name: file.read_text().strip() for file in self.domains.iterdir()}

    def guest(self, name: str = HERE, kind: XenType = XenType.PVH, host: Dom0 | None = None) -> XenInstance:
        """A guest that runs on a dom0, this machine if it is None."""
        host = host or Dom0()
        (self.domains / name).write_text(RUNS)
        environment = Environment(
            name="vm",
            backend="xen",
            image="small",
            attachment=Attachment.VETH_BRIDGE,
            placements=(),
            own=XenSettings(type=kind, disk=XenDisk(path=str(self.directory / "disks"))),
        )
        return XenInstance(
            label=name,
            hostname="vm",
            pid=1,
            phases={},
            cgroups={},
            enter=(),
            host=Dom0(),
            tools=TOOLS,
            socket=self.directory / "agent",
            scratch=self.directory,
            process=FakeProcess(()),
            ahead=CLOCKS,
            xl=Xl(host),
            at=Dom0Access(
                host=host,
                ssh=host if isinstance(host, Far) else None,  # type: ignore[arg-type]  # what a move asks of it
                directory=str(self.directory / "at"),
            ),
            domain=DomainConfig(
                name=name,
                type=kind,
                kernel="/k",
                ramdisk="/i",
                command_line="nm.key=secret",
                memory=128 * MIB,
                vcpus=1,
                interfaces=(
                    Interface(mac="02:00:00:00:00:01", bridge="seat:nm-1:nmbridge", script="/vif"),
                    Interface(mac="00:16:3e:00:00:01", bridge="line:169.254.1.1/30", script="/vif"),
                ),
            ),
            request=_request(name, environment, seat(1)),
        )

    def left(self) -> list[str]:
        """Files on dom0 of moves that have ended."""
        return sorted(p.name for part in ("at", "disks") for p in (self.directory / part).iterdir())


def _request(name: str, environment: Environment, where: Seat) -> InstanceRequest:
    return InstanceRequest(
        label=name, hostname="vm", environment=environment, cpus=(0,), seat=where, scratch=Path("/s")
    )


def moving(guest: XenInstance, method: Method, name: str = THERE, **more: object) -> MoveRequest:
    there = _request(name, guest.request.environment, seat(2))
    return MoveRequest(method=method, destination=there, **more)  # type: ignore[arg-type]  # fields of a case


class Line:
    """The line to an agent that answers."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None: ...

    def clocks(self, *, tries: int = 5, timeout: float = 60.0) -> Clocks:
        return replace(CLOCKS, error=tries)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in ("bin", "domains", "at", "disks", "run"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "xl").symlink_to(FAKE)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XL_DOMAINS", str(tmp_path / "domains"))
    monkeypatch.setattr("nearmetal.host.runtime.runtime_directory", lambda: tmp_path / "run")
    monkeypatch.setattr(xen_migrate, "taken_place", lambda *_: None)
    monkeypatch.setattr(xen_migrate, "console_read", lambda *_: nullcontext())
    monkeypatch.setattr(xen_migrate, "GuestLine", Line)
    monkeypatch.setattr("nearmetal.environments.guests.guest.answers", lambda _: True)
    return Place(directory=tmp_path, domains=tmp_path / "domains")


@pytest.mark.parametrize("method", METHODS)
def test_a_guest_goes_on_under_the_name_and_at_the_seat_of_its_destination(
    place: Place, method: Method
) -> None:
    guest = place.guest()
    with migrated(Dom0(), TOOLS, guest, moving(guest, method)) as moved:
        assert place.states() == {THERE: RUNS}
        now = moved.instance
        assert isinstance(now, XenInstance)
        assert (now.label, now.domain.name, now.request.label) == (HERE, THERE, THERE)
        stream = (place.directory / "stream").read_bytes().decode(errors="replace")
        assert f'name = "{THERE}"\n' in stream and "bridge=seat:nm-2:nmbridge" in stream
        assert "mac=02:00:00:00:00:01" in stream and "bridge=line:169.254.1.1/30" in stream
        assert moved.total > 0 and 0 <= moved.stopped <= moved.total and moved.downtime is None
        assert moved.sent == (place.directory / "stream").stat().st_size > 0
        if method is Method.OFFLINE:
            mode = (place.directory / "mode").read_text().strip()
            assert mode == "600", "the file has the memory of the guest"
        did = [call.partition(" ")[0] for call in (place.directory / "calls").read_text().splitlines()]
        if method is not Method.PRECOPY:
            assert did.index("vcpu-pin") < did.index("unpause"), "it never runs on other CPUs"
        frozen = {Phase.FREEZE} if method is not Method.PRECOPY else set()
        assert set(moved.phases.seconds) >= {Phase.CONNECT, Phase.COPY, Phase.RESTORE, Phase.REMOVAL} | frozen
        assert Scope(kind="xen", name="vm") in [s.scope for s in now.sources]
        back = moving(now, Method.OFFLINE, f"{HERE}-again")
        with migrated(Dom0(), TOOLS, now, back) as again:
            assert place.states() == {f"{HERE}-again": RUNS} and again.instance.label == HERE
    assert place.states() == {} and place.left() == []


@pytest.mark.parametrize(
    ("method", "fault", "why"),
    [
        (Method.OFFLINE, "suspend", "guest did not suspend"),
        (Method.OFFLINE, "restore", "unable to add vif devices"),
        (Method.STREAM, "suspend", "guest did not suspend"),
        (Method.STREAM, "restore", "unable to add vif devices"),
        (Method.PRECOPY, "logdirty", "Failed to enable logdirty"),
        (Method.PRECOPY, "receive", "unable to add vif devices"),
    ],
)
def test_guest_whose_move_fails_continues_at_its_source(
    place: Place, monkeypatch: pytest.MonkeyPatch, method: Method, fault: str, why: str
) -> None:
    guest = place.guest()
    monkeypatch.setenv("XL_FAULT", fault)
    with (
        pytest.raises(RunError, match=f"not moved by {method}, it continues at its source: .*{why}"),
        migrated(Dom0(), TOOLS, guest, moving(guest, method)),
    ):
        pass
    assert place.states() == {HERE: RUNS} and place.left() == []


@pytest.mark.parametrize(
    ("method", "fault"),
    [(Method.OFFLINE, "unpause"), (Method.STREAM, "unpause"), (Method.PRECOPY, "handshake")],
)
def test_a_guest_that_may_have_run_at_its_destination_never_goes_on_at_its_source(
    place: Place, monkeypatch: pytest.MonkeyPatch, method: Method, fault: str
) -> None:
    guest = place.guest()
    monkeypatch.setenv("XL_FAULT", fault)
    monkeypatch.setenv("XL_SOURCE", HERE)
    with (
        pytest.raises(RunError, match="it is lost: it had left its source"),
        migrated(Dom0(), TOOLS, guest, moving(guest, method)),
    ):
        pass
    assert place.states() == {} and place.left() == []


@pytest.mark.parametrize("method", [Method.STREAM, Method.PRECOPY])
def test_a_move_is_given_up_at_its_time_limit(
    place: Place, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    guest = place.guest()
    monkeypatch.setenv("XL_FAULT", "slow")
    raised = NotConvergedError if method is Method.PRECOPY else RunError
    with (
        pytest.raises(raised, match=r"it continues at its source: .* was not done after 1 s") as caught,
        migrated(Dom0(), TOOLS, guest, moving(guest, method, time_limit=1.0)),
    ):
        pass
    assert place.states() == {HERE: RUNS} and caught.value.remedy


@pytest.mark.parametrize("method", METHODS)
def test_lost_connection_to_dom0_ends_the_move_and_reports_the_fate_of_the_guest(
    place: Place, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    guest = place.guest(host=Far())
    monkeypatch.setenv("XL_FAULT", "late")
    with (
        pytest.raises(RunError, match=f"not moved by {method}, it ") as caught,
        migrated(Dom0(), TOOLS, guest, moving(guest, method)),
    ):
        pass
    assert "the connection to far was lost" in caught.value.what
    goes_on = "it continues at its source" in caught.value.what
    assert goes_on or "it is lost" in caught.value.what
    states = place.states()
    time.sleep(1.0)  # all that xl would still do
    assert place.states() == states == ({HERE: RUNS} if goes_on else {}) and place.left() == []


@pytest.mark.parametrize("fails", [False, True])
def test_the_guests_of_a_job_are_saved_and_go_on_together(place: Place, fails: bool) -> None:
    """One of them is not even begun where it fails: the other must not wait for ever, suspended."""
    guests, together = [place.guest(f"{HERE}{n}") for n in range(2)], MoveBarrier(2)
    moved: list[Moved] = []
    errors: list[str] = []

    def move(number: int) -> None:
        try:
            if fails and number == 1:
                together.fail("its node is gone")
                return
            request = moving(guests[number], Method.OFFLINE, f"{THERE}{number}", together=together)
            with migrated(Dom0(), TOOLS, guests[number], request) as done:
                moved.append(done)
        except RunError as e:
            errors.append(e.what)

    threads = [Thread(target=move, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    calls = (place.directory / "calls").read_text().splitlines()
    if fails:
        assert len(errors) == 1 and "continues at its source" in errors[0] and "its node is gone" in errors[0]
        assert place.states() == {f"{HERE}0": RUNS, f"{HERE}1": RUNS} and not moved
        assert not any(call.startswith("restore") for call in calls)
    else:
        assert len(moved) == 2 and not errors and place.states() == {}
        order = [call.split()[0] for call in calls if call.split()[0] in ("save", "restore", "unpause")]
        assert order == ["save", "save", "restore", "restore", "unpause", "unpause"]
    assert place.left() == []


def test_what_xen_does_not_move_is_refused_with_a_remedy(place: Place) -> None:
    guest, backend = place.guest(), get_backend("xen")
    assert isinstance(backend, Migrates) and backend.moves_by == METHODS
    environment = guest.request.environment
    assert all(backend.unmovable(environment, method) is None for method in METHODS)
    paravirtual = replace(environment, own=XenSettings(type=XenType.PV))
    apart = replace(environment, attachment=Attachment.MACVLAN)
    for asked, method, why in (
        (paravirtual, Method.PRECOPY, "does not log the pages"),
        (environment, Method.POSTCOPY, "xl has no method postcopy"),
        (apart, Method.OFFLINE, "does not find a guest"),
    ):
        refused = backend.unmovable(asked, method)
        assert refused is not None and why in refused.reason and refused.remedy
    assert backend.unmovable(paravirtual, Method.STREAM) is None
    assert Migrate.methods(get_backend("xen"))[0] is Method.PRECOPY
    with (
        pytest.raises(UnavailableError, match="does not limit the bandwidth"),
        migrated(Dom0(), TOOLS, guest, moving(guest, Method.STREAM, bandwidth=1e6)),
    ):
        pass


def test_a_guest_needs_its_memory_twice(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = place.guest()
    monkeypatch.setenv("XL_FREE", "100")
    with (
        pytest.raises(UnavailableError, match="it has 128 MiB, the hypervisor has 100 MiB"),
        migrated(Dom0(), TOOLS, guest, moving(guest, Method.OFFLINE)),
    ):
        pass
    assert place.states() == {HERE: RUNS}


def test_domains_that_a_killed_run_was_moving_are_found_and_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xen_leftovers, "FILES", str(place.directory / "disks"))
    monkeypatch.setattr(xen_leftovers, "THERE", str(place.directory / "at"))
    for name in (f"{THERE}--incoming", f"{HERE}--migratedaway", "someone"):
        (place.domains / name).write_text("--p---")
    (place.directory / "disks" / f"{THERE}-saved").write_text("memory")
    here = LeftoverNote(dom0=None, disks=str(place.directory / "disks"))
    monkeypatch.setattr(xen_leftovers, "_places", lambda _: (here,))
    monkeypatch.setattr(xen_leftovers, "visited", lambda *_: nullcontext(Dom0()))
    assert Xen().instance_names(Dom0()) == (HERE, THERE)
    for name in (HERE, THERE):
        Xen().remove_instance(Dom0(), name)
    assert place.states() == {"someone": "--p---"} and place.left() == []
    assert Xen().instance_names(Dom0()) == ()


@pytest.fixture
def other(place: Place, monkeypatch: pytest.MonkeyPatch) -> Work:
    """A host that an ssh of the test reaches, for a domain of the user's own."""
    ssh = place.directory / "bin" / "ssh"
    ssh.write_text('#!/bin/sh\n[ "${XL_FAULT:-}" != slow ] || exec sleep 30\nexec cat >/dev/null\n')
    ssh.chmod(0o755)
    (place.domains / "own").write_text(RUNS)

    def no_criu(_: object) -> NoReturn:
        raise AssertionError

    return Work(criu=no_criu, time_limit=0.5)


OWN = XenDomain(domain="own")
NODE = Target.parse("node7")


def test_a_domain_of_the_users_own_is_saved_restored_and_moved(place: Place, other: Work) -> None:
    OWN.checkpoint(Dom0(), replace(other, keep_running=True), place.directory, Method.OFFLINE)
    assert place.states() == {"own": RUNS}
    file = place.directory / "guest.state"
    assert file.stat().st_size > 0 and file.stat().st_mode & 0o777 == 0o600
    assert OWN.migrate(Dom0(), other, NODE, Method.STREAM).now == "xl:own at node7"
    assert place.states() == {}


def test_a_file_of_a_domain_has_its_name_only_when_xl_has_ended_well(place: Place, other: Work) -> None:
    xl = place.directory / "bin" / "xl"
    real = xl.resolve()
    xl.unlink()
    xl.write_text(f'#!/bin/sh\n{real} "$@" || exit\n[ "$1" != save ] || exit 1\n')
    xl.chmod(0o755)
    with pytest.raises(RunError, match="was not saved"):
        OWN.checkpoint(Dom0(), replace(other, time_limit=60.0), place.directory, Method.OFFLINE)
    assert (place.directory / ".guest.state").stat().st_size > 0
    assert not (place.directory / "guest.state").exists()


@pytest.mark.parametrize(
    ("fault", "why"), [("slow", "the time limit of 0.5 s is over"), ("suspend", "guest did not suspend")]
)
def test_domain_continues_if_it_is_not_saved_or_moved(
    place: Place, other: Work, monkeypatch: pytest.MonkeyPatch, fault: str, why: str
) -> None:
    monkeypatch.setenv("XL_FAULT", fault)
    if fault == "slow":
        with pytest.raises(RunError, match=f"was not moved, it continues: {why}"):
            OWN.migrate(Dom0(), other, NODE, Method.STREAM)
    else:
        with pytest.raises(RunError, match=f"was not saved, it continues: .*{why}"):
            OWN.checkpoint(Dom0(), other, place.directory, Method.OFFLINE)
    assert place.states() == {"own": RUNS}


def test_a_domain_that_has_left_is_not_said_to_continue(
    place: Place, other: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XL_FAULT", "handshake")
    with pytest.raises(RunError, match="was not moved, it does not run here: it has left") as caught:
        OWN.migrate(Dom0(), other, NODE, Method.STREAM)
    assert caught.value.remedy == "find out whether it runs at node7"


def test_ctrl_c_lets_a_domain_go_on(place: Place, other: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """xl is not killed, which would leave the domain suspended."""
    monkeypatch.setenv("XL_FAULT", "slow")

    def interrupt() -> None:
        while "s" not in (place.domains / "own").read_text():
            time.sleep(0.005)
        signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)

    Thread(target=interrupt).start()
    with pytest.raises(RunError, match="was not moved, it continues: interrupted"):
        OWN.migrate(Dom0(), replace(other, time_limit=600.0), NODE, Method.STREAM)
    assert place.states() == {"own": RUNS}
