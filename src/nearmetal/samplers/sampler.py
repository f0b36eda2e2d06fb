"""The 1 Hz sampler: a thread that reads held files into memory and writes one compressed frame per 10 s.

A thread of the tool and not a process of its own: a sample costs the same CPU, and there is no second
interpreter to start, and none to find again after a crash. The tool sleeps while ranks run, so the thread seldom
waits for the interpreter lock. Nothing is parsed here; the text is kept for later.

At this rate everything is cold: waking up takes half of the time and reading most of the rest
(benchmarks/sampler.py). So the loop does no more than pread; what the kernel itself renews every 5 s only (load
averages), and levels that it also counts elsewhere or that are dear to gather (meminfo beside vmstat, a cgroup's
memory.stat), are read in every fifth sample; and long lists that nobody asks for are cut off at once."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as _quote
from pathlib import Path
from types import TracebackType

from ..host.counters import local_scale
from ..host.held import NODE_FILES, cgroup_paths
from .frames import FrameWriter

SCHEMA = 1
_SELDOM_EVERY = 5
_SELDOM = frozenset(("meminfo", "loadavg", "memory.stat", "memory.swap.current"))
_SIZE = 1 << 14
#: A read that is longer than this may not be the whole: kernels hand out some files page by page.
_LONG = 3968


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What one sample reads: descriptors, what they are, and which are to be cut down."""

    fds: tuple[int, ...]
    labels: tuple[tuple[str, str], ...]
    cuts: tuple[tuple[int, Callable[[bytes], bytes]], ...]


