"""Parsers of counter files of /proc and cgroups, from bytes to numbers in base units. No I/O.

A missing value is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

Counters = dict[str, float | None]

#: Columns of the cpu line (proc_stat(5)); a kernel that lacks one leaves it out at the end.
_CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_IDLE = ("idle", "iowait", "steal")
_VMSTAT = (
    (b"\npgpgin ", "blocks_in"),
    (b"\npgpgout ", "blocks_out"),
    (b"\npswpin ", "swap_in"),
    (b"\npswpout ", "swap_out"),
)
_MEMINFO = (
    (b"\nMemTotal:", "memory_total"),
    (b"\nMemFree:", "memory_free"),
    (b"\nMemAvailable:", "memory_available"),
    (b"\nActive:", "memory_active"),
    (b"\nInactive:", "memory_inactive"),
    (b"\nSwapTotal:", "swap_total"),
    (b"\nSwapFree:", "swap_free"),
)
#: Counters out of cpu.stat: version 2 counts microseconds, version 1 throttled time in nanoseconds.
_CPU_STAT = (
    ("cpu", "usage_usec", 1e-6),
    ("user", "user_usec", 1e-6),
    ("system", "system_usec", 1e-6),
    ("throttled", "throttled_usec", 1e-6),
    ("throttled", "throttled_time", 1e-9),
    ("throttled_periods", "nr_throttled", 1.0),
)
_LOADS = ("load1", "load5", "load15")
_PRESSURES = ("cpu", "memory", "io")
SCHEDSTAT = "schedstat."
"""Prefix of the name of a vCPU thread's file /proc/<tid>/schedstat."""
VCPU = ("vcpu", "vcpu_delay")
"""Counters in the files of vCPU threads: seconds that the threads ran, and seconds that they waited for a
CPU.
"""

#: Counters that are levels. All others only grow.
LEVELS = frozenset((*(name for _, name in _MEMINFO), *_LOADS, "memory", "swap"))
#: Counters that grow but may decrease: idle times, which kernels sometimes correct downwards.
MAY_FALL = frozenset(("idle", "iowait"))


@dataclass(frozen=True, kw_only=True)
class CounterUnits:
    """The units of the kernel that wrote the files.

    tick: ticks per second (USER_HZ).
    page: size of a page in bytes.
    """

    tick: int
    page: int


def node_counters(files: Mapping[str, bytes], scale: CounterUnits) -> Counters:
    """Return the counters of a node from the raw contents of its files.

    files: contents by name: stat, vmstat, meminfo, loadavg, pressure.cpu, ..., and cpuacct.usage or
        'cpu.stat' of the root cgroup.

    Cumulative counters: seconds of CPU time by kind, 'busy' (all but idle, iowait and steal), bytes
    (blocks_in, blocks_out, swap_in, swap_out), interrupts, context_switches, seconds of pressure.
    Levels: memory_*, swap_* in bytes, load*.
    'busy' comes from the scheduler's clock if the root cgroup provides it (the last tick of a running task
    may be missing), else from /proc/stat (sampled at ticks).
    """
    out = cpu_counters(files.get("stat", b""), scale)
    out |= dict.fromkeys(_LOADS)
    units = {"blocks_in": 1024, "blocks_out": 1024, "swap_in": scale.page, "swap_out": scale.page}
    for name, number in _lines(files.get("vmstat", b""), _VMSTAT):
        out[name] = _times(number, units[name])
    for name, number in _lines(files.get("meminfo", b""), _MEMINFO):
        out[name] = _times(number, 1024)
    if out["memory_free"] is None:
        out["memory_free"] = _times(_line(files.get("vmstat", b""), b"nr_free_pages "), scale.page)
    for name, word in zip(_LOADS, files.get("loadavg", b"").split(), strict=False):
        out[name] = _number(word)
    for resource in _PRESSURES:
        out |= _pressure(resource, files.get(f"pressure.{resource}", b""))
    exact = _root_cpu(files)
    out["busy"] = exact if exact is not None else out["busy"]
    return out


