"""Parses the output of xl and xentop. No I/O. Lines that do not have the expected form are skipped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .settings import XenScheduler

#: Column of `xentop -b` -> (nearmetal's name, factor to s, B or a plain count). All are counts since the
#: start of the domain, except its current memory.
_COUNTED = {
    "CPU(sec)": ("cpu_seconds", 1.0),
    "NETTX(k)": ("network_sent_bytes", 1024.0),
    "NETRX(k)": ("network_received_bytes", 1024.0),
    "VBD_OO": ("disk_waits", 1.0),
    "VBD_RD": ("disk_reads", 1.0),
    "VBD_WR": ("disk_writes", 1.0),
    "VBD_RSECT": ("disk_read_bytes", 512.0),
    "VBD_WSECT": ("disk_written_bytes", 512.0),
    "MEM(k)": ("memory_bytes", 1024.0),
}
_STATES = "rbpscd"
_HYPERVISOR = 1 << 31


@dataclass(frozen=True, kw_only=True)
class ListedDomain:
    """One line of `xl list`.

    state: letters of 'rbpscd' (running, blocked, paused, shut down, crashed, dying).
    """

    name: str
    id: int
    state: str


@dataclass(frozen=True, kw_only=True)
class VirtualCpu:
    """One line of `xl vcpu-list`.

    number: number of the vCPU in the domain.
    cpu: CPU of the machine on which it runs; None if it does not run on any.
    hard: hard affinity as xl prints it ('all', '0', '0-1').
    """

    domain: str
    number: int
    cpu: int | None
    hard: str


@dataclass(frozen=True, kw_only=True)
class SchedulerShare:
    """Weight and cap of one domain. The cap is in hundredths of one CPU; 0 means no cap."""

    domain: str
    weight: int
    cap: int


def _rows(form: str, text: str) -> Iterator[re.Match[str]]:
    """Yield the lines that match a regular expression as a whole."""
    return (row for line in text.splitlines() if (row := re.fullmatch(form, line)))


def domains(text: str) -> tuple[ListedDomain, ...]:
    """Parse `xl list`."""
    form = r"(\S+)\s+(\d{1,9})\s+\d{1,12}\s+\d{1,9}\s+([-a-z]+)\s+\d{1,15}\.\d+\s*"
    return tuple(
        ListedDomain(
            name=row[1],
            id=int(row[2]),
            state="".join(letter for letter in row[3] if letter in _STATES),
        )
        for row in _rows(form, text)
    )


def virtual_cpus(text: str) -> tuple[VirtualCpu, ...]:
    """Parse `xl vcpu-list`."""
    form = r"(\S+)\s+\d{1,9}\s+(\d{1,9})\s+(\d{1,9}|-)\s+\S{1,9}\s+\d{1,15}\.\d+\s+(\S+) / \S+\s*"
    return tuple(
        VirtualCpu(
            domain=row[1],
            number=int(row[2]),
            cpu=None if row[3] == "-" else int(row[3]),
            hard=row[4],
        )
        for row in _rows(form, text)
    )


def shares(text: str) -> tuple[SchedulerShare, ...]:
    """Parse `xl sched-credit` or `xl sched-credit2`."""
    form = r"(\S+)\s+\d{1,9}\s+(\d{1,9})\s+(\d{1,9})\s*"
    return tuple(
        SchedulerShare(domain=row[1], weight=int(row[2]), cap=int(row[3])) for row in _rows(form, text)
    )


def scheduler(info: str) -> XenScheduler | None:
    match = re.search(r"^xen_scheduler\s*:\s*(\S+)\s*$", info, re.MULTILINE)
    return XenScheduler(match[1]) if match and match[1] in set(XenScheduler) else None


def version(info: str) -> str:
    """Parse the version, such as '4.17.3', from the output of `xl info`; empty if it has none."""
    parts = dict(re.findall(r"^(xen_major|xen_minor|xen_extra)\s*:[ \t]*(\S*)\s*$", info, re.MULTILINE))
    if not {"xen_major", "xen_minor"} <= parts.keys():
        return ""
    return f"{parts['xen_major']}.{parts['xen_minor']}{parts.get('xen_extra', '')}"


def cpus(info: str) -> int:
    """Parse the machine's number of CPUs from the output of `xl info`; 0 if it has none."""
    match = re.search(r"^nr_cpus\s*:\s*(\d{1,9})\s*$", info, re.MULTILINE)
    return int(match[1]) if match else 0


def capabilities(info: str) -> frozenset[str]:
    """Parse the words of xen_caps and virt_caps from the output of `xl info`, such as 'xen-3.0-x86_64' (pv
    guests), 'hvm-3.0-x86_64' and 'hap'."""
    lines: list[tuple[str, str]] = re.findall(r"^(xen_caps|virt_caps)\s*:[ \t]*(.*)$", info, re.MULTILINE)
    return frozenset(word for _, words in lines for word in words.split())


def in_virtual_machine(info: str) -> bool:
    """Return whether the processor of the hypervisor reports that it is virtual, from the output of `xl
    info`.

    The bit is CPUID leaf 1, ECX bit 31: the second word of hw_caps.
    """
    match = re.search(r"^hw_caps\s*:\s*[0-9a-f]{8}:([0-9a-f]{8})\b", info, re.MULTILINE)
    return match is not None and bool(int(match[1], 16) & _HYPERVISOR)


def free_memory(info: str) -> int | None:
    """Parse the memory in bytes that no domain has from the output of `xl info`; None if it is not
    reported."""
    match = re.search(r"^free_memory\s*:\s*(\d{1,12})\s*$", info, re.MULTILINE)
    return int(match[1]) << 20 if match else None


def counters(text: str) -> dict[str, dict[str, float]]:
    """Parse the last table in the output of `xentop -b -f`: domain -> name (_COUNTED) -> value.

    The values are in s, B, or plain counts. A column that is missing or contains no number is left out.
    """
    found: dict[str, dict[str, float]] = {}
    header: list[str] = []
    for line in text.splitlines():
        words = line.replace("no limit", "no_limit").split()
        if words[:2] == ["NAME", "STATE"]:
            header, found = words, {}
            continue
        # The state has six letters. A line where it is not a separate word is skipped.
        if len(words) != len(header) or not header or not re.fullmatch(r"[-rbpscd]{6}", words[1]):
            continue
        values = {}
        for column, word in zip(header, words, strict=True):
            if column in _COUNTED and re.fullmatch(r"\d{1,18}(\.\d{1,6})?", word):
                name, scale = _COUNTED[column]
                values[name] = float(word) * scale
        found[words[0]] = values
    return found
