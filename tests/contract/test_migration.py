"""Guests of QEMU that are moved to a second QEMU at another address of the network, and back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.contract import guests
from tests.contract.guests import HOST, NEEDED, QEMU, SMALL, request
from tests.patience import until
from tests.qemu_moments import SLOW, Moment, at, cut

from nearmetal.environments import InstanceRequest, Migrates, Moved, MoveRequest, Tools
from nearmetal.environments.qemu import qmp
from nearmetal.environments.qemu.guest import QemuGuest
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host.leftovers import find, remove
from nearmetal.host.processes import labelled as processes
from nearmetal.host.runtime import scratch_directory
from nearmetal.images import builtin_definition
from nearmetal.images.build import build
from nearmetal.images.forms import Form, in_form
from nearmetal.lifecycle import Method, NotConvergedError, evaluate, read_probe_log
from nearmetal.model.environments.guest import DiskFormat, MachineType
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Attachment, Environment
from nearmetal.network.build import Network, build_networks
from nearmetal.network.plan import NetworkRequest
from nearmetal.node.bases import KERNEL_IMAGE
from nearmetal.node.machine import image_store

pytestmark = [pytest.mark.beside, *NEEDED]
LABEL = f"nearmetal-check-{os.getpid()}-mv"
LIMIT = 600.0


@dataclass(frozen=True)
class Place:
    """Where the tests have their guests: a request for a seat of the network by number, and the network."""

    base: InstanceRequest
    network: Network
    directory: Path

    def request(self, name: str, seat: int) -> InstanceRequest:
        scratch = self.directory / f"{name}-{time.monotonic_ns()}"
        scratch.mkdir()
        return replace(
            self.base,
            label=f"{LABEL}-{name}",
            hostname="nmmv",
            seat=self.network.seats[seat],
            scratch=scratch,
        )


@pytest.fixture(scope="module")
def place(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with a_place(tools, tmp_path_factory.mktemp("moved")) as made:
        yield made


@contextmanager
def a_place(tools: Tools, directory: Path) -> Iterator[Place]:
    definition = builtin_definition(KERNEL_IMAGE)
    assert definition is not None
    image = build(HOST, image_store(), definition, progress=lambda _: None)
    root = in_form(HOST, image, Form.EROFS, progress=lambda _: None)
    asked = request("mv", guests.base(tools, directory, root), directory)
    environment = replace(asked.environment, attachment=Attachment.VETH_BRIDGE, image=KERNEL_IMAGE)
    want = NetworkRequest(attachment=Attachment.VETH_BRIDGE, settings=NetworkSettings(), instances=2)
    with build_networks(LABEL, [want], directory) as (network,):
        yield Place(replace(asked, environment=environment), network, directory)


@contextmanager
def started(tools: Tools, place: Place, name: str) -> Iterator[QemuGuest]:
    with scratch_directory(f"{LABEL}-{name}-run"), QEMU.start(HOST, tools, place.request(name, 0)) as guest:
        assert isinstance(guest, QemuGuest)
        yield guest


def moving(
    tools: Tools, place: Place, guest: QemuGuest, method: Method, seat: int, *, name: str, **more: float
) -> contextlib.AbstractContextManager[Moved]:
    asked = MoveRequest(
        method=method,
        destination=place.request(name, seat),
        bandwidth=more.get("bandwidth"),
        time_limit=more.get("time_limit", LIMIT),
    )
    return QEMU.migrate(HOST, tools, guest, asked)


@contextmanager
def dirtying(guest: QemuGuest, tools: Tools, size: int, rate: int) -> Iterator[subprocess.Popen[str]]:
    """A program in the guest that checks its memory, and tells how far it is."""
    words = [tools / "nm-probe", "dirty", "--bytes", str(size), "--rate", str(rate)]
    process = subprocess.Popen(guest.command(words), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert "dirtying" in json.loads(process.stdout.readline())
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ended_well(process: subprocess.Popen[str]) -> list[dict[str, int]]:
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    told = [json.loads(line) for line in process.stdout]
    assert process.wait(LIMIT) == 0 and told[-1]["wrong"] == 0
    return told


def answers(tools: Tools, place: Place) -> bool:
    """Whether the guest's probe answers at the address that it has always had."""
    words = ["ask", "--address", place.network.seats[0].address, "--port", "7007", "--time", "200000000"]
    words += ["--period", "20000000", "--linger", "2000000000", "--out", str(place.directory / "log")]
    done = subprocess.run(place.network.hub_command([tools / "nm-probe", *words]), capture_output=True)
    log = read_probe_log((place.directory / "log").read_text()) if done.returncode == 0 else None
    seen = None if log is None else evaluate(log.udp, 20e-3)
    assert seen is None or seen.doubled == 0, "two copies answer"
    return seen is not None and seen.lost < seen.requests


