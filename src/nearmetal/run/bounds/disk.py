"""Measures the upper bound of a disk on the bare machine: sequential direct requests, by fio."""

from __future__ import annotations

import time
from pathlib import Path

from ...errors import RunError, UnavailableError
from ...host.outside import outside_directory
from ...model.roof import DISK_READ, MeasuredRoof, RoofRequest
from ...model.study import Better
from ...node.machine import Machine
from ...workloads.applications.fio import ROOF_DEPTH, roof, roof_arguments

SECONDS, SIZE = 2.0, 512 << 20
"""Duration of the measurement in seconds, and bytes of the file."""
LIMIT = 120.0


def by_fio(machine: Machine, wanted: RoofRequest, label: str, scratch: Path) -> MeasuredRoof:
    """Measure the read or write rate of a disk, in B/s.

    wanted: its name says whether to read or write, and its place is a directory on the disk.

    Raises UnavailableError if fio is not installed, RunError if it fails.
    """
    if machine.host.which("fio") is None:
        raise UnavailableError("fio is not on this machine", remedy="apt-get install fio")
    operation = "read" if wanted.name == DISK_READ else "write"
    with outside_directory(Path(wanted.place) / f"{label}-roof") as directory:
        argv = roof_arguments(directory, operation, seconds=SECONDS, size=SIZE)
        done = machine.host.run(argv, timeout=LIMIT, cwd=directory)
    if not done.ok:
        raise RunError(f"{wanted.place}: {done.failure()}")
    value = roof(done.stdout, operation)
    if value is None:
        raise RunError(f"{wanted.place}: fio measured nothing")
    return MeasuredRoof(
        name=wanted.name,
        ranks=None,
        transport="",
        value=value,
        unit="B/s",
        better=Better.HIGHER,
        measured=time.time(),
        how=f"fio, direct requests of 1 MiB, {ROOF_DEPTH} at a time, for {SECONDS:g} s",
        place=wanted.place,
    )
