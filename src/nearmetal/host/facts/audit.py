"""The parity audit: it collects the same facts inside an instance of every arm, and finds where the arms
differ.

The facts are collected with programs that the image contains (sha256sum, ldd, grep), one command for each and
no shell. An image need not contain Python. A missing program is recorded as a fact too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..base import Completed
from .provenance import parse_limits

Run = Callable[[Sequence[str]], Completed]

_CPU = "/sys/devices/system/cpu"
#: Settings, by the file that contains them. A word in brackets is the selected value.
_FILES = {
    "/proc/sys/kernel/osrelease": "kernel",
    f"{_CPU}/cpu0/cpufreq/scaling_governor": "governor",
    "/sys/kernel/mm/transparent_hugepage/enabled": "huge pages",
    "/sys/kernel/mm/transparent_hugepage/defrag": "huge pages, defrag",
    "/proc/sys/vm/nr_hugepages": "huge pages, reserved",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "clock source",
    "/proc/sys/net/ipv4/tcp_congestion_control": "TCP congestion control",
}
_ENGLISH = ("env", "LC_ALL=C")  # messages that are read here
_FLAGS = "CPU flags"
_INFO, _LIMITS = "/proc/cpuinfo", "/proc/self/limits"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A fact that is not the same in all arms.

    values: value by arm; for CPU flags, only the flags that some arms lack.
    """

    name: str
    values: Mapping[str, str]


def facts(run: Run, binaries: Sequence[str]) -> dict[str, str]:
    """Collect facts by name from inside one instance.

    run: executes argv inside the instance.
    binaries: paths of programs inside the instance.

    'binary <path>' and 'library <name>' are the SHA-256 of the file that a program would load (libraries as
    the instance's own loader resolves them). Further facts are CPU flags, settings and limits. A fact that
    cannot be collected is 'unavailable: <reason>' and is never omitted, because a missing fact differs from a
    present one.
    """
    found = _system(run)
    libraries: dict[str, str] = {}
    for binary in binaries:
        libraries |= _libraries(run, binary)
    resolved = {name: path for name, path in libraries.items() if path.startswith("/")}
    digests = _digests(run, [*dict.fromkeys(binaries), *dict.fromkeys(resolved.values())])
    for binary in binaries:
        found[f"binary {binary}"] = digests[binary]
    for name, path in sorted(libraries.items()):
        found[f"library {name}"] = digests[path] if name in resolved else path
    return found


def compare(facts_by_arm: Mapping[str, Mapping[str, str]]) -> tuple[Difference, ...]:
    """Return the differences of the arms, by name of the fact. A fact that was not collected in an arm has
    the value 'not checked' there."""
    names = sorted({name for facts in facts_by_arm.values() for name in facts})
    out = []
    for name in names:
        values = {arm: facts.get(name, "not checked") for arm, facts in facts_by_arm.items()}
        if len(set(values.values())) > 1:
            out.append(Difference(name=name, values=_uncommon(values) if name == _FLAGS else values))
    return tuple(out)


def _uncommon(values: Mapping[str, str]) -> dict[str, str]:
    """Return the CPU flags without those that every arm has."""
    flags = {arm: set(text.split()) for arm, text in values.items()}
    common = set.intersection(*flags.values())
    return {arm: " ".join(sorted(own - common)) or "none of these" for arm, own in flags.items()}


def _system(run: Run) -> dict[str, str]:
    """Read all files with one grep: each output line contains its file's name, and missing files are
    omitted."""
    names = (_FLAGS, *_FILES.values(), "limits")
    done = run(["grep", "-s", "-H", "", _LIMITS, *_FILES, _INFO])
    if done.returncode > 1 and not done.stdout:  # 2 with output: some files are missing
        return dict.fromkeys(names, f"unavailable: {done.failure()}")
    lines: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        path, colon, text = line.partition(":")
        if colon:
            lines.setdefault(path, []).append(text)
    found = {name: _setting(lines.get(path)) for path, name in _FILES.items()}
    flags = [text for text in lines.get(_INFO, ()) if text.startswith(("flags", "Features"))]
    words = sorted(flags[0].partition(":")[2].split()) if flags else []
    found[_FLAGS] = " ".join(words) or "unavailable: none in /proc/cpuinfo"
    limits = parse_limits("\n".join(lines.get(_LIMITS, ())))
    found |= {f"limit {name}": value for name, value in limits.items()}
    if not limits:
        found["limits"] = f"unavailable: no {_LIMITS}"
    return found


def _setting(lines: Sequence[str] | None) -> str:
    if lines is None:
        return "unavailable: no such file"
    text = " ".join(lines).strip()
    chosen = re.search(r"\[(.+?)\]", text)
    return chosen[1] if chosen else text


def _libraries(run: Run, binary: str) -> dict[str, str]:
    """Return the path of each library that the instance's loader would load, or why it is unknown, by
    name."""
    done = run([*_ENGLISH, "ldd", binary])
    if not done.ok:
        if "not a dynamic executable" in done.stdout + done.stderr:
            return {}
        return {f"of {binary}": f"unavailable: {done.failure()}"}
    return parse_ldd(done.stdout)


def parse_ldd(text: str) -> dict[str, str]:
    """Parse the output of ldd and return the path by name; 'not found' if the loader has none.

    The vdso is left out.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        path = (rest if arrow else name).split(" (")[0].strip()
        file = (name if arrow else path).rpartition("/")[2]
        if file and path and (arrow or path.startswith("/")):
            found[file] = path
    return found


def _digests(run: Run, paths: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 by path, computed by one command."""
    done = run([*_ENGLISH, "sha256sum", *paths])
    found = dict.fromkeys(
        paths,
        f"unavailable: {done.failure()}" if not done.ok else "unavailable: not in the output of sha256sum",
    )
    for line in done.stdout.splitlines():
        digest, gap, path = line.partition("  ")
        if gap and path in found and re.fullmatch(r"[0-9a-f]{64}", digest):
            found[path] = f"sha256:{digest}"
    for line in done.stderr.splitlines():  # 'sha256sum: PATH: No such file or directory'
        program, _, rest = line.partition(": ")
        path, _, reason = rest.rpartition(": ")
        path = path.strip("'")
        if program and path in found and not found[path].startswith("sha256:"):
            found[path] = f"unavailable: {reason}"
    return found
