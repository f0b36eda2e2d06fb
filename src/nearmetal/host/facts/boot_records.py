"""Durations of boots and reboots from the machine's own records, as far as they exist: systemd's times of
this boot, and the gaps between boots in the journal or in wtmp."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

from ..base import Host

LIMIT = 60.0
LONGEST_REBOOT = 3600.0
"""Longest gap in seconds that counts as a reboot; after a longer gap the machine was switched off."""
_LONGEST_TEXT = 1 << 20
_UNITS = {"us": 1e-6, "μs": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(us|μs|µs|ms|s|min|h|d)(?![a-zμµ])")
_PHASE = re.compile(r"((?:\d[\d.]{0,18}(?:us|μs|µs|ms|s|min|h|d) ?){1,6})\((\w{1,20})\)")
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
_BOOT = re.compile(rf"^ *(-?\d{{1,6}}) +[0-9a-f]{{32}} +\w+ ({_TIME}) \S+?[—\s]+\w+ ({_TIME})", re.MULTILINE)
_WTMP_TIME = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"
_DOWN = re.compile(rf"^shutdown +system down .*?({_WTMP_TIME}) +- +({_WTMP_TIME})", re.MULTILINE)


def boot_records(host: Host) -> dict[str, Any]:
    """Return the durations of this boot and of past reboots, ready for JSON.

    phases: seconds by phase of this boot; None if no source reports them.
    reboots: duration of each reboot in whole seconds; None if no source reports them.
    source: source of the reboots.
    absent: reason by source, for sources that report nothing.
    """
    absent: dict[str, str] = {}

    def read_from(name: str, argv: list[str], read: Callable[[str], Any]) -> Any:
        if host.which(argv[0]) is None:
            absent[name] = f"{argv[0]} is not installed"
            return None
        done = host.run(argv, timeout=LIMIT, env={"LC_ALL": "C", "TZ": "UTC"})
        found = read(done.stdout) if done.ok else None
        if not found:
            absent[name] = done.failure() if not done.ok else "it has no record of it"
            return None
        return found

    phases = read_from("systemd-analyze", ["systemd-analyze", "time", "--no-pager"], systemd_phases)
    source = "journal"
    reboots = read_from(source, ["journalctl", "--utc", "--no-pager", "--list-boots"], journal_gaps)
    if reboots is None:
        source = "wtmp"
        reboots = read_from(source, ["last", "-x", "-F", "shutdown"], wtmp_gaps)
    return {
        "phases": phases,
        "reboots": reboots,
        "source": None if reboots is None else source,
        "absent": absent,
    }


def seconds_of(text: str) -> float | None:
    """Return the seconds of a time span as systemd writes it ('1min 2.345s'); None for any other text."""
    parts = text.split()
    found = [_SPAN.fullmatch(part) for part in parts]
    if not parts or not all(found):
        return None
    return sum(float(m[1]) * _UNITS[m[2]] for m in found if m is not None)


def systemd_phases(text: str) -> dict[str, float]:
    """Parse the line in which systemd reports the duration of the boot, and return seconds by phase.

    Example: 'Startup finished in 7.6s (firmware) + 1.9s (kernel) + 14.1s (userspace) = 23.6s'.
    The result is empty for any other text.
    """
    line = next((x for x in text[:_LONGEST_TEXT].splitlines() if x.startswith("Startup finished in ")), "")
    out: dict[str, float] = {}
    for span, name in _PHASE.findall(line):
        if (value := seconds_of(span)) is not None:
            out[name] = value
    whole = seconds_of(line.rpartition("=")[2].strip()) if "=" in line else None
    return {**out, "whole": sum(out.values()) if whole is None else whole} if out else {}


def journal_gaps(text: str) -> list[float]:
    """Return the seconds from the last message of each boot to the first message of the next one."""
    boots = sorted((int(n), first, last) for n, first, last in _BOOT.findall(text[:_LONGEST_TEXT]))
    return _reboots(
        [_between(a[2], b[1], "%Y-%m-%d %H:%M:%S") for a, b in pairwise(boots) if b[0] == a[0] + 1]
    )


def wtmp_gaps(text: str) -> list[float]:
    """Return the seconds from each shutdown to the next boot."""
    found = _DOWN.findall(text[:_LONGEST_TEXT])
    return _reboots([_between(down, up, "%a %b %d %H:%M:%S %Y") for down, up in found])


def _between(first: str, last: str, form: str) -> float | None:
    try:
        return (datetime.strptime(last, form) - datetime.strptime(first, form)).total_seconds()
    except ValueError:
        return None  # for example the 31st of February


def _reboots(gaps: list[float | None]) -> list[float]:
    return [g for g in gaps if g is not None and 0 < g <= LONGEST_REBOOT]