def instance_counters(files: Mapping[str, bytes], scale: CounterUnits) -> Counters:
    """Return the counters of an instance from the raw contents of its cgroup files (version 1 or 2), by file
    name.

    cpu, user, system: seconds.
    throttled: seconds in which the CPU quota stopped the instance, added over CPUs.
    throttled_periods: periods of the quota in which it was stopped.
    memory, swap: present bytes.
    page_faults, major_faults: number of page faults.
    limit_hits: number of times that the memory limit was reached.
    blocks_in, blocks_out: bytes.
    pressure: seconds (version 2 only).
    vcpu, vcpu_delay: for guests only, seconds that the vCPU threads ran, and seconds that they waited for a
        CPU.
    """
    names = ("cpu", "user", "system", "throttled", "throttled_periods", "memory", "swap")
    out: Counters = dict.fromkeys((*names, "page_faults", "major_faults", "limit_hits"))
    stat = dict(_pairs(files.get("cpu.stat", b"")))
    for name, key, unit in _CPU_STAT:
        out[name] = stat[key] * unit if key in stat else out[name]
    if memory := files.get("memory.stat"):
        for name, line in (("page_faults", b"pgfault "), ("major_faults", b"pgmajfault ")):
            # In version 1, the counters with this prefix include the groups below; the others do not.
            total = _line(memory, b"total_" + line)
            out[name] = _line(memory, line) if total is None else total
        out["swap"] = _line(memory, b"total_swap ")
    out["limit_hits"] = _line(files.get("memory.events", b""), b"max ")
    if "memory.failcnt" in files:
        out["limit_hits"] = _number(files["memory.failcnt"].strip())
    if "cpuacct.usage" in files:
        usage = _number(files["cpuacct.usage"].strip())
        out["cpu"] = usage / 1e9 if usage is not None else None
    for key, number in _pairs(files.get("cpuacct.stat", b"")):
        if key in ("user", "system"):
            out[key] = number / scale.tick
    for name in ("memory.current", "memory.usage_in_bytes"):
        if name in files:
            out["memory"] = _number(files[name].strip())
    if "memory.swap.current" in files:
        out["swap"] = _number(files["memory.swap.current"].strip())
    out |= _blocks(files)
    for resource in _PRESSURES:
        out |= _pressure(resource, files.get(f"{resource}.pressure", b""))
    threads = [files[name].split() for name in files if name.startswith(SCHEDSTAT)]
    if threads:
        for place, name in enumerate(VCPU):
            own = [_number(words[place]) if len(words) > place else None for words in threads]
            known = [nanoseconds for nanoseconds in own if nanoseconds is not None]
            out[name] = sum(known) / 1e9 if len(known) == len(own) else None
    return out


def proportional_set(rollup: bytes) -> float | None:
    """Return the proportional set size of one process in bytes: Pss of /proc/<pid>/smaps_rollup. Shared
    memory is divided among the processes that share it."""
    return _times(_line(rollup, b"Pss:"), 1024)


def cpu_counters(text: bytes, scale: CounterUnits) -> Counters:
    """Return the counters of /proc/stat: seconds of CPU time by kind and 'busy', interrupts,
    context_switches.
    """
    out: Counters = dict.fromkeys(_CPU)
    for name, field in zip(_CPU, _rest(text, b"cpu ").split(), strict=False):
        ticks = _number(field)
        out[name] = ticks / scale.tick if ticks is not None else None
    out["interrupts"] = _line(text, b"intr ")
    out["context_switches"] = _line(text, b"ctxt ")
    kinds = [out[name] for name in _CPU if name not in _IDLE]
    known = [seconds for seconds in kinds if seconds is not None]
    out["busy"] = sum(known) if len(known) == len(kinds) else None
    return out


