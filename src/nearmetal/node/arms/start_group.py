"""Starts and stops the instances of one arm as a group, in parallel or one after the other, and times both.
Knows only the interface of backends."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from ...environments import Instance
from ...environments.contract import FIRST_COMMAND
from ...errors import TrialFailedError
from ...host.processes.helper import wait_readable

Start = Callable[[], AbstractContextManager[Instance]]

STOP_LIMIT = 60.0
"""Maximum time to wait for the end of a first process, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """Durations of a stop, in seconds from the request.

    ended: until the first process of the last instance ended.
    removed: until everything of all instances was removed.
    """

    ended: float
    removed: float


@dataclass(kw_only=True)
class Group:
    """Running instances of one arm.

    seconds: seconds from the common request to the first instruction of each instance.
    steps: seconds by step: sums over all instances if they started one after the other, else those of the
        slowest instance.
    stopped: durations of the stop, set after it, if they were requested.
    """

    instances: tuple[Instance, ...]
    seconds: tuple[float, ...]
    steps: Mapping[str, float]
    stopped: Stopped | None = None

    @property
    def has_first_process(self) -> bool:
        """Whether the instances have first processes, whose start can be timed."""
        return bool(self.instances[-1].phases)


@contextmanager
def started(starts: Sequence[Start], *, together: bool, time_stop: bool = False) -> Iterator[Group]:
    """Start instances; all are stopped on exit.

    together: start and stop them in parallel. Each instance has its own thread, because instances die with
        the thread that started them.
    time_stop: also time the stop, which takes one more thread.
    Raises the first error of a start or a stop, after all the others are undone.
    """
    side_by_side = together and len(starts) > 1
    with ExitStack() as stack:
        own = stack.enter_context(_side_by_side(starts)) if side_by_side else _in_turn(starts, stack)
        yield own
        ends = _Ends(own.instances) if time_stop else None
        begin = time.monotonic()
        stack.close()
        removed = time.monotonic()
    if ends is not None:
        # The watching thread may notice an end only after the removal, which is then the upper bound.
        own.stopped = Stopped(ended=min(ends.last(), removed) - begin, removed=removed - begin)


def _in_turn(starts: Sequence[Start], stack: ExitStack) -> Group:
    instances: list[Instance] = []
    seconds: list[float] = []
    origin = time.monotonic()
    for start in starts:
        begin = time.monotonic()
        instance = stack.enter_context(start())
        # The first commands of the instances before it do not count as part of its start.
        commands = sum(i.phases.get(FIRST_COMMAND, 0.0) for i in instances)
        instances.append(instance)
        seconds.append(begin - origin - commands + _first_instruction(instance))
    return Group(instances=tuple(instances), seconds=tuple(seconds), steps=_steps(instances))


@contextmanager
def _side_by_side(starts: Sequence[Start]) -> Iterator[Group]:
    go, end = threading.Event(), threading.Event()
    workers = [_Worker(start, go, end) for start in starts]
    running: list[_Worker] = []
    try:
        for worker in workers:
            worker.start()
            running.append(worker)
        origin = time.monotonic()
        go.set()
        for worker in workers:
            worker.up.wait()
        _raise_first(workers)
        seconds = [w.begin - origin + _first_instruction(w.started_instance) for w in workers]
        yield Group(
            instances=tuple(w.started_instance for w in workers),
            seconds=tuple(seconds),
            steps=_steps([workers[seconds.index(max(seconds))].started_instance]),
        )
    finally:
        end.set()
        go.set()
        for worker in running:
            worker.join()
    _raise_first(workers)


def _first_instruction(instance: Instance) -> float:
    """Return the time to the first instruction in seconds; 0 if the instance has no first process to time."""
    return instance.phases["first_instruction"] if instance.phases else 0.0


def _steps(instances: Sequence[Instance]) -> dict[str, float]:
    out: dict[str, float] = {}
    for instance in instances:
        for name, spent in instance.phases.items():
            if name not in ("first_instruction", FIRST_COMMAND):
                out[name] = out.get(name, 0.0) + spent
    return out


class _Worker(threading.Thread):
    """A thread that starts one instance, keeps it running and stops it."""

    def __init__(self, start: Start, go: threading.Event, end: threading.Event) -> None:
        super().__init__(daemon=True)
        self._open, self._go, self._end = start, go, end
        self.up = threading.Event()
        self.begin = 0.0
        self.instance: Instance | None = None
        self.error: BaseException | None = None

    @property
    def started_instance(self) -> Instance:
        assert self.instance is not None
        return self.instance

    def run(self) -> None:
        self._go.wait()
        try:
            if self._end.is_set():
                return
            self.begin = time.monotonic()
            with self._open() as self.instance:
                self.up.set()
                self._end.wait()
        except BaseException as e:  # the thread that requested the start raises it, whatever it is
            self.error = e
        finally:
            self.up.set()


def _raise_first(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        if worker.error is not None:
            raise worker.error


class _Ends:
    """A thread that records when the first processes of instances end. It watches their pidfds.

    Raises TrialFailedError if one has already ended.
    """

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._at: list[float] = []
        self._fds: list[int] = []
        for instance in instances:
            with contextlib.suppress(ProcessLookupError):
                self._fds.append(os.pidfd_open(instance.pid))
                if not wait_readable(self._fds[-1], 0):
                    continue
            self._close()
            raise TrialFailedError(f"{instance.label} ended before it was stopped")
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        poller = select.poll()
        for fd in self._fds:
            poller.register(fd, select.POLLIN)
        deadline = time.monotonic() + STOP_LIMIT
        while len(self._at) < len(self._fds) and (left := deadline - time.monotonic()) > 0:
            for fd, _ in poller.poll(left * 1000):
                self._at.append(time.monotonic())
                poller.unregister(fd)
        self._close()

    def last(self) -> float:
        """Wait for the ends, and return when the last process ended, by time.monotonic().

        Raises TrialFailedError if a first process still runs.
        """
        self._thread.join()
        if len(self._at) < len(self._fds):
            raise TrialFailedError(f"a first process still runs {STOP_LIMIT:g} s after the stop")
        return max(self._at)

    def _close(self) -> None:
        for fd in self._fds:
            os.close(fd)