def test_guest_moves_by_every_method_and_continues(tools: Tools, place: Place) -> None:
    """One guest, from seat to seat, by each method in turn: its program has never a wrong page, and its
    output comes whole through the same line."""
    assert isinstance(QEMU, Migrates)
    with started(tools, place, "all") as guest, ExitStack() as stack:
        program = stack.enter_context(dirtying(guest, tools, 16 << 20, 32 << 20))
        responder = guest.command([tools / "nm-probe", "answer", "--port", "7007"])
        answering = subprocess.Popen(responder, stdout=subprocess.DEVNULL)
        stack.callback(answering.wait)
        stack.callback(answering.kill)
        boot = HOST.run(guest.command(["cat", "/proc/sys/kernel/random/boot_id"]), timeout=LIMIT).stdout
        now, seat = guest, 1
        for method in QEMU.moves_by:
            moved = stack.enter_context(moving(tools, place, now, method, seat, name=f"all{seat}{method}"))
            assert now.process.poll() is not None, "the source has ended"
            assert isinstance(moved.instance, QemuGuest)
            now, seat = moved.instance, 1 - seat
            assert now.label == guest.label and now.pid != guest.pid and now.process.poll() is None
            assert (
                HOST.run(now.command(["cat", "/proc/sys/kernel/random/boot_id"]), timeout=LIMIT).stdout
                == boot
            )
            assert moved.sent > 1 << 20 and moved.rounds >= 1 and moved.stopped > 0
            assert sum(moved.phases.seconds.values()) > 0 and moved.total > moved.stopped
            clocks = now.clocks()
            known_to = clocks.error + now.ahead.error + 5e7
            assert clocks.monotonic == pytest.approx(now.ahead.monotonic, abs=known_to)
            assert (now.sources[0].read()["vcpu"] or 0) > 0, "its counters are those of the second QEMU"
            until(lambda: answers(tools, place), "an answer at its old address")
        assert answering.poll() is None
        told = ended_well(program)
    numbers = [t["written"] for t in told if "written" in t]
    assert numbers == sorted(numbers) and told[-1]["pages"] >= numbers[-1]


