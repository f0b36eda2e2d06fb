"""Starts guests from a checkpoint instead of booting them.

A template guest is booted once, without a host name and a network of its own, and its state is saved to a
file. Guests are restored from this file, and their agents then set their own host names and networks.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from ...errors import RunError
from ...host.guest_line import Clocks, GuestLine
from ...host.processes.failure import describe_failure
from ...host.processes.running import await_true
from ...model.environments.guest import Accelerator, GuestSettings
from ..contract import GuestBase, InstanceRequest, Tools
from ..guests.guest import GuestInterface, tuning
from .moving import UNBOUNDED
from .qmp import Monitor

TEMPLATE = "nm-template"
TEMPLATE_PLACE = GuestInterface(mac="02:6e:6d:00:00:01", address="0.0.0.0", mask="255.255.255.255", mtu=1500)
MIGRATE_SECONDS = 120.0
LOOK_AGAIN = 0.005
KEPT = 4
"""Number of checkpoints that are kept in the cache. Each is as large as the memory that its guest had
used."""


def checkpoint(
    base: GuestBase,
    request: InstanceRequest,
    tools: Tools,
    settings: GuestSettings,
    accelerator: Accelerator,
    processor: frozenset[str],
    make: Callable[[Accelerator, Path], None],
    *,
    program: Path,
) -> Path:
    """Return the file with the state of a template guest that has the same properties as the requested guest.

    The name of the file contains a digest of all inputs. The file is created if it does not exist.
    processor: features of the machine's processor, which a guest may use.
    make: boots a template guest and saves its state to a file.
    program: path of QEMU. A state can be loaded only by the version that has saved it.

    Raises the exceptions of `make`.
    """
    parts = [
        base.kernel,
        base.initramfs,
        base.root,
        settings,
        accelerator,
        sorted(processor),
        len(request.cpus),
        tools.directory,
        request.environment.attachment.interfaced,
        *(p.stat().st_mtime_ns for p in (base.kernel, base.initramfs, program)),
    ]
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
    directory = base.cache / "guests"
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{key}.state"
    with (directory / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # if several starts run at once, only one creates it
        if not file.exists():
            aside = file.with_name(f".{key}.{os.getpid()}")
            try:
                make(accelerator, aside)
                aside.rename(file)
            finally:
                aside.unlink(missing_ok=True)
            _keep_newest(directory, file)
    return file


def _keep_newest(directory: Path, own: Path) -> None:
    others = sorted(directory.glob("*.state"), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in [p for p in others if p != own][KEPT - 1 :]:
        old.unlink(missing_ok=True)


def save(
    qmp: Path, file: Path, seconds: float = MIGRATE_SECONDS, longer: str = "", *, sync: bool = False
) -> None:
    """Stop a guest and write its state to a file.

    qmp: socket of its QEMU's monitor.
    seconds: time limit.
    longer: remedy of the error at the time limit.
    sync: whether the content of the file must be on the disk before the file gets its name.
    Raises RunError if QEMU fails, the file is not written whole, or at the time limit.
    """
    part, end = file.with_name(f".{file.name}"), time.monotonic() + seconds
    part.touch(mode=0o600)
    here, there = shlex.quote(str(part)), shlex.quote(str(file))
    write = f"cat > {here} && sync -- {here}" if sync else f"cat > {here}"
    try:
        with Monitor(qmp) as monitor:
            monitor.ask("stop")
            monitor.ask("migrate-set-parameters", {"max-bandwidth": UNBOUNDED})
            # QEMU 7.2 has no "file:" URI, and of no version does it matter to QEMU how the command ends.
            monitor.ask("migrate", {"uri": f"exec:{write} && mv {here} {there} || rm -f {here}"})
            _await(monitor, seconds, "written", longer)
        while not file.exists():
            if time.monotonic() > end:
                raise _late("written", seconds, longer)
            if not (part.exists() or file.exists()):
                raise RunError(f"{file.name} was not written whole", where=str(file))
            time.sleep(LOOK_AGAIN)
    finally:
        part.unlink(missing_ok=True)


def restore(qmp: Path, file: Path, seconds: float = MIGRATE_SECONDS) -> None:
    """Load a guest's state from a file into a QEMU that waits for it, and let the guest run.

    qmp: socket of the monitor of this QEMU, which may still be starting.
    seconds: time limit.
    Raises RunError if QEMU fails, or the guest does not run at the time limit.
    """
    end = time.monotonic() + seconds
    if not await_true(qmp.exists, seconds):
        raise RunError("QEMU does not start")
    with Monitor(qmp) as monitor:
        monitor.ask("migrate-incoming", {"uri": f"exec:cat {shlex.quote(str(file))}"})
        _await(monitor, seconds, "read")
        while monitor.ask("query-status")["status"] in ("inmigrate", "paused"):
            if time.monotonic() > end:
                raise RunError("the guest does not continue after its restore")
            monitor.ask("cont")
            time.sleep(LOOK_AGAIN)


def _await(monitor: Monitor, seconds: float, what: str, longer: str = "") -> None:
    """Wait until QEMU has written or read a checkpoint.

    what: 'written' or 'read'.
    longer: remedy of the error at the time limit.
    """
    end = time.monotonic() + seconds
    while (report := monitor.ask("query-migrate")).get("status") != "completed":
        if report.get("status") in ("failed", "cancelled"):
            why = report.get("error-desc", report.get("status"))
            raise RunError(f"the state of the guest is not {what}: {why}")
        if time.monotonic() > end:
            raise _late(what, seconds, longer)
        time.sleep(LOOK_AGAIN)


def _late(what: str, seconds: float, longer: str) -> RunError:
    said = f"the time limit of {seconds:g} s was over before the state of the guest was {what}"
    return RunError(said, remedy=longer)


def woken(
    agent: Path, request: InstanceRequest, place: GuestInterface | None, gone: Callable[[], str]
) -> Clocks:
    """Set the host name, the network and the time of day of a restored guest. Return the offsets of its
    clocks.

    agent: socket of its agent.
    place: settings of its network interface; None for a guest without a network.
    gone: returns why the guest has ended; empty while it runs.
    Raises RunError if the guest does not answer or a setting fails.
    """
    words = [place.mac, place.words()] if place is not None else ["-", "-"]
    words += [tuning(request.environment.network) or "-"]
    with GuestLine(agent, gone) as line:
        argv = ["nm-guest", "become", request.hostname, str(time.time_ns()), *words]
        done = line.run(argv, timeout=MIGRATE_SECONDS)
        if done.status != 0:
            failure = describe_failure("nm-guest", done.status, done.stderr.decode(errors="replace"))
            raise RunError(f"a restored guest: {failure}")
        return line.clocks()


def restored_phases(begin: int, begun: int, spawned: int, restored: int) -> dict[str, float]:
    """Return the duration of each step of a start from a checkpoint in seconds. Call this when the agent has
    answered.

    All times are CLOCK_MONOTONIC in ns:
    begin: time of the request.
    begun: time at which the start of QEMU was requested.
    spawned: time after QEMU was started.
    restored: time at which the state was loaded.
    """
    now = time.monotonic_ns()
    return {
        "prepare": (begun - begin) / 1e9,
        "program": (spawned - begun) / 1e9,
        "restore": (restored - spawned) / 1e9,
        "agent": (now - restored) / 1e9,
        "first_instruction": (now - begin) / 1e9,
    }
