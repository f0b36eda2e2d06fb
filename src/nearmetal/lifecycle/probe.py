"""Evaluate a probe: how long an instance did not answer, from the times of requests and answers."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESTS = (10e-3, 20e-3, 40e-3)
"""Intervals in seconds at which a probe may ask while answers come. The longer ones are for machines on which
waking up and sending a request takes too much of a core. The last is taken if all are too short."""


@dataclass(frozen=True, kw_only=True)
class ProbeTimes:
    """One request of a probe.

    sent: when it was sent, in seconds of the client's clock.
    answers: when its answers arrived. More than one is possible only if two copies of the instance run, or
        the network doubles packets.
    step: seconds until the next request was due.
    """

    sent: float
    answers: tuple[float, ...] = ()
    step: float


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """The result of a probe. All times are in seconds.

    period: time between two requests during a silence.
    rest: time between two requests while answers come.
    lost: number of requests without an answer.
    unanswered: sum over the lost requests of the time from halfway to the previous request until halfway to
        the next one. With a constant period, this is the number of lost requests x period.
    seconds: from the first request until the one after the last was due.
    doubled: number of answers beyond the first of a request, without those that were repeated. They show that
        two copies of the instance ran at once.
    repeated: number of answers after the longest silence to requests that had been answered before that
        silence. Such a request had reached both machines, and was answered again when the instance ran on the
        second one.
    gap: longest time without an answer. The instance did not answer for at most `gap`, and for at least
        `gap - starts_within - ends_within`.
    starts_within: time in which the silence began: from the last request with an answer before the gap until
        the next request. 0 if no answer came before the gap.
    ends_within: time in which the silence ended: from the last lost request of the gap until the next one,
        which was answered. 0 if this answer was waiting, so that it came when the silence ended.
    delay: median time from a request to its answer; NaN if nothing was answered.
    longest_delay: longest such time; NaN if nothing was answered.
    """

    requests: int
    period: float
    rest: float
    lost: int
    unanswered: float
    seconds: float
    doubled: int
    gap: float
    delay: float
    longest_delay: float
    repeated: int = 0
    starts_within: float = 0.0
    ends_within: float = 0.0

    @property
    def silence(self) -> float:
        """Centre of the interval in which the longest silence lies. If the silence begins and ends at times
        that do not depend on those of the requests, its mean error is zero."""
        return self.gap - (self.starts_within + self.ends_within) / 2

    @property
    def lateness(self) -> float:
        """Seconds from the time at which the answer after the longest gap was due until it came: 0 if the
        instance answers each request equally fast."""
        return max(self.gap - self.starts_within, 0.0)

    @property
    def resolution(self) -> float:
        """Uncertainty of the length of a silence, in seconds: the interval between two requests before the
        silence plus the interval during it."""
        return self.rest + self.period


def evaluate(times: Sequence[ProbeTimes], period: float, rest: float | None = None) -> ProbeResult:
    """Evaluate the requests and answers of a probe.

    times: all requests, in the order in which they were sent.
    period, rest: seconds between two requests during a silence, and while answers come; None for the same.

    The time from the first request to the first answer, and from the last answer to the last request, count
    as silence too.
    Raises ValueError for no requests, or a period that is not above zero.
    """
    if not times:
        raise ValueError("a probe without requests")
    if not (period > 0 and math.isfinite(period)):
        raise ValueError(f"a probe with a period of {period} s")
    arrivals = sorted(t.answers[0] for t in times if t.answers)
    edges = [
        times[0].sent,
        *arrivals,
        *([times[-1].sent] if times[-1].sent > max(arrivals, default=-math.inf) else []),
    ]
    delays = [t.answers[0] - t.sent for t in times if t.answers]
    stopped, resumed = max(itertools.pairwise(edges), key=lambda e: e[1] - e[0], default=(math.inf, math.inf))
    again = [(t.answers[0], answer) for t in times for answer in t.answers[1:]]
    repeated = sum(first <= stopped and resumed <= answer for first, answer in again)
    delay = statistics.median(delays) if delays else math.nan
    starts_within, ends_within = _edges(times, stopped, resumed, delay)
    steps = [times[0].step, *(t.step for t in times)]
    return ProbeResult(
        requests=len(times),
        period=period,
        rest=period if rest is None else rest,
        lost=len(times) - len(delays),
        unanswered=sum((last + t.step) / 2 for last, t in zip(steps, times, strict=False) if not t.answers),
        seconds=times[-1].sent + times[-1].step - times[0].sent,
        doubled=len(again) - repeated,
        gap=resumed - stopped if math.isfinite(resumed) else 0.0,
        delay=delay,
        longest_delay=max(delays, default=math.nan),
        repeated=repeated,
        starts_within=starts_within,
        ends_within=ends_within,
    )


def _edges(times: Sequence[ProbeTimes], stopped: float, resumed: float, delay: float) -> tuple[float, float]:
    """Return starts_within and ends_within of a gap (ProbeResult).

    stopped, resumed: when the gap began and ended.
    delay: usual time from a request to its answer.
    """
    begin = end = 0.0
    answered = [i for i, t in enumerate(times) if t.answers and t.answers[0] == stopped]
    if answered and answered[-1] + 1 < len(times):
        begin = times[answered[-1] + 1].sent - times[answered[-1]].sent
    first = next((i for i, t in enumerate(times) if t.answers and t.answers[0] == resumed), 0)
    if first > 0 and not times[first - 1].answers:
        step = times[first].sent - times[first - 1].sent
        waited = resumed - times[first].sent > delay + step
        end = 0.0 if waited else step
    return begin, end


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """How long clients had no answer because of an event, in seconds: values of a probe during the event,
    minus those of its floor, the same probe without the event.

    lost: ProbeResult.unanswered.
    gap: ProbeResult.silence, minus the lateness of the floor.
    delay: longest delay of an answer that did come.
    """

    lost: float
    gap: float
    delay: float


def without_floor(event: ProbeResult, floor: ProbeResult) -> Unanswered:
    """Return by how much an event increased the values of a probe; at least 0.

    floor: result of the same probe under the same load, without the event. Its lost requests are subtracted
        in proportion to the duration of the two probes.

    Raises ValueError if the two have different periods.
    """
    if (event.period, event.rest) != (floor.period, floor.rest):
        raise ValueError(f"a floor of period {floor.period} s for a probe of {event.period} s")
    usual = floor.unanswered / floor.seconds * event.seconds
    delays = event.longest_delay - floor.longest_delay
    return Unanswered(
        lost=max(event.unanswered - usual, 0.0),
        gap=max(event.silence - floor.lateness, 0.0),
        delay=max(delays, 0.0) if math.isfinite(delays) else 0.0,
    )


@dataclass(frozen=True, kw_only=True)
class ProbeLog:
    """The output of `nm-probe ask` (kernels/probe/ask.c).

    udp, tcp: the requests by UDP and by TCP, in the order in which they were sent.
    cpu: CPU seconds that the client took for sending these requests and reading their answers.
    broken: when the TCP connection broke, in seconds of the client's clock; None if it did not.
    full: when the client stopped, since it had no room for more requests; None if it did not. A silence may
        then have lasted longer than the log shows.
    """

    udp: tuple[ProbeTimes, ...]
    tcp: tuple[ProbeTimes, ...]
    cpu: float
    broken: float | None
    full: float | None = None


def read_probe_log(text: str) -> ProbeLog:
    """Parse the output of nm-probe ask.

    Raises ValueError if it is something else.
    """
    found: dict[str, list[ProbeTimes]] = {"udp": [], "tcp": []}
    ends: dict[str, float] = {}
    for line in text.splitlines():
        name, *numbers = line.split(" ")
        values = [int(n) for n in numbers]
        if name in ("cpu", "broken", "full") and len(values) == 1:
            ends[name] = values[0] / 1e9
        elif name in found and len(values) == 6:
            _, sent, first, last, count, step = values
            answers = (first / 1e9, *[last / 1e9] * (count - 1)) if count else ()
            found[name].append(ProbeTimes(sent=sent / 1e9, answers=answers, step=step / 1e9))
        else:
            raise ValueError(f"not a line of a probe: {line[:60]}")
    if "cpu" not in ends:
        raise ValueError("a probe that does not say its CPU time")
    return ProbeLog(
        udp=tuple(found["udp"]),
        tcp=tuple(found["tcp"]),
        cpu=ends["cpu"],
        broken=ends.get("broken"),
        full=ends.get("full"),
    )
