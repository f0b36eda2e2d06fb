"""The sampler of the node: starts nm-sample, sends it the files to read, and compresses its raw lines when
the run ends. Nothing is parsed here.

nm-sample is a program in C. A thread in Python needed 1.7 times as much CPU time per sample as vmstat, and
could delay nearmetal; nm-sample needs about as much as vmstat (benchmarks/sampler.py). nm-sample exits when
nearmetal ends for any reason.

By default a sample is taken every second. Some files are read only in every fifth sample: those that the
kernel updates only every 5 s (load averages); those that are expensive to collect or whose counters are also
in another file (meminfo, memory.stat of a control group); and, with cgroup v1, throttling and the CPU time in
nanoseconds. Pressure, which is the most expensive, is read in every second sample. Sums over a run remain
exact; only the resolution in time is lower.
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
from ..host.untrusted import UntrustedDirectory
from ..model.scope import NODE, Scope
from ..records.json_files import parse_json
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
_COST = ".cost.json"


@dataclass(frozen=True, kw_only=True)
class SamplingCost:
    """The cost of sampling.

    seconds: time from the first to the last sample.
    cpu: seconds of CPU time that the sampler used.
    samples: number of samples.
    """

    seconds: float
    cpu: float
    samples: int

    @property
    def share(self) -> float | None:
        """CPU time as a fraction of one core; None if there was no sampling."""
        return self.cpu / self.seconds if self.seconds > 0 else None

    def __add__(self, other: SamplingCost) -> SamplingCost:
        return SamplingCost(
            seconds=self.seconds + other.seconds,
            cpu=self.cpu + other.cpu,
            samples=self.samples + other.samples,
        )


NO_COST = SamplingCost(seconds=0.0, cpu=0.0, samples=0)


class Sampler:
    """Samples counters from entry to exit, and writes them to <directory>/<writer>.jsonl.zst. Extra samples
    are taken at the beginning and at the end.

    Until exit, the lines are in an uncompressed file next to it. If a killed sampler has left such lines, the
    next sampler of the same writer compresses them.

    writer: name of the process that writes records, for the file name.
    program: path of nm-sample.
    also: additional files of the node: name -> path.
    period: seconds between two samples.
    flush: seconds between two writes to the disk; samples that are not yet written are lost in a power cut.
    raw: path of the file with the uncompressed lines, which exists until exit.
    problem: why sampling has failed (for example a full disk), else None. A run continues without samples.
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
        self._files, self._cost_file = UntrustedDirectory.part(directory), f"{writer}{_COST}"
        self.raw, self._errors = raw_beside(self._path), directory / f"{writer}.stderr.txt"
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
        self._commands.add(NODE, self._node_files, _EVERY)
        self.mark(NODE)
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
        """Begin to sample the control groups of an instance as scope 'instance.<name>'.

        An instance that ends before the next sample has no samples; its counters are still in the record of
        its trial. Nothing is sampled for an instance that has neither control groups nor threads.
        cgroups: directory by controller of version 1, or {'unified': directory}.
        threads: thread IDs, on the machine, of the CPUs of a guest.
        """
        cpus = {f"{SCHEDSTAT}{n}": f"/proc/{thread}/schedstat" for n, thread in enumerate(threads)}
        paths = cgroup_paths(cgroups) | cpus
        self._commands.add(self.scope_of(name), paths, _EVERY_V1 if "cpuacct.stat" in paths else _EVERY)

    def remove_instance(self, name: str) -> None:
        """Stop sampling an instance. Harmless if it is not known."""
        self._commands.remove(self.scope_of(name))

    @staticmethod
    def scope_of(instance: str) -> Scope:
        """Return the scope of an instance that is added with this name. Other characters than letters, digits
        and '._-' are replaced."""
        return Scope.instance(re.sub(r"[^A-Za-z0-9._-]", "_", instance))

    def mark(self, *scopes: Scope) -> None:
        """Sample these scopes now, and write all samples so far to the file."""
        self._commands.mark(*scopes)

    def _start(self) -> None:
        milliseconds = (str(round(self._period * 1000)), str(round(self._flush * 1000)))
        with self._commands.opened() as reader:
            self._files.unlink(self._errors.name)  # it may be a link that somebody planted
            argv = [self._program, str(reader), str(self.raw), *milliseconds]
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
            text = self._files.read_bytes(self._errors.name).decode(errors="replace")
            if code != 0:
                self.problem = self.problem or describe_failure(Path(self._program).name, code, text)
            self._files.unlink(self._errors.name)

    def _compress(self) -> None:
        """Append the raw lines to the compressed file. A new file first gets its header."""
        with contextlib.suppress(OSError):
            self._add_cost(cost_of_samples(self._files, self.raw.name))
        with contextlib.closing(FrameWriter(self._path)) as frames:
            if not frames.last:
                scale = local_scale()
                header = f'{{"schema":{SCHEMA},"tick":{scale.tick},"page":{scale.page}}}\n'
                frames.append(header.encode())
            with contextlib.suppress(FileNotFoundError), self._files.open_file(self.raw.name) as file:
                for lines in whole_lines(file, _FRAME, frames.last):
                    frames.append(lines)
        self._files.unlink(self.raw.name)

    def _add_cost(self, more: SamplingCost) -> None:
        if more.samples:
            total = (sampling_cost(self._files, self._cost_file) or NO_COST) + more
            self._files.replace_file(self._cost_file, f"{json.dumps(asdict(total))}\n".encode())


def sampling_cost(directory: UntrustedDirectory, name: str) -> SamplingCost | None:
    """Read a file <writer>.cost.json; None if it does not exist, is refused or is corrupt."""
    try:
        return msgspec.json.decode(directory.read_bytes(name), type=SamplingCost)
    except (OSError, ValueError, RecursionError):
        return None


def costs_in(directory: UntrustedDirectory) -> SamplingCost | None:
    """Return the total cost of all samplers of a run; None if it is not known.

    directory: the directory samples/ of a results directory.
    """
    try:
        names = [name for name in directory.names() if name.endswith(_COST)]
    except OSError:
        return None
    found = [cost for name in names if (cost := sampling_cost(directory, name)) is not None]
    return sum(found, NO_COST) if found else None


def cost_of_samples(directory: UntrustedDirectory, raw: str) -> SamplingCost:
    """Return the cost of the samples in a file of raw lines, each of which contains the CPU time that
    nm-sample has used so far. NO_COST if the file does not exist or ends with an incomplete line.

    Raises OSError.
    """
    try:
        first, last, samples = b"", b"", 0
        for last in directory.lines(raw):
            first, samples = first or last, samples + 1
    except FileNotFoundError:
        return NO_COST
    try:
        begin, end = parse_json(first or b"{}"), parse_json(last or b"{}")
        return SamplingCost(
            seconds=float(end["monotonic"]) - float(begin["monotonic"]),
            cpu=float(end["own"]) - float(begin["own"]),
            samples=samples,
        )
    except (ValueError, KeyError, TypeError):  # incomplete last line of a killed sampler: unknown cost
        return NO_COST
