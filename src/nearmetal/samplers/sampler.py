"""The 1 Hz sampler: starts nm-sample, tells it what to read, and compresses its raw lines when the run ends.

nm-sample is a program, not a thread: in a thread, cold Python made a sample cost 1.7 times as much as one of
vmstat, whereas nm-sample costs about as much (benchmarks/sampler.py). A thread could also delay the tool.
nm-sample ends by itself when the tool ends for any reason. Nothing is parsed here.

Some files are read only in every fifth sample: those that the kernel updates only every 5 s (load averages);
those that it also counts elsewhere or that are expensive to collect (meminfo besides vmstat, a cgroup's
memory.stat); and, with cgroup v1, throttling and the CPU time in nanoseconds. Pressure, the most expensive,
is read in every second sample. The sums remain exact; only their resolution in time is lower.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from ..host import Host, Process
from ..host.counters.files import NODE_FILES, cgroup_paths
from ..host.counters.procfiles import SCHEDSTAT
from ..host.counters.trial import local_scale
from ..host.processes.failure import describe_failure
from ..model.scope import Scope
from .commands import CommandPipe
from .frames import FrameWriter, raw_beside, whole_lines

SCHEMA = 1
_RESOURCES = ("cpu", "memory", "io")
_EVERY = {
    **dict.fromkeys(
        ("meminfo", "loadavg", "memory.stat", "memory.swap.current", "memory.failcnt", "memory.events"), 5
    ),
    **dict.fromkeys((f"pressure.{r}" for r in _RESOURCES), 2),
    **dict.fromkeys((f"{r}.pressure" for r in _RESOURCES), 2),
}
_EVERY_V1 = _EVERY | dict.fromkeys(("cpu.stat", "cpuacct.usage"), 5)
_END_LIMIT = 30.0
_FRAME = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SamplingCost:
    """The cost of sampling.

    seconds: how long samples were taken.
    cpu: seconds of CPU time that the sampler used.
    samples: number of samples, in all files or of one instance.
    """

    seconds: float
    cpu: float
    samples: int

    @property
    def share(self) -> float | None:
        """Fraction of one core; None if unknown."""
        return self.cpu / self.seconds if self.seconds > 0 else None

    def __add__(self, other: SamplingCost) -> SamplingCost:
        return SamplingCost(
            seconds=self.seconds + other.seconds,
            cpu=self.cpu + other.cpu,
            samples=self.samples + other.samples,
        )


NO_COST = SamplingCost(seconds=0.0, cpu=0.0, samples=0)


class Sampler:
    """Samples between entry and exit into <directory>/<writer>.jsonl.zst, with one extra sample at the
    beginning and at the end.

    Until exit the lines are in an uncompressed file beside it; read_samples reads both. The next sampler of
    the same writer takes over the lines that a killed one left.
    program: path of nm-sample.
    also: additional files of the node, path by name.
    period, flush: seconds between samples, and between writes (which a power cut may lose).
    problem: why there are no more samples (a full disk, no program), else None. A run goes on without
        samples.
    """

    def __init__(
        self,
        directory: Path,
        *,
        writer: str,
        host: Host,
        program: str,
        also: Mapping[str, str] | None = None,
        period: float = 1.0,
        flush: float = 10.0,
    ) -> None:
        self._path = directory / f"{writer}.jsonl.zst"
        self._cost_file = directory / f"{writer}.cost.json"
        self._raw, self._errors = raw_beside(self._path), directory / f"{writer}.stderr.txt"
        self._host, self._program = host, program
        self._period, self._flush = period, flush
        self._node_files = {**NODE_FILES, **(also or {})}
        self._commands = CommandPipe()
        self._process: Process | None = None
        self.problem: str | None = None

    def __enter__(self) -> Sampler:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._compress()
            self._start()
        except OSError as e:
            self.problem = f"{self._path}: {e.strerror or e}"
        self._commands.send(_lines("node", self._node_files))
        self.mark("node")
        return self

    def __exit__(self, *_: object) -> None:
        self._commands.close()
        if self._process is not None:
            self._end(self._process)
            self._process = None
        try:
            self._compress()
        except OSError as e:
            self.problem = self.problem or f"{self._path}: {e.strerror or e}"

    def add_instance(self, name: str, cgroups: Mapping[str, Path], threads: Sequence[int] = ()) -> None:
        """Begin to sample the cgroups of an instance as scope 'instance.<name>'.

        An instance that ends before the next sample has none; its trial's record contains its counters. An
        instance without cgroups has nothing to sample.
        cgroups: directory by v1 controller, or {'unified': ...}.
        threads: threads of the machine that run a guest's CPUs.
        """
        cpus = {f"{SCHEDSTAT}{n}": f"/proc/{thread}/schedstat" for n, thread in enumerate(threads)}
        self._commands.send(_lines(self.scope_of(name), cgroup_paths(cgroups) | cpus))

    def remove_instance(self, name: str) -> None:
        """Stop sampling an instance. Harmless if it is not known."""
        self._commands.send(f"- {self.scope_of(name)}\n")

    @property
    def raw(self) -> Path:
        """Path of the uncompressed lines until exit."""
        return self._raw

    @staticmethod
    def scope_of(instance: str) -> str:
        """Return the scope of an instance that was added with this name."""
        return str(Scope.instance(re.sub(r"[^A-Za-z0-9._-]", "_", instance)))

    def mark(self, *scopes: str) -> None:
        """Sample these scopes now, and write out all samples so far."""
        self._commands.send("".join(f"! {scope}\n" for scope in scopes))

    def _start(self) -> None:
        milliseconds = (str(round(self._period * 1000)), str(round(self._flush * 1000)))
        with self._commands.opened() as reader:
            argv = [self._program, str(reader), str(self._raw), *milliseconds]
            self._process = self._host.start(
                argv, stdout=Path(os.devnull), stderr=self._errors, pass_fds=(reader,)
            )

    def _end(self, process: Process) -> None:
        try:
            code = process.wait(_END_LIMIT)
        except TimeoutError:
            process.kill()
            code = None
        with contextlib.suppress(OSError):
            text = self._errors.read_text(errors="replace")
            if code != 0:
                self.problem = self.problem or describe_failure(Path(self._program).name, code, text)
            self._errors.unlink()

    def _compress(self) -> None:
        """Append the raw lines to the compressed file. A new file first gets its header."""
        with contextlib.suppress(OSError):
            self._add_cost(cost_of_samples(self._raw))
        frames = FrameWriter(self._path)
        try:
            if not frames.last:
                scale = local_scale()
                header = f'{{"schema":{SCHEMA},"tick":{scale.tick},"page":{scale.page}}}\n'
                frames.append(header.encode())
            with contextlib.suppress(FileNotFoundError), self._raw.open("rb") as file:
                for lines in whole_lines(file, _FRAME, frames.last):
                    frames.append(lines)
        finally:
            frames.close()
        self._raw.unlink(missing_ok=True)

    def _add_cost(self, more: SamplingCost) -> None:
        if more.samples:
            total = (sampling_cost(self._cost_file) or NO_COST) + more
            self._cost_file.write_text(json.dumps(asdict(total)) + "\n")


def sampling_cost(path: Path) -> SamplingCost | None:
    """Read <writer>.cost.json; None if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SamplingCost)
    except (OSError, ValueError):
        return None