def test_many_commands_survive_a_move(tools: Tools, place: Place) -> None:
    """No frame of the line is lost or doubled, in either direction, while commands run and come."""
    with started(tools, place, "many") as guest, ExitStack() as stack:
        script = "while read -r line; do echo $line; done"
        process = subprocess.Popen(
            guest.command(["sh", "-c", script]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None and process.stdout is not None
        heard: list[str] = []
        reader = threading.Thread(target=lambda: heard.extend(process.stdout or ()))
        reader.start()
        end = threading.Event()
        sent = 0

        def write() -> None:
            nonlocal sent
            assert process.stdin is not None
            while not end.is_set():
                process.stdin.write(f"line {sent}\n")
                process.stdin.flush()
                sent += 1
                time.sleep(0.001)

        writer = threading.Thread(target=write)
        writer.start()
        stack.enter_context(moving(tools, place, guest, Method.PRECOPY, 1, name="many1"))
        end.set()
        writer.join()
        process.stdin.close()
        reader.join(LIMIT)
        assert process.wait(LIMIT) == 0
        process.stdout.close()
        assert heard == [f"line {i}\n" for i in range(sent)] and sent > 10


def _signal(label: str, number: signal.Signals) -> None:
    """Send a signal to the QEMU with a label, and wait until a killed one has ended."""
    found = _qemu_of(label)
    assert found is not None
    os.kill(found, number)
    until(lambda: number is not signal.SIGKILL or _qemu_of(label) is None, "the end of QEMU")


def _qemu_of(label: str) -> int | None:
    for pid in processes.labelled(lambda other: other == label):
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            if Path(f"/proc/{pid}/comm").read_text().startswith("qemu"):
                return pid
    return None


COPYING = [Method.PRECOPY, Method.OFFLINE, pytest.param(Method.MULTIFD, marks=pytest.mark.apart)]
SWITCHING = pytest.param(Method.POSTCOPY, marks=pytest.mark.apart)


def _moment(method: Method) -> Moment:
    """Return a moment at which the guest can still go on at its source."""
    return Moment.SWITCH if method is Method.POSTCOPY else Moment.COPY


@pytest.mark.parametrize("method", [*COPYING, SWITCHING])
def test_source_continues_when_its_destination_is_killed(tools: Tools, place: Place, method: Method) -> None:
    with started(tools, place, "kill") as guest, dirtying(guest, tools, 64 << 20, 0) as program:
        name = f"kill{method}"
        with (
            at(_moment(method), lambda: _signal(f"{LABEL}-{name}", signal.SIGKILL)) as reached,
            pytest.raises(RunError, match="it continues at its source"),
            moving(tools, place, guest, method, 1, name=name, bandwidth=SLOW),
        ):
            pass
        assert reached and guest.process.poll() is None and guest.trouble() == ""
        assert HOST.run(guest.command(["echo", "here"]), timeout=LIMIT).stdout == "here\n"
        ended_well(program)
        with moving(tools, place, guest, Method.PRECOPY, 1, name=f"{name}again") as moved:
            assert HOST.run(moved.instance.command(["echo", "there"]), timeout=LIMIT).stdout == "there\n"


@pytest.mark.apart
@pytest.mark.parametrize("method", [Method.PRECOPY, Method.OFFLINE, Method.MULTIFD, Method.POSTCOPY])
def test_source_continues_when_its_link_is_cut(tools: Tools, place: Place, method: Method) -> None:
    name = f"cut{method}"
    with started(tools, place, "cut") as guest, dirtying(guest, tools, 64 << 20, 0) as program:
        with (
            at(_moment(method), lambda: cut(_qemu_of(f"{LABEL}-{name}") or 0)) as reached,
            pytest.raises(RunError, match="it continues at its source"),
            moving(tools, place, guest, method, 1, name=name, bandwidth=SLOW),
        ):
            pass
        assert reached and HOST.run(guest.command(["echo", "here"]), timeout=LIMIT).stdout == "here\n"
        ended_well(program)


@pytest.mark.apart
@pytest.mark.parametrize("fault", ["kill", "hang", "cut"])
def test_a_guest_is_lost_whose_destination_fails_while_it_fetches_its_memory(
    tools: Tools, place: Place, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qmp, "QMP_SECONDS", 10.0)
    name = f"lost{fault}"
    label = f"{LABEL}-{name}"
    faults = {
        "kill": lambda: _signal(label, signal.SIGKILL),
        "hang": lambda: _signal(label, signal.SIGSTOP),
        "cut": lambda: cut(_qemu_of(label) or 0),
    }
    with started(tools, place, "lost") as guest, dirtying(guest, tools, 64 << 20, 0):
        with (
            at(Moment.FETCH, faults[fault]) as reached,
            pytest.raises(RunError, match="it is lost: it had left its source, and its destination ended"),
            moving(tools, place, guest, Method.POSTCOPY, 1, name=name, bandwidth=SLOW),
        ):
            pass
        assert reached and _qemu_of(label) is None, "half a guest does not go on"
        with qmp.Monitor(guest.plan.sockets.qmp) as source:
            assert not source.ask("query-status")["running"], "the older guest does not go on either"
    assert find(label) == () and find(f"{LABEL}-lost") == ()


def test_a_guest_that_has_ended_is_not_moved_and_that_is_said(tools: Tools, place: Place) -> None:
    with started(tools, place, "ended") as guest:
        guest.process.kill()
        with (
            pytest.raises(RunError, match="guest nmmv has ended"),
            moving(tools, place, guest, Method.PRECOPY, 1, name="ended1"),
        ):
            pass


@pytest.mark.apart
@pytest.mark.parametrize("method", [Method.PRECOPY, Method.MULTIFD, Method.OFFLINE])
def test_source_continues_when_its_destination_hangs(
    tools: Tools, place: Place, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its monitor answers no more, and its connection takes no more memory."""
    monkeypatch.setattr(qmp, "QMP_SECONDS", 10.0)
    name = f"hang{method}"
    with started(tools, place, "hang") as guest, dirtying(guest, tools, 64 << 20, 0) as program:
        with (
            at(Moment.COPY, lambda: _signal(f"{LABEL}-{name}", signal.SIGSTOP)) as reached,
            pytest.raises(RunError, match=r"it continues at its source: .* within 10 s"),
            moving(tools, place, guest, method, 1, name=name, bandwidth=SLOW),
        ):
            pass
        assert reached and HOST.run(guest.command(["echo", "here"]), timeout=LIMIT).stdout == "here\n"
        ended_well(program)


@pytest.mark.apart
@pytest.mark.parametrize(
    ("method", "moment"),
    [
        (Method.PRECOPY, Moment.COPY),
        (Method.OFFLINE, Moment.COPY),
        (Method.MULTIFD, Moment.COPY),
        (Method.POSTCOPY, Moment.SWITCH),
        (Method.POSTCOPY, Moment.FETCH),
    ],
)
def test_end_of_the_source_during_a_move_is_reported(
    tools: Tools, place: Place, method: Method, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qmp, "QMP_SECONDS", 10.0)
    name = f"dead{method}{moment}"
    with started(tools, place, "dead") as guest, dirtying(guest, tools, 64 << 20, 0):
        with (
            at(moment, guest.process.kill) as reached,
            pytest.raises(RunError, match=r"it is lost: the guest has ended"),
            moving(tools, place, guest, method, 1, name=name, bandwidth=SLOW),
        ):
            pass
        assert reached and _qemu_of(f"{LABEL}-{name}") is None


def test_what_does_not_converge_is_given_up(tools: Tools, place: Place) -> None:
    with started(tools, place, "slow") as guest, dirtying(guest, tools, 64 << 20, 0) as program:
        with (
            pytest.raises(NotConvergedError, match="it continues at its source: the move by precopy") as e,
            moving(tools, place, guest, Method.PRECOPY, 1, name="slow1", bandwidth=8 << 20, time_limit=5.0),
        ):
            pass
        assert e.value.copied, "how far it came"
        ended_well(program)


def test_what_cannot_be_moved_is_refused_with_a_remedy() -> None:
    good = Environment(
        name="e", backend="qemu", image=KERNEL_IMAGE, attachment=Attachment.VETH_BRIDGE, guest=SMALL
    )
    assert all(QEMU.unmovable(good, m) is None for m in QEMU.moves_by)
    refused = {
        "virtiofs": replace(good, image="host"),
        "passed through": replace(good, guest=replace(SMALL, vfio="0000:01:10.0")),
        "microvm": replace(good, guest=replace(SMALL, machine=MachineType.MICROVM)),
        "not shared": replace(good, guest=replace(SMALL, writable=1 << 30)),
        "a disk that": replace(good, guest=replace(SMALL, format=DiskFormat.QCOW2)),
        "snapshot": replace(good, guest=replace(SMALL, snapshot=True)),
        "attachment sriov": replace(good, attachment=Attachment.SRIOV),
        "attachment user": replace(good, attachment=Attachment.USER),
    }
    for words, wrong in refused.items():
        why = QEMU.unmovable(wrong, Method.PRECOPY)
        assert why is not None and words in why.reason and why.remedy, words
    criu = QEMU.unmovable(good, Method.CRIU)
    assert criu is not None and "no method criu" in criu.reason and "precopy" in criu.remedy


def test_a_guest_with_the_machines_own_root_is_refused_before_anything_starts(
    tools: Tools, place: Place
) -> None:
    with started(tools, place, "host") as guest:
        shared = replace(guest.request, environment=replace(guest.request.environment, image="host"))
        with (
            pytest.raises(UnavailableError, match="virtiofs"),
            moving(tools, place, replace(guest, request=shared), Method.PRECOPY, 1, name="host1"),
        ):
            pass
        assert guest.trouble() == ""


DIES = """
import os, signal, sys
from pathlib import Path
import tests.contract.test_migration as own
from tests.qemu_moments import SLOW, Moment, at
from nearmetal.environments import Tools
from nearmetal.lifecycle import Method
tools, directory = Tools(directory=Path(sys.argv[1])), Path(sys.argv[2])
method, moment = Method(sys.argv[3]), Moment(sys.argv[4])
# By this label, no test beside takes what it leaves for that of an ended nearmetal.
own.LABEL = f"nearmetal-test{os.getpid()}-mv"
with own.a_place(tools, directory) as place, own.started(tools, place, "dies") as guest:
    with (
        own.dirtying(guest, tools, 64 << 20, 0),
        at(moment, lambda: os.kill(os.getpid(), signal.SIGKILL)),
        own.moving(tools, place, guest, method, 1, name="dies1", bandwidth=SLOW),
    ):
        pass
"""


@pytest.mark.parametrize(
    ("method", "moment"),
    [
        (Method.PRECOPY, Moment.COPY),
        *(
            pytest.param(*pair, marks=pytest.mark.apart)
            for pair in (
                (Method.OFFLINE, Moment.COPY),
                (Method.MULTIFD, Moment.COPY),
                (Method.POSTCOPY, Moment.SWITCH),
                (Method.POSTCOPY, Moment.FETCH),
            )
        ),
    ],
)
def test_nothing_is_left_when_the_tool_is_killed_in_a_move(
    tools: Tools, place: Place, method: Method, moment: Moment
) -> None:
    directory = place.directory / f"dies{method}{moment}"
    directory.mkdir()
    words = [str(tools.directory), str(directory), method.value, moment.value]
    child = subprocess.Popen([sys.executable, "-c", DIES, *words])
    assert child.wait(LIMIT) == -signal.SIGKILL
    label = f"nearmetal-test{child.pid}-"
    until(lambda: not processes.labelled(lambda other: other.startswith(label)), "the end of both")
    for item in find(label):
        remove(item)
    assert find(label) == ()
