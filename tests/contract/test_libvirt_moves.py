"""Guests of libvirt that are moved to a daemon of nearmetal's own at another address, and on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.guests import HOST, NEEDED
from tests.contract.test_libvirt_guests import LIBVIRT, daemon
from tests.contract.test_migration import LIMIT, Place, a_place, answers, dirtying, ended_well
from tests.patience import until

from nearmetal.environments import EnablesMoves, Migrates, Moved, MoveRequest, Tools
from nearmetal.environments.libvirt.daemon import ask
from nearmetal.environments.libvirt.migrate import USERFAULTFD, LibvirtGuest
from nearmetal.environments.libvirt.settings import LibvirtSettings
from nearmetal.errors import RunError, UnavailableError
from nearmetal.host.leftovers import find, remove
from nearmetal.host.processes import labelled as processes
from nearmetal.host.runtime import cache_directory, scratch_directory
from nearmetal.lifecycle import Method, NotConvergedError

pytestmark = [pytest.mark.apart, pytest.mark.beside, *NEEDED]


@pytest.fixture(scope="module")
def place(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with here(tools, tmp_path_factory.mktemp("libvirt-moves")) as made:
        yield made


@contextmanager
def here(tools: Tools, directory: Path) -> Iterator[Place]:
    with a_place(tools, directory) as made:
        assert made.base.base is not None
        environment = replace(made.base.environment, backend="libvirt")
        of = replace(made.base.base, cache=cache_directory())
        yield replace(made, base=replace(made.base, environment=environment, base=of))


@contextmanager
def started(tools: Tools, place: Place, name: str) -> Iterator[LibvirtGuest]:
    asked = place.request(name, 0)
    with scratch_directory(f"{asked.label}-run"), LIBVIRT.start(HOST, tools, asked) as guest:
        assert isinstance(guest, LibvirtGuest)
        yield guest


def moving(
    tools: Tools, place: Place, guest: LibvirtGuest, method: Method, seat: int, name: str, **more: float
) -> AbstractContextManager[Moved]:
    asked = MoveRequest(
        method=method,
        destination=place.request(name, seat),
        bandwidth=more.get("bandwidth"),
        time_limit=more.get("time_limit", LIMIT),
    )
    return LIBVIRT.migrate(HOST, tools, guest, asked)


def test_guest_moves_by_every_method_and_continues(tools: Tools, place: Place) -> None:
    assert isinstance(LIBVIRT, Migrates) and isinstance(LIBVIRT, EnablesMoves)
    with started(tools, place, "all") as guest, ExitStack() as stack:
        program = stack.enter_context(dirtying(guest, tools, 16 << 20, 32 << 20))
        responder = guest.command([tools / "nm-probe", "answer", "--port", "7007"])
        answering = subprocess.Popen(responder, stdout=subprocess.DEVNULL)
        stack.callback(answering.wait)
        stack.callback(answering.kill)
        boot = HOST.run(guest.command(["cat", "/proc/sys/kernel/random/boot_id"]), timeout=LIMIT).stdout
        LIBVIRT.enable_moves(guest)
        assert LIBVIRT.sample_memory(guest).looks[-1][1] > 0, "a program writes to its memory"
        now, seat = guest, 1
        for method in LIBVIRT.moves_by:
            if method is Method.POSTCOPY and USERFAULTFD.read_text() == "0\n":
                with (
                    pytest.raises(UnavailableError, match="userfaultfd"),
                    moving(tools, place, now, method, seat, "refused"),
                ):
                    pass
                continue
            moved = stack.enter_context(moving(tools, place, now, method, seat, f"all{seat}{method}"))
            assert now.process.poll() is not None, "the source has ended"
            assert isinstance(moved.instance, LibvirtGuest)
            now, seat = moved.instance, 1 - seat
            assert now.label == guest.label and now.pid != guest.pid and now.process.poll() is None
            again = HOST.run(now.command(["cat", "/proc/sys/kernel/random/boot_id"]), timeout=LIMIT).stdout
            assert again == boot
            assert moved.sent > 1 << 20 and moved.rounds >= 1 and moved.total > moved.stopped > 0
            assert sum(moved.phases.seconds.values()) > 0.9 * moved.total
            if method in (Method.PRECOPY, Method.OFFLINE):
                assert moved.downtime is not None and moved.stopped < 1.3 * moved.downtime + 0.1, "by libvirt"
            for group in set(now.cgroups.values()):
                assert str(now.pid) in (group / "cgroup.procs").read_text().split()
            assert (now.sources[0].read()["vcpu"] or 0) > 0, "its counters are those of the second QEMU"
            until(lambda: answers(tools, place), "an answer at its old address")
        assert answering.poll() is None
        told = ended_well(program)
    numbers = [t["written"] for t in told if "written" in t]
    assert numbers == sorted(numbers) and told[-1]["pages"] >= numbers[-1]
    label = place.request("all", 0).label
    assert not processes.labelled(lambda other: other.startswith(label))


def test_a_guest_of_a_daemon_of_others_is_moved_away(tools: Tools, place: Place) -> None:
    with daemon(tools) as others:
        own = LibvirtSettings(uri=others.uri)
        base = replace(place.base, environment=replace(place.base.environment, own=own))
        place = replace(place, base=base)
        with (
            started(tools, place, "others") as guest,
            moving(tools, place, guest, Method.PRECOPY, 1, "o1") as m,
        ):
            assert not ask(HOST, others.uri, "list", "--all", "--name").stdout.split()
            assert HOST.run(m.instance.command(["echo", "there"]), timeout=LIMIT).stdout == "there\n"


@pytest.mark.parametrize("method", [Method.PRECOPY, Method.OFFLINE])
def test_source_continues_when_its_destination_is_killed(tools: Tools, place: Place, method: Method) -> None:
    with started(tools, place, "kill") as guest, dirtying(guest, tools, 64 << 20, 0) as program:
        label = place.request(f"kill{method}", 1).label
        killer = threading.Thread(target=lambda: os.kill(second_qemu(label), signal.SIGKILL))
        killer.start()
        with (
            pytest.raises(RunError, match="it continues at its source"),
            moving(tools, place, guest, method, 1, f"kill{method}", bandwidth=2 << 20),
        ):
            pass
        killer.join(LIMIT)
        assert guest.process.poll() is None and guest.trouble() == ""
        assert HOST.run(guest.command(["echo", "here"]), timeout=LIMIT).stdout == "here\n"
        ended_well(program)
        with moving(tools, place, guest, Method.PRECOPY, 1, f"kill{method}again") as moved:
            assert HOST.run(moved.instance.command(["echo", "there"]), timeout=LIMIT).stdout == "there\n"


def second_qemu(label: str) -> int:
    """The QEMU of a destination, once it is there."""
    found: list[int] = []

    def look() -> bool:
        those = processes.labelled(lambda other: other == label)
        found.extend(pid for pid in those if processes.name_of(pid).startswith("qemu"))
        return bool(found)

    until(look, "the second QEMU")
    return found[0]


def test_what_does_not_converge_is_given_up(tools: Tools, place: Place) -> None:
    with started(tools, place, "slow") as guest, dirtying(guest, tools, 64 << 20, 0) as program:
        with (
            pytest.raises(NotConvergedError, match="it continues at its source: the move by precopy") as e,
            moving(tools, place, guest, Method.PRECOPY, 1, "slow1", bandwidth=8 << 20, time_limit=8.0),
        ):
            pass
        assert e.value.copied, "how far it came"
        ended_well(program)


def test_a_guest_that_has_ended_is_not_moved_and_that_is_said(tools: Tools, place: Place) -> None:
    with started(tools, place, "ended") as guest:
        guest.process.kill()
        with (
            pytest.raises(RunError, match="guest nmmv has ended"),
            moving(tools, place, guest, Method.PRECOPY, 1, "ended1"),
        ):
            pass


DIES = """
import sys
from pathlib import Path
import tests.contract.test_libvirt_moves as own
from nearmetal.environments import Tools
from nearmetal.lifecycle import Method
tools, directory = Tools(directory=Path(sys.argv[1])), Path(sys.argv[2])
with own.here(tools, directory) as place, own.started(tools, place, "dies") as guest:
    print("up", flush=True)
    with own.moving(tools, place, guest, Method.PRECOPY, 1, "dies1", bandwidth=2 << 20):
        pass
"""


def test_nothing_is_left_when_the_tool_is_killed_in_a_move(tools: Tools, place: Place) -> None:
    directory = place.directory / "dies"
    directory.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", DIES, str(tools.directory), str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    label = f"nearmetal-check-{child.pid}"
    second_qemu(f"{label}-mv-dies1")
    child.kill()
    child.wait()
    child.stdout.close()
    until(lambda: not processes.labelled(lambda other: other.startswith(label)), "the end of both")
    for item in find(label):
        remove(item)
    assert find(label) == ()
