"""Moves of a guest between two seats of a network: by nearmetal, and by hand with plain QMP commands to two
QEMUs. Parts of benchmarks/lifecycle.py."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from nearmetal.environments import GuestBase, InstanceRequest, MoveRequest, Tools
from nearmetal.environments.guests.initramfs import initramfs
from nearmetal.environments.guests.tap import tap_argv
from nearmetal.environments.qemu.argv import Sockets, qemu_argv
from nearmetal.environments.qemu.backend import Qemu
from nearmetal.environments.qemu.guest import QemuGuest, require_program
from nearmetal.host import LocalHost
from nearmetal.host.runtime import scratch_directory
from nearmetal.images import require_image
from nearmetal.images.forms import Form, in_form
from nearmetal.lifecycle import RESTS, Method, without_floor
from nearmetal.model.environments.guest import MIB, GuestSettings, StartFrom
from nearmetal.model.environments.network import NetworkSettings
from nearmetal.model.study import Attachment, Environment
from nearmetal.network.build import Network, build_networks
from nearmetal.network.plan import NetworkRequest
from nearmetal.node.bases import KERNEL_IMAGE, kernel_of
from nearmetal.node.machine import image_store
from nearmetal.subjects.events.pace import marked
from nearmetal.subjects.events.probing import Probe, client, program_inside, responder, results_of

HOST, QEMU = LocalHost(), Qemu()
LABEL = f"nearmetal-check-{os.getpid()}-lc"
MEMORY = 256 * MIB
LIMIT = 120.0
LOOK_AGAIN = 0.002
CAPABILITIES: Mapping[Method, tuple[str, ...]] = {
    Method.OFFLINE: (),
    Method.PRECOPY: ("auto-converge",),
    Method.POSTCOPY: ("postcopy-ram",),
    Method.MULTIFD: ("auto-converge", "multifd"),
}
"""Migration capabilities of QEMU that a person enables for each method."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load in the guest: a program that writes to this number of bytes, at this number of bytes of pages
    per second (0: as fast as it can)."""

    name: str
    size: int
    rate: int


IDLE = Load(name="idle", size=1 * MIB, rate=1)
FULL_SPEED = Load(name="100 MiB at full speed", size=100 * MIB, rate=0)


@dataclass(frozen=True, kw_only=True)
class GuestMove:
    """One move. Times are in seconds.

    total: time from the request until the guest runs at the destination and the source is no longer needed.
    gap: longest time without an answer, minus `floor`.
    floor: longest time without an answer while the guest is not moved.
    known: resolution of a gap.
    stopped: standstill, only for moves by nearmetal.
    phases: time by phase, only for moves by nearmetal.
    """

    total: float
    gap: float
    floor: float
    known: float
    stopped: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Two seats of a network, and the files from which guests are started."""

    tools: Tools
    base: GuestBase
    network: Network
    directory: Path
    numbers: Iterator[int]

    def request(self, seat: int) -> InstanceRequest:
        number = next(self.numbers)
        scratch = self.directory / f"scratch-{number}"
        scratch.mkdir()
        return InstanceRequest(
            label=f"{LABEL}-{number}",
            hostname="nmlc",
            environment=Environment(
                name="guest",
                backend="qemu",
                image=KERNEL_IMAGE,
                attachment=Attachment.VETH_BRIDGE,
                placements=(),
                guest=GuestSettings(memory=MEMORY, start=StartFrom.RESTORED),
            ),
            cpus=HOST.cpus()[-1:],
            seat=self.network.seats[seat],
            binds=(),
            scratch=scratch,
            base=self.base,
        )


