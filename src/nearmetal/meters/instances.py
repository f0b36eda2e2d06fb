"""Counts each instance of a running arm over the timed runs of its programs, from samples.

The node and every instance are sampled on the machine. Each virtual machine is also sampled inside, where its
own kernel counts, with its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..environments import Instance, RemoteInstance
from ..host.counters.trial import local_scale
from ..model.record import Counters
from ..model.scope import NODE, Scope
from ..node.arms.running_arm import RunningArm
from ..samplers import GUESTS, GuestSampler, Header, Sample, Sampler, Stream, Window, in_windows

PERIOD = 1.0
"""Seconds between two samples in a guest. Published studies use vmstat with the same period."""
_LAST_SAMPLE = 60.0
"""Time limit for a requested sample, in seconds. It is long because a guest on an emulated machine is
slow."""


class _GuestSampling:
    """The sampling in one guest of the arm. The clocks of guest and machine are compared at its creation and
    in close()."""

    def __init__(self, arm: RunningArm, instance: Instance, guest: RemoteInstance) -> None:
        program = arm.software.tools / "nm-sample"
        self._guest = guest
        self._first = self._last = guest.clocks()
        self._began, self._span = time.monotonic(), 0.0
        self._ahead, self._samples = self._first.monotonic / 1e9, list[Sample]()
        self.sampler = GuestSampler(
            arm.node.machine.host,
            instance.command([program, *GuestSampler.arguments(PERIOD)]),
            instance.hostname,
            arm.trial.private_directory("samples") / f"{instance.hostname}.jsonl",
            local_scale(),
        )

    def begun(self, begin: float) -> None:
        """Wait for the first sample at or after a moment.

        begin: seconds of the machine's CLOCK_MONOTONIC.
        """
        self.sampler.stream.until(self.sampler.scope, begin + self._ahead, _LAST_SAMPLE)

    def close(self, trial: str, windows: Mapping[str, Sequence[Window]], kept: Path) -> None:
        """Compare the clocks again, wait for the last sample, and append all samples to a file.

        windows: begin and end of all timed runs, by workload.
        kept: the file.
        """
        self._last = self._guest.clocks()
        self._span = time.monotonic() - self._began
        self._ahead = (self._first.monotonic + self._last.monotonic) / 2e9
        end = max(own[-1][1] for own in windows.values())
        self._samples = self.sampler.stream.until(self.sampler.scope, end + self._ahead, _LAST_SAMPLE)
        header = Header(
            scale=local_scale(),
            time_ahead=self._time_ahead,
            monotonic_ahead=self._ahead,
            trial=trial,
            windows=windows,
        )
        self.sampler.keep(kept, header)

    def counters(self, windows: Sequence[Window]) -> Counters:
        """Return the counters of the guest's kernel over timed runs, and the offset of its clocks from the
        machine's. Call this after close(). The offsets are in seconds:

        clock_ahead: how far the guest's time of day is ahead.
        clock_error: uncertainty of the offsets.
        clock_drift: change of the offset of the monotonic clock between the two comparisons.
        clock_span: seconds between the two comparisons.
        """
        return {
            **in_windows(self._samples, self.sampler.scope, windows, self._ahead),
            "clock_ahead": self._time_ahead,
            "clock_error": max(self._first.error, self._last.error) / 1e9,
            "clock_drift": (self._last.monotonic - self._first.monotonic) / 1e9,
            "clock_span": self._span,
        }

    @property
    def _time_ahead(self) -> float:
        return (self._first.realtime + self._last.realtime) / 2e9


class InstanceCounters:
    """A meter of the instances of one running arm (contract.Meter).

    stack: stops the sampling in guests when it is closed.
    """

    def __init__(self, arm: RunningArm, sampler: Sampler, stack: ExitStack) -> None:
        self._trial, self._sampler, self._instances = arm.trial.id, sampler, arm.instances
        self._stream = Stream(sampler.raw, local_scale())
        self._windows: dict[str, list[Window]] = {}
        self._guests = [_GuestSampling(arm, i, i) for i in arm.instances if isinstance(i, RemoteInstance)]
        for guest in self._guests:
            stack.enter_context(guest.sampler)
        # Take a sample before the first run, so that there is one to begin from.
        begin = time.monotonic()
        self._mark()
        self._stream.until(NODE, begin, _LAST_SAMPLE)
        for guest in self._guests:
            guest.begun(begin)

    @contextmanager
    def timed(self, workload: str) -> Iterator[None]:
        """Count from entry to exit, which is one whole run. Extra samples are taken at both ends, so that
        values are interpolated only over short intervals."""
        self._mark()
        begin = time.monotonic()
        yield
        self._windows.setdefault(workload, []).append((begin, time.monotonic()))
        self._mark()

    def close(self) -> dict[Scope, Counters]:
        """Return the counters by scope, over the runs of each workload; empty if no run was completed."""
        if not self._windows:
            return {}
        sampled = {i.hostname: self._sampler.scope_of(i.label) for i in self._instances}
        end = max(windows[-1][1] for windows in self._windows.values())
        samples = self._stream.until(NODE, end, _LAST_SAMPLE)
        for guest in self._guests:
            guest.close(self._trial, self._windows, self._sampler.raw.parent / GUESTS)
        out: dict[Scope, Counters] = {}
        for workload, windows in self._windows.items():
            out[NODE.over_runs(workload)] = in_windows(samples, NODE, windows)
            for name, own in sampled.items():
                out[Scope.instance(name).over_runs(workload)] = in_windows(samples, own, windows)
            for guest in self._guests:
                out[guest.sampler.scope.over_runs(workload)] = guest.counters(windows)
        return out

    def _mark(self) -> None:
        # The node is sampled last: once its sample is there, those of the instances are there too.
        self._sampler.mark(*(self._sampler.scope_of(i.label) for i in self._instances), NODE)
        for guest in self._guests:
            guest.sampler.mark()
