"""Measures how fast a destination receives the data of a move."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from ...environments.external import DestinationKind, Target
from ...errors import UnavailableError, UsageError
from ...host import LocalHost
from ...host.runtime import PROBED, write_speed
from ...host.ssh import SshHost
from ...lifecycle import Estimate, measured_bandwidth

_LONGEST = 600.0
"""Time limit of a measurement in seconds."""


def measured_speeds(
    target: Target, remote: SshHost | None, *, restored: bool
) -> tuple[Estimate, Estimate | None]:
    """Estimate the speed of a move, and that of reading its images back (None if none are), in bytes per
    second, from a measurement of how fast a destination receives data. For the URI of a hypervisor, nothing
    is measured.

    restored: whether the images are read back.
    """
    if remote is None and target.way is DestinationKind.HOST:  # at the URI of a hypervisor
        return Estimate(3e7, 2e8, 3e9), None
    speed = _write_speed(Path(target.text)) if remote is None else _ssh_speed(remote)
    once = measured_bandwidth(speed, 1.0)
    return (measured_bandwidth(speed, 2.0), once) if restored else (once, None)


def _write_speed(directory: Path) -> float:
    at = next(p for p in (directory, *directory.absolute().parents) if p.is_dir())
    try:
        return write_speed(at)
    except OSError as e:
        raise UsageError(f"{at}: {e.strerror}", remedy="a directory that can be written to") from e


def _ssh_speed(remote: SshHost) -> float:
    begin = time.monotonic()
    done = LocalHost().run(
        ["sh", "-c", f"head -c {PROBED} /dev/zero | {shlex.join(remote.words(['wc', '-c']))}"],
        timeout=_LONGEST,
    )
    if not done.ok or done.stdout.strip() != str(PROBED):
        raise UnavailableError(
            f"cannot send data to {remote.name}: {done.failure()}", remedy=f"ssh {remote.name} wc -c"
        )
    return PROBED / (time.monotonic() - begin)