class Sampler:
    """Samples from `with` to its end into <directory>/<writer>.jsonl.zst, one sample at once at either end.

    period, flush: seconds between samples and between frames (what kill -9 may lose).
    problem: why nothing is written any more (a full disk), else None; a run goes on without its samples."""

    def __init__(
        self, directory: Path, *, writer: str = "local", period: float = 1.0, flush: float = 10.0
    ) -> None:
        self._path = directory / f"{writer}.jsonl.zst"
        self._period, self._flush = period, flush
        self._lock = threading.Lock()
        self._open: dict[str, dict[str, int]] = {}
        self._often = self._all = _plan({})
        self._taken = 0
        self._pending: list[tuple[float, float, _Plan, list[bytes]]] = []
        self._stop: tuple[int, int] = (-1, -1)
        self._thread: threading.Thread | None = None
        self._frames: FrameWriter | None = None
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
        self._add("node", NODE_FILES)
        self._sample(self._all)
        self._stop = os.pipe()
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
        self._sample(self._all)
        self._write()
        if self._frames is not None:
            self._frames.close()
            self._frames = None
        for scope in tuple(self._open):
            self._remove(scope)

    def add_instance(self, name: str, cgroups: Mapping[str, Path]) -> None:
        """From now on sample this instance's cgroups (directory by v1 controller, or {'unified': ...}) as
        scope 'instance.<name>', first of all now. An instance without cgroups has nothing to sample."""
        self._add(f"instance.{name}", cgroup_paths(cgroups))
        self._sample(_plan({f"instance.{name}": self._open[f"instance.{name}"]}))

    def remove_instance(self, name: str) -> None:
        """Take a last sample of it and let its files go; harmless when it is not known."""
        scope = f"instance.{name}"
        if scope in self._open:
            self._sample(_plan({scope: self._open[scope]}))
            self._remove(scope)

    def _add(self, scope: str, paths: Mapping[str, str]) -> None:
        self._remove(scope)
        opened = {}
        for name, path in paths.items():
            try:
                opened[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue  # not here: read back as unavailable
        with self._lock:
            self._open[scope] = opened
            self._replan()

    def _remove(self, scope: str) -> None:
        with self._lock:
            for fd in self._open.pop(scope, {}).values():
                os.close(fd)
            self._replan()

    def _replan(self) -> None:
        self._all = _plan(self._open)
        self._often = _plan(
            {s: {n: fd for n, fd in files.items() if n not in _SELDOM} for s, files in self._open.items()}
        )

    def _loop(self) -> None:
        hang_up = select.poll()  # the cheapest wait that can be ended early
        hang_up.register(self._stop[0], 0)
        due = time.monotonic() + self._period
        flush = due + self._flush
        while not hang_up.poll(max(0.0, due - time.monotonic()) * 1000.0):
            self._taken += 1
            now = self._sample(self._often if self._taken % _SELDOM_EVERY else None)
            if now >= flush:
                self._write()
                flush = now + self._flush
            # Never two samples in a hurry after a suspend or a long wait: the times are in the samples.
            due = max(due + self._period, now)

    def _sample(self, plan: _Plan | None) -> float:
        """Read the files of a plan (None: all) into memory; returns the monotonic time."""
        with self._lock:
            plan = plan or self._all
            now = time.monotonic()
            try:
                raw = [os.pread(fd, _SIZE, 0) for fd in plan.fds]
            except OSError:
                raw = [_pread(fd) for fd in plan.fds]
            for i, cut in plan.cuts:
                if len(raw[i]) > _LONG:
                    raw[i] = _rest(plan.fds[i], raw[i])
                raw[i] = cut(raw[i])
            self._pending.append((time.time(), now, plan, raw))
        return now

    def _write(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, []
        if self._frames is None or not pending:
            return
        try:
            self._frames.append("".join([_line(*sample) for sample in pending]).encode())
        except OSError as e:
            self._fail(e)

    def _fail(self, error: OSError) -> None:
        self.problem = f"{self._path}: {error.strerror or error}"
        if self._frames is not None:
            self._frames.close()
            self._frames = None


def _plan(files: Mapping[str, Mapping[str, int]]) -> _Plan:
    labels = tuple((scope, name) for scope, names in files.items() for name in names)
    return _Plan(
        fds=tuple(fd for names in files.values() for fd in names.values()),
        labels=labels,
        cuts=tuple((i, _CUTS[name]) for i, (_, name) in enumerate(labels) if name in _CUTS),
    )


def _pread(fd: int) -> bytes:
    """A file that has gone, or a controller that was switched off meanwhile, reads as nothing."""
    try:
        return os.pread(fd, _SIZE, 0)
    except OSError:
        return b""


def _rest(fd: int, data: bytes) -> bytes:
    while part := os.pread(fd, 1 << 16, len(data)):
        data += part
    return data


def cut_stat(data: bytes) -> bytes:
    """/proc/stat without the counts of each interrupt, which are most of it: their total stays."""
    begin = data.find(b" ", data.find(b"\nintr ") + 6)
    end = data.find(b"\nctxt")
    return data[:begin] + data[end:] if 0 < begin < end else data


def cut_vmstat(data: bytes) -> bytes:
    """/proc/vmstat down to nr_free_pages (its first line), the paging and the swapping (neighbours)."""
    begin, last = data.find(b"\npgpgin "), data.find(b"\npswpout ")
    end = data.find(b"\n", last + 1)
    return data[: data.find(b"\n")] + data[begin : end + 1] if 0 < begin < last < end else data


_CUTS: Mapping[str, Callable[[bytes], bytes]] = {"stat": cut_stat, "vmstat": cut_vmstat}


def _line(unix: float, monotonic: float, plan: _Plan, raw: list[bytes]) -> str:
    """One JSON line: Unix and monotonic seconds, then raw text by scope and file (latin-1 keeps every byte)."""
    scopes: dict[str, list[str]] = {}
    for (scope, name), data in zip(plan.labels, raw, strict=True):
        scopes.setdefault(scope, []).append(f'"{name}":{_quote(data.decode("latin-1"))}')
    inner = ",".join([f"{_quote(scope)}:{{{','.join(files)}}}" for scope, files in scopes.items()])
    return f'{{"time":{unix!r},"monotonic":{monotonic!r},"scopes":{{{inner}}}}}\n'
