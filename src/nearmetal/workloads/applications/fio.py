"""fio: measures reads and writes of an instance's storage by block size, with direct I/O or through the page
cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...model.record import JsonValue
from ...model.study import Better
from ..json_text import at_path, first_object, number_at
from ..parameter import AUTO, Choices, Kind, Parameter
from .contract import Application, Invocation, Metric, Needs, Output, Parsed, Place, metrics_of
from .fio_jobs import MOST_BLOCK, PATTERNS, FioJob, jobs, read_blocks
from .several import cache_sentence, file_size

#: By metric: percentile of the latency, in fio's notation.
PERCENTILES = {"p50": "50.000000", "p99": "99.000000", "p999": "99.900000"}
#: If a device saw less than this fraction of the program's requests, a cache has served the rest.
SERVED = 0.5
#: Least seconds of requests of one kind for this check: fio reads the device's counters every quarter of a
#: second, and misses what comes after the last reading.
TOLD_FROM = 1.0
ROOF_DEPTH = 8
FILE, RESULT = "nearmetal.data", "fio.json"

PARAMETERS = (
    Parameter(
        "mode",
        Kind.WORD,
        "direct",
        "direct: past the page cache (O_DIRECT); buffered: through it",
        words=("direct", "buffered"),
    ),
    Parameter("pattern", Kind.WORD, "all", "order of the blocks", words=("all", "sequential", "random")),
    Parameter("operation", Kind.WORD, "all", "what is done", words=("all", "read", "write")),
    Parameter(
        "block",
        Kind.TEXT,
        AUTO,
        "bytes of a request, or a range in steps of 4 (4 KiB..1 MiB); auto: 1 MiB in sequence, 4 KiB "
        "at random",
    ),
    Parameter(
        "size",
        Kind.BYTES,
        256 << 20,
        "of the file; auto: twice the memory of an instance",
        auto=True,
        least=MOST_BLOCK,
        most=1 << 44,
    ),
    Parameter("seconds", Kind.SECONDS, 1.0, "length of each measurement", least=0.1, most=3600),
    Parameter(
        "engine",
        Kind.WORD,
        "psync",
        "how requests are made: by pread and pwrite, or asynchronously",
        words=("psync", "libaio", "io_uring"),
    ),
    Parameter("depth", Kind.WHOLE, 1, "requests at a time, of asynchronous engines", most=1024),
)


class Fio(Application):
    """Debian's fio."""

    name = "fio"
    of_files = True
    doc = "storage: bandwidth, requests a second and their latencies, direct or buffered"
    parameters = PARAMETERS

    def needs(self, choices: Choices) -> Needs:
        return Needs(programs=("fio",), packages=("fio",), storage=True)

    def problem(self, choices: Choices, place: Place) -> str | None:
        blocks = read_blocks(choices.word("block"))
        if isinstance(blocks, str):
            return blocks
        if choices.word("engine") == "psync" and choices.whole("depth") != 1:
            return "engine psync makes one request at a time; depth is for libaio and io_uring"
        return None

    def prepare(self, choices: Choices, place: Place) -> tuple[Invocation, ...]:
        """Return a launch that writes the file once, so that the measurement finds all its blocks
        allocated."""
        laid_out = ("--name=layout", "--rw=write", f"--bs={MOST_BLOCK}", "--end_fsync=1")
        return (Invocation(argv=(*_fio(file_size(choices, place)), f"--output={RESULT}", *laid_out)),)

    def command(self, choices: Choices, place: Place) -> Invocation:
        direct = choices.word("mode") == "direct"
        every = (
            f"--output={RESULT}",  # so that standard error contains only fio's errors
            f"--direct={int(direct)}",
            f"--invalidate={int(direct)}",  # a buffered file stays in the cache, as far as it fits
            f"--ioengine={choices.word('engine')}",
            f"--iodepth={choices.word('depth')}",
            f"--runtime={round(choices.real('seconds') * 1000)}ms",
            "--time_based",
            "--lat_percentiles=1",
            "--clat_percentiles=0",
            "--percentile_list=50:99:99.9",
        )
        measured = [
            word
            for job in jobs(choices)
            for word in (
                f"--name={job.name}",
                "--stonewall",
                f"--rw={job.rw}",
                f"--bs={job.block}",
                *_ended(job),
            )
        ]
        return Invocation(argv=(*_fio(file_size(choices, place)), *every, *measured), outputs=(RESULT,))

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return tuple(entry for job in jobs(choices) for entry in _metrics(job))

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        document = first_object(output.files.get(RESULT, ""), "jobs")
        found = _by_name(document)
        return Parsed(
            metrics=tuple(m for job in jobs(choices) for m in _read(job, found.get(job.name), output)),
            facts=_facts(choices, place, document, found),
        )


def roof_arguments(directory: Path, operation: str, *, seconds: float, size: int) -> tuple[str, ...]:
    """Return the command line that measures the upper bound of the disk below a directory: direct requests of
    1 MiB, several at a time.

    operation: 'read' or 'write'.
    The output is read by roof().
    """
    return (
        *("fio", "--output-format=json", "--eta=never", f"--name={operation}", f"--rw={operation}"),
        *(f"--directory={directory}", f"--filename={FILE}", f"--size={size}", f"--bs={MOST_BLOCK}"),
        *("--direct=1", "--ioengine=libaio", f"--iodepth={ROOF_DEPTH}", "--time_based"),
        f"--runtime={round(seconds * 1000)}ms",
    )


