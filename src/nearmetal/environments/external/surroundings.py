"""Compares the machine on which an instance runs or ran with another one: processor, kernel, mapped files,
TCP addresses and memory. No I/O: machine.py reads the properties of a machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ...model.record import JsonValue

_INSTRUCTIONS = re.compile(
    r"(?:amx|apx|avx|bmi|fma|movdir|sha|sm[34]|s?sse)\w*|3dnow|3dnowext|abm|adx|aes|clflush|clflushopt|clwb"
    r"|clzero|cmov|cmpccxadd|cx8|cx16|enqcmd|f16c|fsgsbase|fxsr|gfni|lahf_lm|lwp|misalignsse|mmx|mmxext|movbe"
    r"|mwaitx|ospke|pclmulqdq|pni|popcnt|ptwrite|raoint|rdpid|rdpru|rdrand|rdseed|rdtscp|rtm|serialize|tbm|tsc"
    r"|tsxldtrk|uintr|user_shstk|vaes|vpclmulqdq|waitpkg|xgetbv1|xop|xsave|xsavec|xsaveopt"
)
"""CPU flags of x86 (arch/x86/include/asm/cpufeatures.h of Linux) that name instructions for programs. The
others belong to the kernel and to hypervisors, or only change how fast instructions are."""
_X86 = ("x86_64", "i686")
_MOST_NAMED = 3


class CheckOutcome(StrEnum):
    """The result of a check before a restore, or before a move to another machine.

    FINE: this does not prevent the restore.
    DIFFERS: the machine differs from the source; the restore may fail, or the instance may be killed or
        misbehave later. A running instance is not moved there.
    PREVENTS: the restore would fail.
    UNKNOWN: this cannot be checked.
    """

    FINE = "fine"
    DIFFERS = "differs"
    PREVENTS = "prevents"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class HostCheck:
    """The result of one check before a restore or a move.

    subject: what was checked, in one or two words.
    text: what was found, without a full stop.
    remedy: what helps; empty if nothing is needed.
    """

    subject: str
    answer: CheckOutcome
    text: str
    remedy: str = ""


def checked(
    subject: str,
    fine: bool,
    good: str,
    bad: str,
    remedy: str = "",
    otherwise: CheckOutcome = CheckOutcome.PREVENTS,
) -> HostCheck:
    """Return the HostCheck of a check.

    fine: whether it succeeded.
    good, bad: text if it succeeded, and if not.
    otherwise: answer if it did not succeed.
    """
    if fine:
        return HostCheck(subject=subject, answer=CheckOutcome.FINE, text=good)
    return HostCheck(subject=subject, answer=otherwise, text=bad, remedy=remedy)


class Build(NamedTuple):
    """The size of a file in bytes, and its build ID; the build ID is empty if the file has none."""

    size: int
    build_id: str


@dataclass(frozen=True, kw_only=True)
class MachineProperties:
    """The properties of a machine on which an instance shall continue.

    kernel: release of the kernel.
    flags: flags of the first CPU in /proc/cpuinfo.
    files: by path, the files that the instance has mapped at its source. Missing ones are left out.
    memory: available bytes; None if unknown.
    addresses: for each TCP address, why it cannot be used; empty if it can. Addresses that were not tried are
        left out.
    """

    kernel: str
    architecture: str
    flags: frozenset[str]
    files: Mapping[str, Build]
    memory: int | None
    addresses: Mapping[str, str] = field(default_factory=dict)


def compare(source: Mapping[str, JsonValue], there: MachineProperties, memory: int) -> Iterator[HostCheck]:
    """Compare a machine with the source of an instance, and yield the result of each check.

    source: description of the source from machine.describe(); empty for a checkpoint without one.
    there: the machine on which the instance shall continue.
    memory: size in bytes of the memory that the instance needs.
    """
    if not source:
        text = "the checkpoint does not name the machine on which it was written"
        yield HostCheck(subject="machine", answer=CheckOutcome.UNKNOWN, text=text)
    else:
        yield _processor(source, there)
        yield _kernel(str(source.get("kernel")), there.kernel)
        yield _files(source, there)
        yield from _taken(there)
    yield _memory(there, memory)


def _processor(source: Mapping[str, JsonValue], there: MachineProperties) -> HostCheck:
    if source.get("architecture") != there.architecture:
        return HostCheck(
            subject="processor",
            answer=CheckOutcome.PREVENTS,
            text=f"it is {there.architecture}, and {source.get('architecture')} at the source",
            remedy="a machine of the same kind",
        )
    lacking = sorted(set(str(source.get("flags", "")).split()) - there.flags)
    if there.architecture in _X86:
        lacking = [flag for flag in lacking if _INSTRUCTIONS.fullmatch(flag)]
    return checked(
        "processor",
        not lacking,
        "it has all instructions of the one at the source",
        f"it lacks {_some(lacking)}, which the instance may use",
        "a processor with these features",
        CheckOutcome.DIFFERS,
    )


def _kernel(source: str, there: str) -> HostCheck:
    """Compare releases of a kernel. A newer kernel runs what an older one runs. Releases with the same first
    two numbers have the same features."""
    if source == there:
        return HostCheck(subject="kernel", answer=CheckOutcome.FINE, text=f"it is {there}, as at the source")
    numbers = [re.match(r"(\d+)\.(\d+)", release) for release in (source, there)]
    before, now = ([int(n) for n in found.groups()] if found else None for found in numbers)
    return checked(
        "kernel",
        before is not None and now is not None and now >= before,
        f"it is {there}, with all features of {source} at the source",
        f"it is {there}, and {source} at the source",
        "boot a kernel that is at least as new",
        CheckOutcome.DIFFERS,
    )


def _files(source: Mapping[str, JsonValue], there: MachineProperties) -> HostCheck:
    files = source.get("files")
    assert isinstance(files, Mapping)
    missing = [name for name in files if name not in there.files]
    other = [name for name, seen in files.items() if name in there.files and [*there.files[name]] != seen]
    good = (
        f"all {len(files)} mapped files are there, and the same" if files else "it maps none of the machine"
    )
    lacks = f"missing: {_some(missing)}" if missing else ""
    differs = f"of another build: {_some(other)}" if other else ""
    bad = "; ".join(filter(None, (lacks, differs)))
    return checked("programs and libraries", not bad, good, bad, "install the same versions as at the source")


def _taken(there: MachineProperties) -> Iterator[HostCheck]:
    for address, why in there.addresses.items():
        if why:
            yield HostCheck(
                subject="address",
                answer=CheckOutcome.PREVENTS,
                text=f"{address}: {why}",
                remedy="end the program that uses it, or give this machine the address",
            )
    if there.addresses and not any(there.addresses.values()):
        yield HostCheck(
            subject="addresses", answer=CheckOutcome.FINE, text=f"{', '.join(there.addresses)}: free"
        )


def _memory(there: MachineProperties, memory: int) -> HostCheck:
    if there.memory is None:
        return HostCheck(
            subject="memory", answer=CheckOutcome.UNKNOWN, text="/proc/meminfo shows no free memory"
        )
    text = f"it needs {memory >> 20} MiB, and {there.memory >> 20} MiB are available"
    remedy = "end other programs, or take a machine with more memory"
    return checked("memory", there.memory >= memory, text, text, remedy)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
