"""The 1 Hz sampler: a thread that reads held files into memory and writes one compressed frame per 10 s.

A thread of the tool and not a process of its own: the same CPU per sample, measured (benchmarks/sampler.py), no
second interpreter to start and to find again after a crash. The tool sleeps while ranks run, so the thread does
not wait for its interpreter lock. Nothing is parsed here: raw text compresses well, and a later nearmetal may
find more in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as _quote
from pathlib import Path
from types import TracebackType

from ..host.counters import local_scale
from ..host.held import HeldFiles, cgroup_paths, node_paths, read_files
from .frames import FrameWriter

SCHEMA = 1

_Raw = tuple[float, float, dict[str, dict[str, bytes]]]


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
        self._instances: dict[str, Mapping[str, str]] = {}
        self._pending: list[_Raw] = []
        self._stop = threading.Lock()  # held while running: acquire(timeout) is the cheapest way to wait
        self._thread: threading.Thread | None = None
        self._frames: FrameWriter | None = None
        self._node: Mapping[str, str] = {}
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
        self._node = node_paths(self._files)
        self._stop.acquire()
        self._sample()
        self._thread = threading.Thread(target=self._loop, name="nearmetal-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        self._stop.release()
        self._thread.join()
        self._thread = None
        self._sample()
        self._write()
        if self._frames is not None:
            self._frames.close()
            self._frames = None
        self._files.close()

    def add_instance(self, name: str, cgroups: Mapping[str, Path]) -> None:
        """From now on sample this instance's cgroups (directory by v1 controller, or {'unified': ...}) as
        scope 'instance.<name>'; without cgroups there is nothing to sample, and that is what will be read."""
        with self._lock:
            self._instances[f"instance.{name}"] = cgroup_paths(cgroups)

    def remove_instance(self, name: str) -> None:
        """Take a last sample of it and let its files go; harmless when it is not known."""
        with self._lock:
            paths = self._instances.pop(f"instance.{name}", None)
            if paths is None:
                return
            last = {f"instance.{name}": read_files(self._files, paths)}
            self._pending.append((time.time(), time.monotonic(), last))
            for path in paths.values():
                self._files.forget(path)

    def _loop(self) -> None:
        due = time.monotonic() + self._period
        flush = due + self._flush
        while not self._stop.acquire(timeout=max(0.0, due - time.monotonic())):
            self._sample()
            now = time.monotonic()
            if now >= flush:
                self._write()
                flush = now + self._flush
            # Never two samples in a hurry after a suspend or a long wait: the times are in the samples.
            due = max(due + self._period, now)

    def _sample(self) -> None:
        with self._lock:
            scopes = {"node": read_files(self._files, self._node)}
            for name, paths in self._instances.items():
                scopes[name] = read_files(self._files, paths)
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
    """One JSON line: unix and monotonic seconds, then raw text by scope and file. Latin-1 keeps every byte."""
    unix, monotonic, scopes = raw
    inner = ",".join(
        f"{_quote(scope)}:{{"
        + ",".join(f"{_quote(name)}:{_quote(data.decode('latin-1'))}" for name, data in files.items())
        + "}"
        for scope, files in scopes.items()
    )
    return f'{{"time":{unix!r},"monotonic":{monotonic!r},"scopes":{{{inner}}}}}\n'