def _root_cpu(files: Mapping[str, bytes]) -> float | None:
    if "cpuacct.usage" in files:
        usage = _number(files["cpuacct.usage"].strip())
        if usage is not None:
            return usage / 1e9
    micros = dict(_pairs(files.get("cpu.stat", b""))).get("usage_usec")
    return micros / 1e6 if micros is not None else None


def _pressure(resource: str, text: bytes) -> Counters:
    """Return the seconds in which some tasks (or all, 'full') stalled; the kernel reports microseconds in
    'total='.
    """
    kinds = ("some",) if resource == "cpu" else ("some", "full")
    out: Counters = {f"pressure_{resource}_{kind}": None for kind in kinds}
    for kind in kinds if text else ():
        _, found, total = _rest(text, kind.encode() + b" ").rpartition(b"total=")
        microseconds = _number(total) if found else None
        out[f"pressure_{resource}_{kind}"] = None if microseconds is None else microseconds / 1e6
    return out


def _blocks(files: Mapping[str, bytes]) -> Counters:
    """Return the bytes read and written by a cgroup, over all devices.

    The file is io.stat (version 2; empty before the first request) or blkio (version 1; always ends with a
    total).
    """
    done = {"blocks_in": 0.0, "blocks_out": 0.0}
    for line in files.get("io.stat", b"").splitlines():
        for word in line.split():
            key, _, value = word.partition(b"=")
            if key in (b"rbytes", b"wbytes"):
                done["blocks_in" if key == b"rbytes" else "blocks_out"] += _number(value) or 0.0
    plain = "blkio.throttle.io_service_bytes"
    blkio = files.get(f"{plain}_recursive") or files.get(plain, b"")
    for line in blkio.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in (b"Read", b"Write"):
            done["blocks_in" if words[1] == b"Read" else "blocks_out"] += _number(words[2]) or 0.0
    return {name: total if "io.stat" in files or blkio else None for name, total in done.items()}


def _line(text: bytes, head: bytes) -> float | None:
    """Return the number after `head` at the beginning of a line.

    Much faster than splitting a file of 200 lines.
    """
    at = _behind(text, head)
    words = text[at : at + 64].split(None, 1) if at else ()
    return _number(words[0]) if words else None


def _lines(text: bytes, wanted: Iterable[tuple[bytes, str]]) -> Iterator[tuple[str, float | None]]:
    """Find the number of each line as _line() does, and yield (name, number).

    wanted: (newline and head, name) of each line.
    """
    text = b"\n" + text
    for head, name in wanted:
        at = text.find(head)
        words = text[at + len(head) : at + len(head) + 64].split(None, 1) if at >= 0 else ()
        yield name, _number(words[0]) if words else None


def _rest(text: bytes, head: bytes) -> bytes:
    at = _behind(text, head)
    end = text.find(b"\n", at)
    return text[at : end if end >= 0 else None] if at else b""


def _behind(text: bytes, head: bytes) -> int:
    """Return the position after `head` in the line that begins with it, or 0 if there is no such line. `head`
    must not be empty."""
    if text.startswith(head):
        return len(head)
    at = text.find(b"\n" + head)
    return at + 1 + len(head) if at >= 0 else 0


def _times(number: float | None, unit: float) -> float | None:
    return None if number is None else number * unit


def _pairs(text: bytes) -> list[tuple[str, float]]:
    """Parse lines of 'name number ...'; other lines are left out."""
    out = []
    for line in text.splitlines():
        words = line.split(None, 2)
        number = _number(words[1]) if len(words) > 1 else None
        if number is not None:
            out.append((words[0].decode("ascii", "replace"), number))
    return out


def _number(word: bytes) -> float | None:
    """Parse a number as kernels write it: digits, optionally with one dot. Returns None for any other
    text."""
    if (word.isdigit() or word.replace(b".", b"", 1).isdigit()) and len(word) <= 30:
        return float(word)
    return None
