"""The probe of a moving instance: a responder in the instance, and a client outside of it (kernels/probe)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...environments import Instance, Tools
from ...environments.program import read_log
from ...errors import RunError, TrialFailedError
from ...host import Host, Process
from ...host.processes.failure import describe_failure
from ...lifecycle import ProbeLog, ProbeResult, evaluate, read_probe_log
from ...network.build import Network

PORT = 7007
PERIODS = (0.5e-3, 2e-3, 8e-3, 20e-3)
"""Seconds between two requests while no answers come. The first is preferred. The longer ones are for
instances that lose requests even without a move, as emulated guests do."""
MOST_CPU = 0.008
"""Largest share of a core that a client may take while answers come. It leaves room for a probe to take less
than 1 %, although the share varies."""
FLOOR_SECONDS, FLOOR_REQUESTS = 1.0, 100
"""Least duration of a probe without a move, and least number of its requests, so that its longest delay and
its losses are those of as many requests on every machine."""
TCP_EVERY = 20e-3
"""Minimum seconds between two requests by TCP."""
LINGER = 3.0
MOST_SECONDS = 300.0
"""Seconds after which a client ends, in addition to the time limit of a move. The client accepts more than a
day (kernels/probe/ask.c), so that no time limit of a study is too long."""
READY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """How often a client asks.

    period, rest: seconds between two requests by UDP during a silence, and while answers come.
    """

    period: float
    rest: float

    @property
    def stream(self) -> float:
        """Seconds between two requests by TCP."""
        return max(self.rest, TCP_EVERY)


@dataclass(frozen=True, kw_only=True)
class ProbeResults:
    """The results of one client, for its requests by UDP and for those by TCP."""

    udp: ProbeResult
    tcp: ProbeResult

    @property
    def intervals(self) -> Intervals:
        """The intervals of the client."""
        return Intervals(period=self.udp.period, rest=self.udp.rest)


def results_of(log: ProbeLog, intervals: Intervals) -> ProbeResults:
    """Evaluate the log of a client that asked at these intervals."""
    return ProbeResults(
        udp=evaluate(log.udp, intervals.period, intervals.rest), tcp=evaluate(log.tcp, intervals.stream)
    )


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A probe whose responder is running.

    address: IP address of the responder.
    directory: directory for logs.
    """

    host: Host
    tools: Tools
    network: Network
    address: str
    directory: Path

    def floor(self, rests: list[float]) -> ProbeResults:
        """Probe the instance without a move, at several intervals one after the other. Return the results for
        the shortest of PERIODS at which no UDP request is lost, or for the longest if requests are lost at
        each of them.

        rests: intervals from which that at rest is chosen, as Node.probe_rests: the first at which the client
            takes no more than MOST_CPU, or the last. The others are removed, unless a long period was needed.
        Raises RunError or TrialFailedError if the client fails.
        """
        longer = iter(PERIODS)
        period = next(longer)
        while True:
            intervals = Intervals(period=period, rest=max(period, rests[0]))
            seconds = max(FLOOR_SECONDS, FLOOR_REQUESTS * intervals.rest)
            log = self.begin(intervals, seconds).end(early=False)
            seen = results_of(log, intervals)
            # Each request by UDP is a wake-up. After late answers there are more of them than at rest.
            at_rest = log.cpu / seen.udp.requests / intervals.rest
            if seen.udp.lost and (other := next(longer, None)) is not None:
                period = other
            elif at_rest > MOST_CPU and len(rests) > 1:
                rests.pop(0)
            else:
                if intervals.rest == rests[0]:
                    del rests[1:]
                return seen

    def begin(self, intervals: Intervals, seconds: float = MOST_SECONDS) -> Client:
        """Start a client, and return it when it has begun to send requests.

        seconds: time after which the client ends, if Client.end() has not ended it before.
        Raises TrialFailedError if it does not start.
        """
        number = f"{time.monotonic_ns()}"
        out, output = self.directory / f"probe.{number}.log", self.directory / f"probe.{number}.txt"
        argv = self.network.hub_command(client(self.tools, self.address, intervals, seconds, out))
        process = self.host.start(argv, stdout=output, stderr=output, cwd=Path("/"))
        asking = Client(process=process, out=out, output=output, seconds=seconds)
        try:
            await_words(process, output, "asking")
        except BaseException:
            process.kill()
            raise
        return asking


def client(tools: Tools, address: str, intervals: Intervals, seconds: float, out: Path) -> list[str]:
    """Return the command line of the client.

    seconds: time after which the client ends.
    out: file to which it writes its log.
    """
    times = {
        "--period": intervals.period,
        "--rest": intervals.rest,
        "--time": seconds,
        "--tcp-every": intervals.stream,
        "--linger": LINGER,
    }
    words = [word for option, value in times.items() for word in (option, str(round(value * 1e9)))]
    argv = [tools / "nm-probe", "ask", "--address", address, "--port", str(PORT)]
    return [*argv, *words, "--out", str(out)]


def responder(tools: Tools) -> list[str]:
    """Return the command line of the responder, which runs in the instance."""
    return [tools / "nm-probe", "answer", "--port", str(PORT)]


@dataclass(frozen=True, kw_only=True)
class Client:
    """A running client of the probe.

    out: file to which it writes its log.
    output: file with its standard output and error.
    seconds: time after which it ends by itself.
    """

    process: Process
    out: Path
    output: Path
    seconds: float

    def end(self, *, early: bool) -> ProbeLog:
        """Wait until the client has ended, and return its log.

        early: whether to end it now instead of after its time.
        Raises RunError if it fails or does not end.
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
            raise RunError(describe_failure("nm-probe", status, read_log(self.output)))
        return read_probe_log(read_log(self.out))


def interrupt(process: Process) -> None:
    """Send SIGTERM to a program of nearmetal, which then writes its results and ends."""
    os.kill(process.pid, signal.SIGTERM)


def await_words(process: Process, output: Path, words: str) -> None:
    """Wait until the output of a program contains `words`.

    output: file to which the program writes.
    Raises TrialFailedError if the program ends before, or if READY_SECONDS pass.
    """
    end = time.monotonic() + READY_SECONDS
    while words not in (text := read_log(output)):
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
    """Start a program in an instance, and yield its process when it is ready. It is killed on exit.

    output: file for the program's standard output and error.
    words: text that the program writes when it is ready.
    Raises TrialFailedError if it does not become ready.
    """
    process = host.start(instance.command(argv), stdout=output, stderr=output, cwd=Path("/"))
    try:
        await_words(process, output, words)
        yield process
    finally:
        process.kill()