@contextmanager
def ground(tools: Tools, directory: Path) -> Iterator[Ground]:
    image = require_image(HOST, image_store(), KERNEL_IMAGE, {})
    found = kernel_of(image.tree)
    assert found is not None
    root = in_form(HOST, image, Form.EROFS, progress=lambda _: None)
    base = GuestBase(
        kernel=found[0], initramfs=initramfs(directory, found[1], tools), root=root, cache=directory
    )
    want = NetworkRequest(attachment=Attachment.VETH_BRIDGE, settings=NetworkSettings(), instances=2)
    with build_networks(LABEL, [want], directory) as (network,):
        yield Ground(tools=tools, base=base, network=network, directory=directory, numbers=count())


@dataclass(frozen=True, kw_only=True)
class MoveTimes:
    """The times that a mover measures itself; see GuestMove."""

    total: float
    stopped: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)


Mover = Callable[[QemuGuest, ExitStack], MoveTimes]
"""A function that moves a guest. The moved guest runs until the stack is closed."""


def move(here: Ground, load: Load, mover: Mover) -> GuestMove:
    """Start a guest with its load and a probe, and move it once."""
    with ExitStack() as stack:
        stack.enter_context(scratch_directory(f"{LABEL}-run-{next(here.numbers)}"))
        guest = stack.enter_context(QEMU.start(HOST, here.tools, here.request(0)))
        assert isinstance(guest, QemuGuest)
        own = here.directory / f"move-{next(here.numbers)}"
        own.mkdir()
        answer = responder(here.tools)
        stack.enter_context(program_inside(HOST, guest, answer, own / "answer.txt", "listening"))
        dirty = [here.tools / "nm-probe", "dirty", "--bytes", str(load.size), "--rate", str(load.rate)]
        stack.enter_context(program_inside(HOST, guest, dirty, own / "dirty.txt", "dirtying"))
        if load.rate != IDLE.rate:
            marked(own / "dirty.txt")
        probe = Probe(
            host=HOST,
            tools=here.tools,
            network=here.network,
            address=here.network.seats[0].address,
            directory=own,
        )
        usual = probe.floor(list(RESTS))
        asking = probe.begin(usual.intervals)
        try:
            times = mover(guest, stack)
        finally:
            log = asking.end(early=True)
        floor, seen = usual.udp, results_of(log, usual.intervals).udp
        if seen.doubled:
            raise SystemExit("two copies of the guest answered")
        return GuestMove(
            total=times.total,
            gap=max(without_floor(seen, floor).gap, floor.resolution),
            floor=floor.gap,
            known=floor.resolution,
            stopped=times.stopped,
            phases=times.phases,
        )


def by_nearmetal(here: Ground, method: Method, limit: float) -> Mover:
    def mover(guest: QemuGuest, stack: ExitStack) -> MoveTimes:
        asked = MoveRequest(
            method=method, destination=here.request(1), downtime_limit=limit, time_limit=LIMIT
        )
        moved = stack.enter_context(QEMU.migrate(HOST, here.tools, guest, asked))
        return MoveTimes(total=moved.total, stopped=moved.stopped, phases=moved.phases.record())

    return mover


