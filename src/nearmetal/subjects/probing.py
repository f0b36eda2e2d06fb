"""The probe of a moving instance: a responder inside, and a client outside (kernels/probe)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..environments import Instance, Tools
from ..errors import RunError, TrialFailedError
from ..host import Host, Process
from ..host.processes.failure import describe_failure
from ..lifecycle import ProbeLog, ProbeResult, evaluate, read_probe_log
from ..network.build import Network

PORT = 7007
PERIODS = (0.5e-3, 2e-3, 8e-3, 20e-3)
"""Seconds between two requests during a silence, the wanted time first. Longer ones are for instances that
lose requests at rest, as emulated guests do."""
AT_REST = 5e-3
"""Seconds between two requests while answers come, unless PERIODS has a longer time. Measured
on a virtual machine: client and responder 0.9 and 0.6 % of a core, and 5.8 and 2.0 % with a request each
500 µs."""
FLOOR_SECONDS = 1.0
TCP_EVERY = 20e-3
LINGER = 3.0
MOST_SECONDS = 300.0
READY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A probe whose responder runs.

    directory: for logs.
    """

    host: Host
    tools: Tools
    network: Network
    address: str
    directory: Path

    def floor(self) -> ProbeResult:
        """Probe while no event happens. Return the result at the shortest period at which no request is lost,
        or at the longest period if some requests are lost at every one."""
        for period in PERIODS:
            asking = self.begin(period, FLOOR_SECONDS)
            seen = evaluate(asking.end(early=False).udp, period, at_rest(period))
            if seen.lost == 0:
                break
        return seen

    def begin(self, period: float, seconds: float = MOST_SECONDS) -> Client:
        """Start a client that sends requests for some seconds, or until end()."""
        number = f"{time.monotonic_ns()}"
        out, output = self.directory / f"probe.{number}.log", self.directory / f"probe.{number}.txt"
        argv = self.network.hub_command(client(self.tools, self.address, period, seconds, out))
        process = self.host.start(argv, stdout=output, stderr=output, cwd=Path("/"))
        asking = Client(process=process, out=out, output=output, seconds=seconds)
        try:
            await_words(process, output, "asking")
        except BaseException:
            process.kill()
            raise
        return asking


def client(tools: Tools, address: str, period: float, seconds: float, out: Path) -> list[str]:
    """Return the command line of the client.

    period: seconds between two requests during a silence.
    seconds: after which it ends.
    out: its log.
    """
    times = {
        "--period": period,
        "--rest": at_rest(period),
        "--time": seconds,
        "--tcp-every": max(period, TCP_EVERY),
        "--linger": LINGER,
    }
    words = [word for option, value in times.items() for word in (option, str(round(value * 1e9)))]
    argv = [tools / "nm-probe", "ask", "--address", address, "--port", str(PORT)]
    return [*argv, *words, "--out", str(out)]


def at_rest(period: float) -> float:
    """Return the time between two requests while answers come.

    period: seconds between two requests during a silence.
    """
    return max(period, AT_REST)


def responder(tools: Tools) -> list[str]:
    """Return the command line of the responder, which runs in the instance."""
    return [tools / "nm-probe", "answer", "--port", str(PORT)]


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client that sends requests."""

    process: Process
    out: Path
    output: Path
    seconds: float

    def end(self, *, early: bool) -> ProbeLog:
        """Wait until it has ended, and return its log.

        early: whether to end it now, instead of after its time.
        """
        try:
            if early:
                interrupt(self.process)
            status = self.process.wait(self.seconds + LINGER + READY_SECONDS)
        except TimeoutError as e:
            raise RunError(f"the probe does not end: {e}") from e
        finally:
            self.process.kill()
        if status != 0:
            raise RunError(describe_failure("nm-probe", status, self.output.read_text(errors="replace")))
        return read_probe_log(self.out.read_text())


def interrupt(process: Process) -> None:
    """Ask a program to write its results and end."""
    os.kill(process.pid, signal.SIGTERM)


def await_words(process: Process, output: Path, words: str) -> None:
    """Wait until a program has written some words.

    Raises TrialFailedError if it ends before, or does not write them in time.
    """
    end = time.monotonic() + READY_SECONDS
    while words not in (text := output.read_text(errors="replace") if output.exists() else ""):
        status = process.poll()
        if status is not None:
            raise TrialFailedError(describe_failure("nm-probe", status, text))
        if time.monotonic() > end:
            raise TrialFailedError(f"nm-probe printed nothing for {READY_SECONDS:g} s")
        time.sleep(0.005)


@contextmanager
def program_inside(
    host: Host, instance: Instance, argv: Sequence[str], output: Path, words: str
) -> Iterator[Process]:
    """Run a program in an instance until exit.

    words: what it writes when it is ready.
    """
    process = host.start(instance.command(argv), stdout=output, stderr=output, cwd=Path("/"))
    try:
        await_words(process, output, words)
        yield process
    finally:
        process.kill()
