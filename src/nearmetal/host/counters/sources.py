"""Sources of counters of an instance, in addition to the files that the sampler keeps open.

An instance of a backend may have further sources in an attribute `sources`: the counters inside a guest, the
run queue delay of its vCPUs. The record of a trial stores the counters of each source under its scope.
Counts over timed parts are added over all sources of an arm (see meters/inside.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...model.scope import Scope
from ..base import Host, text_of
from .files import CounterFiles, read_files
from .procfiles import SCHEDSTAT, VCPU, Counters, cpu_counters, instance_counters
from .trial import local_scale

#: Files of a group that are read for a timed part. Its memory.stat is expensive to collect.
_TIMED_FILES = frozenset(
    (
        *("cpu.stat", "cpuacct.usage", "cpuacct.stat", "memory.failcnt"),
        *("memory.events", "cpu.pressure", "memory.pressure", "io.pressure"),
    )
)
#: Levels, and counters that these files do not contain.
_NOT_HERE = frozenset(("memory", "swap", "page_faults", "major_faults", "blocks_in", "blocks_out"))


class Source(Protocol):
    """A source of counters.

    scope: its scope in a record, such as 'guest.<host name>' or 'vcpu.<host name>'.
    """

    @property
    def scope(self) -> Scope: ...

    def read(self) -> Counters:
        """Return the present counters in base units; None for an unavailable counter.

        It never raises an error for a counter that no longer exists. Counters with the same meaning have the
        names of procfiles ('steal', 'user', ...). 'vcpu_delay' is the seconds that vCPUs waited for CPUs,
        added over the vCPUs.
        """


@dataclass(frozen=True, kw_only=True)
class GroupSource:
    """The control groups of an instance."""

    files: CounterFiles

    def take(self) -> Mapping[str, bytes]:
        """Read the files now; parse() parses them later."""
        return self.files.read(_TIMED_FILES)

    def parse(self, taken: Mapping[str, bytes]) -> Counters:
        """See Source.read."""
        found = instance_counters(taken, local_scale())
        return {name: value for name, value in found.items() if name not in _NOT_HERE}


@dataclass(frozen=True, kw_only=True)
class NodeSource:
    """Steal and I/O wait of the whole node. They are meaningful while only one arm is busy on the node."""

    files: CounterFiles

    def take(self) -> Mapping[str, bytes]:
        """Read the file now; parse() parses it later."""
        return self.files.read(("stat",))

    def parse(self, taken: Mapping[str, bytes]) -> Counters:
        """See Source.read."""
        found = cpu_counters(taken.get("stat", b""), local_scale())
        return {name: found[name] for name in ("steal", "iowait")}


FileSource = GroupSource | NodeSource
"""Files that are read at both ends of a timed part, and parsed later."""


@dataclass(frozen=True, kw_only=True)
class VcpuSource:
    """Counts the time of the vCPU threads of a guest, in seconds: running (vcpu), and waiting for a CPU of
    the machine (vcpu_delay)."""

    scope: Scope
    host: Host
    threads: tuple[int, ...]

    def read(self) -> Counters:
        paths = {f"{SCHEDSTAT}{n}": f"/proc/{t}/schedstat" for n, t in enumerate(self.threads)}
        files = read_files(self.host, paths)
        if len(files) < len(self.threads):
            return dict.fromkeys(VCPU)
        found = instance_counters(files, local_scale())
        return {name: found.get(name) for name in VCPU}


KVM_STATISTICS = Path("/sys/kernel/debug/kvm")
EXITS = (
    *("exits", "io_exits", "mmio_exits", "halt_exits", "irq_exits", "irq_window_exits"),
    *("nmi_window_exits", "signal_exits", "request_irq_exits", "hypercalls", "insn_emulation"),
    *("tlb_flush", "pf_fixed"),
)
"""Counters of KVM for a virtual machine: exits from guest code by reason, flushes, and mapped pages.

Reasons of exits: io_exits: an emulated port; mmio_exits: memory of an emulated device; halt_exits: an idle
vCPU; irq_exits: an interrupt of the machine.
"""


@dataclass(frozen=True, kw_only=True)
class ExitSource:
    """The exits of a guest by reason, from the statistics of KVM.

    directory: directory of the virtual machine, '<process>-<descriptor>' below KVM_STATISTICS.
    """

    scope: Scope
    host: Host
    directory: Path

    def read(self) -> Counters:
        found = read_files(self.host, {name: str(self.directory / name) for name in EXITS})
        return {name: float(text) for name, text in found.items() if text.strip().isdigit()}


def exit_sources(
    scope: Scope, host: Host, threads: Sequence[int], statistics: Path = KVM_STATISTICS
) -> tuple[ExitSource, ...]:
    """Return the exit counters of the virtual machine with these vCPU threads; empty if the kernel shows none
    (without KVM, debugfs or root)."""
    status = text_of(host, f"/proc/{threads[0]}/status") if threads else ""
    process = re.search(r"^Tgid:\s*(\d+)$", status, re.MULTILINE)
    if process is None:
        return ()
    try:
        own = sorted(statistics.glob(f"{int(process[1])}-*"))
    except OSError:
        return ()
    return tuple(ExitSource(scope=scope, host=host, directory=d) for d in own[:1])
