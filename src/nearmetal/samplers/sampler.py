"""The 1 Hz sampler: nm-sample, started and told what to read; its raw lines, compressed when the run ends.

A program of its own and not a thread: in a thread, cold Python made a sample cost 1.7 x what vmstat takes,
where nm-sample costs about as much (benchmarks/sampler.py), and the tool has no thread that could delay it.
It ends by itself when the tool ends, however that ends. Nothing is parsed here. What the kernel itself renews
every 5 s only (load averages), and levels that it also counts elsewhere or that are dear to gather (meminfo
beside vmstat, a cgroup's memory.stat), are read in every fifth sample; so are, of cgroup v1, what a quota
held up and the CPU time to the nanosecond, beside the file that parts it into user's and system's. Pressure,
the dearest, is read in every second sample. These sums lose nothing by it: only what lies between is less
fine."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from ..host import Host, Process
from ..host.counters.files import NODE_FILES, cgroup_paths
from ..host.counters.procfiles import SCHEDSTAT
from ..host.counters.trial import local_scale
from ..host.processes.failure import describe_failure
from ..model.scope import Scope
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
    """What sampling took: seconds of its own CPU time in so many seconds, samples of all files or of one
    instance."""

    seconds: float
    cpu: float
    samples: int

    @property
    def share(self) -> float | None:
        """Of one core; None where nothing is known."""
        return self.cpu / self.seconds if self.seconds > 0 else None


class Sampler:
    """Samples from `with` to its end into <directory>/<writer>.jsonl.zst, one sample at once at either end.
    Until the end the lines lie beside it, uncompressed; read_samples reads both, and the next sampler of the
    same writer takes over what a killed one left.

    program: path of nm-sample; also: further files of the node, path by name; period, flush: seconds between
    samples and between writes (what a power cut may lose). problem: why there are no more samples (a full
    disk, no program), else None: a run goes on without them."""

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
        self._raw, self._said = raw_beside(self._path), directory / f"{writer}.stderr.txt"
        self._host, self._program = host, program
        self._period, self._flush = period, flush
        self._node_files = {**NODE_FILES, **(also or {})}
        self._commands = -1
        self._process: Process | None = None
        self.problem: str | None = None

    def __enter__(self) -> Sampler:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._compress()
            self._start()
        except OSError as e:
            self.problem = f"{self._path}: {e.strerror or e}"
        self._tell(_lines("node", self._node_files))
        self.mark("node")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hang_up()
        if self._process is not None:
            self._end(self._process)
            self._process = None
        try:
            self._compress()
        except OSError as e:
            self.problem = self.problem or f"{self._path}: {e.strerror or e}"

    def add_instance(self, name: str, cgroups: Mapping[str, Path], threads: Sequence[int] = ()) -> None:
        """From now on sample this instance's cgroups (directory by v1 controller, or {'unified': ...}) as
        scope 'instance.<name>'; one that is gone before the next sample leaves none, its trial's record tells
        what it took. An instance without cgroups has nothing to sample. threads: those of the machine that
        are a guest's CPUs."""
        cpus = {f"{SCHEDSTAT}{n}": f"/proc/{thread}/schedstat" for n, thread in enumerate(threads)}
        self._tell(_lines(_scope(name), cgroup_paths(cgroups) | cpus))

    def remove_instance(self, name: str) -> None:
        """Let its files go; harmless when it is not known."""
        self._tell(f"- {_scope(name)}\n")

    @property
    def raw(self) -> Path:
        """Where its lines lie until the end."""
        return self._raw

    @staticmethod
    def scope_of(instance: str) -> str:
        """The scope of an instance that was added by that name."""
        return _scope(instance)

    def mark(self, *scopes: str) -> None:
        """Sample these now, and write out what was sampled so far."""
        self._tell("".join(f"! {scope}\n" for scope in scopes))

    def _start(self) -> None:
        reader, self._commands = os.pipe()
        try:
            milliseconds = (str(round(self._period * 1000)), str(round(self._flush * 1000)))
            argv = [self._program, str(reader), str(self._raw), *milliseconds]
            self._process = self._host.start(
                argv, stdout=Path(os.devnull), stderr=self._said, pass_fds=(reader,)
            )
        except OSError:
            self._hang_up()
            raise
        finally:
            os.close(reader)

    def _tell(self, lines: str) -> None:
        if self._commands < 0:
            return
        try:
            os.write(self._commands, lines.encode())
        except BrokenPipeError:  # it ended: why is said at the end
            self._hang_up()

    def _hang_up(self) -> None:
        if self._commands >= 0:
            os.close(self._commands)
            self._commands = -1

    def _end(self, process: Process) -> None:
        try:
            code = process.wait(_END_LIMIT)
        except TimeoutError:
            process.kill()
            code = None
        with contextlib.suppress(OSError):
            text = self._said.read_text(errors="replace")
            if code != 0:
                self.problem = self.problem or describe_failure(Path(self._program).name, code, text)
            self._said.unlink()

    def _compress(self) -> None:
        """Move the raw lines behind the compressed ones; a new file gets its header first."""
        with contextlib.suppress(OSError):
            self._add_cost(_cost(self._raw))
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
        had = sampling_cost(self._cost_file) or SamplingCost(seconds=0.0, cpu=0.0, samples=0)
        total = SamplingCost(
            seconds=had.seconds + more.seconds,
            cpu=had.cpu + more.cpu,
            samples=had.samples + more.samples,
        )
        if more.samples:
            self._cost_file.write_text(json.dumps(asdict(total)) + "\n")


def sampling_cost(path: Path) -> SamplingCost | None:
    """What <writer>.cost.json holds; None where there is none."""
    try:
        found = json.loads(path.read_text())
        return SamplingCost(
            seconds=float(found["seconds"]), cpu=float(found["cpu"]), samples=int(found["samples"])
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def costs_in(directory: Path) -> SamplingCost | None:
    """Of all writers' samplers below a results directory's samples/; None where nothing is known."""
    found = [c for p in sorted(directory.glob("*.cost.json")) if (c := sampling_cost(p)) is not None]
    if not found:
        return None
    return SamplingCost(
        seconds=sum(c.seconds for c in found),
        cpu=sum(c.cpu for c in found),
        samples=sum(c.samples for c in found),
    )


def _cost(raw: Path) -> SamplingCost:
    """Of what lies in raw lines. Raises OSError."""
    try:
        with raw.open("rb") as file:
            first, last, samples = b"", b"", 0
            for last in file:
                first, samples = first or last, samples + 1
    except FileNotFoundError:
        return SamplingCost(seconds=0.0, cpu=0.0, samples=0)
    try:
        begin, end = json.loads(first or b"{}"), json.loads(last or b"{}")
        return SamplingCost(
            seconds=float(end["monotonic"]) - float(begin["monotonic"]),
            cpu=float(end["own"]) - float(begin["own"]),
            samples=samples,
        )
    except (ValueError, KeyError, TypeError):  # a torn last line of a killed sampler: a cost not known
        return SamplingCost(seconds=0.0, cpu=0.0, samples=0)


def _scope(name: str) -> str:
    return str(Scope.instance(re.sub(r"[^A-Za-z0-9._-]", "_", name)))


def _lines(scope: str, paths: Mapping[str, str]) -> str:
    """Commands for nm-sample: read these files from now on."""
    every = _EVERY_V1 if "cpuacct.stat" in paths else _EVERY
    return "".join(f"+ {scope} {name} {every.get(name, 1)} {path}\n" for name, path in paths.items())