def costs_in(directory: Path) -> SamplingCost | None:
    """Return the total cost of all writers' samplers in a results directory's samples/; None if not known."""
    found = [c for p in sorted(directory.glob("*.cost.json")) if (c := sampling_cost(p)) is not None]
    return sum(found, NO_COST) if found else None


def cost_of_samples(raw: Path) -> SamplingCost:
    """Return the cost recorded in raw lines.

    Raises OSError.
    """
    try:
        with raw.open("rb") as file:
            first, last, samples = b"", b"", 0
            for last in file:
                first, samples = first or last, samples + 1
    except FileNotFoundError:
        return NO_COST
    try:
        begin, end = json.loads(first or b"{}"), json.loads(last or b"{}")
        return SamplingCost(
            seconds=float(end["monotonic"]) - float(begin["monotonic"]),
            cpu=float(end["own"]) - float(begin["own"]),
            samples=samples,
        )
    except (ValueError, KeyError, TypeError):  # incomplete last line of a killed sampler: unknown cost
        return NO_COST


def _lines(scope: str, paths: Mapping[str, str]) -> str:
    """Return commands that make nm-sample read these files."""
    every = _EVERY_V1 if "cpuacct.stat" in paths else _EVERY
    return "".join(f"+ {scope} {name} {every.get(name, 1)} {path}\n" for name, path in paths.items())
