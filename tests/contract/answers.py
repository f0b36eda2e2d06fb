"""What each backend says of this machine, asked once, and the table of the suite: backend x works x tests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

from tests.contract.not_here import not_here

from nearmetal.environments import Available, Tools, Unavailable
from nearmetal.environments.registry import backend_names, get_backend
from nearmetal.host import LocalHost

_answers: dict[str, Available | Unavailable] = {}


def checked(name: str, tools: Tools) -> Available | Unavailable:
    """check() of a backend: some take a second to tell."""
    if name not in _answers:
        _answers[name] = get_backend(name).check(LocalHost(), tools)
    return _answers[name]


_FILES = {"test_guests": "qemu", "test_guests_network": "qemu", "test_libvirt_guests": "libvirt"}
"""Those of one backend alone."""


def backend_of(test: str) -> str | None:
    """'test_x.py::test_y[podman-mnt]' -> 'podman'; None for a test of no backend."""
    file, _, _ = test.partition("::")
    if (own := _FILES.get(PurePath(file).stem)) is not None:
        return own
    found = re.search(r"\[(.+)\]$", test)
    names = set(backend_names())
    return next((word for word in found[1].split("-") if word in names), None) if found else None


def table(outcomes: Iterable[tuple[str, str]]) -> list[str]:
    """Lines, of backends that were asked, tested, or cannot be; outcomes: (name, 'passed', 'failed', 'error'
    or 'skipped') of each test."""
    counts = Counter((backend_of(test), outcome) for test, outcome in outcomes)
    lines = [f"{'backend':<14}{'works':<7}{'passed':>7}{'failed':>7}  version, or why not"]
    for name in backend_names():
        answer = _answers.get(name)
        if answer is None and name not in not_here() and not any(counted == name for counted, _ in counts):
            continue
        passed = counts[name, "passed"]
        failed = counts[name, "failed"] + counts[name, "error"]
        if answer is None:
            works, why = "-", not_here().get(name, "not asked for its version")
        elif isinstance(answer, Unavailable):
            works, why = "no", f"{answer.reason}; {answer.remedy}"
        else:
            works, why = "yes", answer.version
        lines.append(f"{name:<14}{works:<7}{passed:>7}{failed:>7}  {why}")
    return lines