def roof(text: str, operation: str) -> float | None:
    """Return the result of roof_arguments() in B/s; None if it failed."""
    return _value(_by_name(first_object(text, "jobs")).get(operation), operation, "bw_bytes")


def _fio(size: int) -> tuple[str, ...]:
    return (
        *("fio", "--output-format=json", "--eta=never"),
        *("--name=global", "--directory={storage}", f"--filename={FILE}", f"--size={size}"),
    )


def _ended(job: FioJob) -> tuple[str, ...]:
    """Return arguments that flush the writes of a job at its end, so that they do not disturb the next
    measurement."""
    return ("--end_fsync=1",) if job.operation == "write" else ()


def _metrics(job: FioJob) -> tuple[tuple[str, str, Better], ...]:
    sequential = PATTERNS[job.rw][0] == "sequential"
    speed = ("bandwidth", "B/s") if sequential else ("rate", "op/s")
    return (
        (f"{job.name}_{speed[0]}", speed[1], Better.HIGHER),
        *((f"{job.name}_{name}", "s", Better.LOWER) for name in PERCENTILES),
    )


def _by_name(document: Mapping[str, JsonValue]) -> dict[str, Mapping[str, JsonValue]]:
    listed = document.get("jobs")
    found = (j for j in (listed if isinstance(listed, list) else ()) if isinstance(j, Mapping))
    return {str(j.get("jobname")): j for j in found}


def _value(job: Mapping[str, JsonValue] | None, *path: str) -> float | None:
    """Return a positive number from the results of a job; None if it failed."""
    if job is None or number_at(job, "error") != 0:
        return None
    value = number_at(job, *path)
    return value if value is not None and value > 0 else None


def _read(job: FioJob, found: Mapping[str, JsonValue] | None, output: Output) -> tuple[Metric, ...]:
    side = job.operation
    speed = _value(found, side, "bw_bytes" if PATTERNS[job.rw][0] == "sequential" else "iops")
    latencies = [_value(found, side, "lat_ns", "percentile", p) for p in PERCENTILES.values()]
    values = (speed, *(None if ns is None else ns / 1e9 for ns in latencies))
    named = _metrics(job)
    by_name = {name: value for (name, *_), value in zip(named, values, strict=True)}
    return metrics_of(named, by_name, lambda _: _missing(job, found, output))


def _missing(job: FioJob, found: Mapping[str, JsonValue] | None, output: Output) -> str:
    """Return why a metric has no value, with fio's own message if there is one."""
    if found is None:
        errors = [
            line for line in (*output.stderr.splitlines(), *output.stdout.splitlines()) if "fio: " in line
        ]
        return errors[0][:200] if errors else f"the output has no measurement {job.name}"
    error = number_at(found, "error")
    if error:
        refused = ": this file system refuses O_DIRECT" if error == 22 else ""
        return f"{job.name}: fio error {error:.0f}{refused}"
    return f"{job.name} made no request in its time"


def _facts(
    choices: Choices,
    place: Place,
    document: Mapping[str, JsonValue],
    found: Mapping[str, Mapping[str, JsonValue]],
) -> dict[str, JsonValue]:
    """Return facts for the record: the version, the size of the file, the device that the kernel counted, and
    whether a device or a cache served the requests."""
    size = file_size(choices, place)
    facts: dict[str, JsonValue] = {"size": size}
    if version := at_path(document, "fio version"):
        facts["version"] = str(version)[:60]
    devices = _devices(document)
    if devices:
        facts["device"] = ", ".join(devices)
    if choices.word("mode") == "buffered":
        facts["meets"] = cache_sentence(size, place.memory)
    elif found:
        facts["meets"] = _direct(jobs(choices), choices.real("seconds"), found, devices)
    return facts


def _devices(document: Mapping[str, JsonValue]) -> dict[str, dict[str, float]]:
    """Return the number of requests, including merged ones, that each device got while fio ran, for 'read'
    and 'write'."""
    listed = document.get("disk_util")
    out: dict[str, dict[str, float]] = {}
    for device in listed if isinstance(listed, list) else ():
        name = at_path(device, "name")
        if isinstance(name, str) and name:
            out[name[:60]] = {
                side: (number_at(device, f"{side}_ios") or 0) + (number_at(device, f"{side}_merges") or 0)
                for side in ("read", "write")
            }
    return out


def _direct(
    all_jobs: Sequence[FioJob],
    seconds: float,
    found: Mapping[str, Mapping[str, JsonValue]],
    devices: Mapping[str, Mapping[str, float]],
) -> str:
    """Return what served requests with O_DIRECT (a device or a cache), as far as it can be determined from
    outside the file system.

    seconds: duration of each job.
    """
    if not devices:
        return "not known: there is no block device below this file system (memory, network or an overlay)"
    counted = False
    for side in ("read", "write"):
        own = [j for j in all_jobs if j.operation == side]
        made = sum(number_at(found.get(j.name), side, "total_ios") or 0 for j in own)
        seen = sum(device[side] for device in devices.values())
        if len(own) * seconds >= TOLD_FROM:
            counted = True
            if seen < SERVED * made:
                return f"a cache: the device saw less than {SERVED:.0%} of the {side} requests"
    if any(name.startswith("loop") for name in devices):
        return "a loop device, whose file may be in the machine's page cache"
    if any(name.startswith(("vd", "xvd")) for name in devices):
        return "a virtual disk, which a cache of its machine may serve"
    return "the device" if counted else "the device, or a cache: too short to distinguish"
