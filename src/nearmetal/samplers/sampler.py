"""The 1 Hz sampler: a thread that reads held files into memory and writes one compressed frame per 10 s.

A thread of the tool and not a process of its own: it costs the same CPU per sample (benchmarks/sampler.py), and
there is no second interpreter to start, and none to find again after a crash. The tool sleeps while ranks run,
so the thread seldom waits for the interpreter lock. Nothing is parsed here: raw text compresses well, and a
later nearmetal may find more in it.

At this rate the files are cold: waking up takes a third of the time and reading them most of the rest. So what
the kernel itself renews every 5 s only (load averages), and levels that it also counts elsewhere or that are dear
to gather (meminfo beside vmstat, a cgroup's memory.stat), are read in every fifth sample."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as _quote
from pathlib import Path
from types import TracebackType

from ..host.counters import local_scale
from ..host.held import NODE_FILES, HeldFiles, cgroup_paths, read_files
from .frames import FrameWriter
from .text import to_json

SCHEMA = 1
_SELDOM_EVERY = 5
_SELDOM = frozenset(("meminfo", "loadavg", "memory.stat", "memory.swap.current"))

_Raw = tuple[float, float, dict[str, dict[str, bytes]]]


class _Scope:
    """The files of a node or instance: those of every sample, and all."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self.all = dict(paths)
        self.often = {name: path for name, path in paths.items() if name not in _SELDOM}
        self.samples = 0

    def due(self) -> Mapping[str, str]:
        """What to read in this sample; counts it."""
        self.samples += 1
        return self.often if (self.samples - 1) % _SELDOM_EVERY else self.all


class Sampler:
    """Samples from `with` to its end into <directory>/<writer>.jsonl.zst, one sample at once at either end.

    period, flush: seconds between samples and between frames (what kill -9 may lose).
    problem: why nothing is written any more (a full disk), else None; a run goes on without its samples."""

    def __init__(
        self, directory: Path, *, writer: str = "local", period: float = 1.0, flush: float = 10.0
    ) -> None:
        self._path = directory / f"{writer}.jsonl.zst"
        self._period, self._flush = period, flush
        self._files = HeldFiles()
        self._lock = threading.Lock()
        self._scopes = {"node": _Scope(NODE_FILES)}
        self._pending: list[_Raw] = []
        self._thread: threading.Thread | None = None
        self._frames: FrameWriter | None = None
        self._stop: tuple[int, int] = (-1, -1)
        self.problem: str | None = None

    def __enter__(self) -> Sampler:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._frames = FrameWriter(self._path)
            scale = local_scale()
            header = (
                f'{{"schema":{SCHEMA},"tick":{scale.tick},"page":{scale.page},"period":{self._period}}}\n'
            )
            self._frames.append(header.encode())
        except OSError as e:
            self._fail(e)
        self._stop = os.pipe()
        self._sample()
        self._thread = threading.Thread(target=self._loop, name="nearmetal-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        os.close(self._stop[1])  # wakes the thread: the other end hangs up
        self._thread.join()
        self._thread = None
        os.close(self._stop[0])
        self._scopes = {name: _Scope(scope.all) for name, scope in self._scopes.items()}
        self._sample()  # everything once more
        self._write()
        if self._frames is not None:
            self._frames.close()
            self._frames = None
        self._files.close()

    def add_instance(self, name: str, cgroups: Mapping[str, Path]) -> None:
        """From now on sample this instance's cgroups (directory by v1 controller, or {'unified': ...}) as
        scope 'instance.<name>'; without cgroups there is nothing to sample, and that is what will be read."""
        with self._lock:
            self._scopes[f"instance.{name}"] = _Scope(cgroup_paths(cgroups))

    def remove_instance(self, name: str) -> None:
        """Take a last sample of it and let its files go; harmless when it is not known."""
        with self._lock:
            scope = self._scopes.pop(f"instance.{name}", None)
            if scope is None:
                return
            last = {f"instance.{name}": read_files(self._files, scope.all)}
            self._pending.append((time.time(), time.monotonic(), last))
            for path in scope.all.values():
                self._files.forget(path)

    def _loop(self) -> None:
        hang_up = select.poll()  # the cheapest wait that can be ended early: half of what a lock takes
        hang_up.register(self._stop[0], 0)
        due = time.monotonic() + self._period
        flush = due + self._flush
        while not hang_up.poll(max(0.0, due - time.monotonic()) * 1000.0):
            self._sample()
            now = time.monotonic()
            if now >= flush:
                self._write()
                flush = now + self._flush
            # Never two samples in a hurry after a suspend or a long wait: the times are in the samples.
            due = max(due + self._period, now)

    def _sample(self) -> None:
        with self._lock:
            scopes = {name: read_files(self._files, scope.due()) for name, scope in self._scopes.items()}
            self._pending.append((time.time(), time.monotonic(), scopes))

    def _write(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, []
        if self._frames is None or not pending:
            return
        try:
            self._frames.append("".join(map(_line, pending)).encode())
        except OSError as e:
            self._fail(e)

    def _fail(self, error: OSError) -> None:
        self.problem = f"{self._path}: {error.strerror or error}"
        if self._frames is not None:
            self._frames.close()
            self._frames = None


def _line(raw: _Raw) -> str:
    """One JSON line: Unix and monotonic seconds, then raw text by scope and file."""
    unix, monotonic, scopes = raw
    inner = []
    for scope, files in scopes.items():
        texts = ",".join([f'"{name}":{to_json(data)}' for name, data in files.items()])
        inner.append(f"{_quote(scope)}:{{{texts}}}")
    return f'{{"time":{unix!r},"monotonic":{monotonic!r},"scopes":{{{",".join(inner)}}}}}\n'