def by_hand(here: Ground, method: Method, limit: float) -> Mover:
    """Return a mover that acts like a person: it starts a second QEMU that waits for the guest, and sends QMP
    commands to both.

    limit: downtime limit in seconds.
    """

    def mover(guest: QemuGuest, stack: ExitStack) -> MoveTimes:
        own = here.directory / f"hand-{next(here.numbers)}"
        own.mkdir()
        sockets = Sockets(directory=own)
        seat = here.network.seats[1]
        begin = time.monotonic()
        argv = qemu_argv(require_program(HOST), replace(guest.plan, incoming=True, sockets=sockets))
        # The agent of nearmetal is not part of a move by hand.
        argv = ["null,id=agent" if w.startswith("socket,id=agent") else w for w in argv]
        words = [*tap_argv(here.tools, seat, Attachment.VETH_BRIDGE), "--", *argv]
        # On the CPUs of the guest, as both QEMUs of nearmetal are.
        words = ["taskset", "--cpu-list", ",".join(map(str, guest.request.cpus)), *words]
        second = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(second.wait)
        stack.callback(second.kill)
        source = stack.enter_context(Commands(guest.plan.sockets.qmp))
        target = stack.enter_context(Commands(sockets.qmp))
        for side in (source, target):
            wanted = [{"capability": c, "state": True} for c in CAPABILITIES[method]]
            side("migrate-set-capabilities", capabilities=wanted)
            side("migrate-set-parameters", **{"max-bandwidth": 1 << 40, "downtime-limit": int(limit * 1e3)})
        uri = f"unix:{own / 'move'}"
        target("migrate-incoming", uri=uri)
        if method is Method.OFFLINE:
            source("stop")
        source("migrate", uri=uri)
        switched = False
        while (status := source("query-migrate").get("status")) != "completed":
            if status in ("failed", "cancelled") or time.monotonic() - begin > LIMIT:
                raise SystemExit(f"a move by hand with {method}: {status}")
            if method is Method.POSTCOPY and status == "active" and not switched:
                source("migrate-start-postcopy")
                switched = True
            time.sleep(LOOK_AGAIN)
        if method is Method.OFFLINE:
            while target("query-status")["status"] == "inmigrate":
                time.sleep(LOOK_AGAIN)
            target("cont")
        while not target("query-status")["running"]:
            time.sleep(LOOK_AGAIN)
        total = time.monotonic() - begin
        source("quit")
        time.sleep(0.1)  # the probe needs an answer of the moved guest
        return MoveTimes(total=total)

    return mover


class Commands:
    """A connection to QEMU's monitor, without a library. It waits for a QEMU that is still starting."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        end = time.monotonic() + LIMIT
        while self._socket.connect_ex(str(path)) != 0:
            if time.monotonic() > end:
                raise SystemExit(f"no QEMU answers at {path}")
            time.sleep(LOOK_AGAIN)
        self._lines = self._socket.makefile("r")
        self._lines.readline()
        self("qmp_capabilities")

    def __call__(self, command: str, **arguments: Any) -> Any:
        line = json.dumps({"execute": command, "arguments": arguments})
        self._socket.sendall(line.encode())
        while True:
            answer = json.loads(self._lines.readline())
            if "error" in answer:
                raise SystemExit(f"QEMU refuses {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.close()


def probe_cost(tools: Tools, directory: Path, seconds: float) -> tuple[float, float]:
    """Return the CPU time of client and responder of a probe without a move, as fractions of a core, at the
    intervals that the probe chooses here.

    The responder runs in a network namespace of the machine. Its share includes the choice.
    """
    want = NetworkRequest(attachment=Attachment.VETH_BRIDGE, settings=NetworkSettings(), instances=1)
    with ExitStack() as stack, build_networks(f"{LABEL}p", [want], directory) as (network,):
        (seat,) = network.seats
        enter = ["nsenter", f"--net={seat.netns}"]
        answering = subprocess.Popen([*enter, *responder(tools)], stdout=subprocess.PIPE)
        assert answering.stdout is not None
        stack.callback(answering.kill)
        answering.stdout.readline()
        answers_from = time.monotonic()
        probe = Probe(host=HOST, tools=tools, network=network, address=seat.address, directory=directory)
        intervals = probe.floor(list(RESTS)).intervals
        begin = time.monotonic()
        words = client(tools, seat.address, intervals, seconds, directory / "log")
        asking = subprocess.Popen(network.hub_command(words), stdout=subprocess.DEVNULL)
        _, status, outside = os.wait4(asking.pid, 0)
        end = time.monotonic()
        os.kill(answering.pid, signal.SIGTERM)
        _, _, inside = os.wait4(answering.pid, 0)
    if status != 0:
        raise SystemExit("the probe fails")
    asked, answered = outside.ru_utime + outside.ru_stime, inside.ru_utime + inside.ru_stime
    return asked / (end - begin), answered / (end - answers_from)
