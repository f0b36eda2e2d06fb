"""Measures the peak of double-precision matrix multiplication on this machine with a given BLAS: the upper
bound for the DGEMM of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import UnavailableError
from ...host import MissingValue
from ...node.machine import Machine
from ...workloads.applications.hpc_challenge.blas import Blas, core_for, library, package, variables
from ...workloads.peak import Peak, parse_peak

_LIMIT = 120.0


def measure_dgemm(
    machine: Machine, cpus: Sequence[int], blas: Blas = Blas.OPENBLAS, core: str | None = None
) -> Peak:
    """Measure the peak rate of DGEMM while all the given CPUs compute at the same time. Takes about 1.5 s.

    core: OpenBLAS core type whose kernels are used; None selects it from the machine's CPU flags, as for
        applications.

    Raises UnavailableError if this BLAS is not installed, or fails.
    """
    wanted, name = library(blas), package(blas) or "libopenblas0-pthread"
    missing = UnavailableError(f"no {name}: no BLAS to measure with", remedy=f"apt-get install {name}")
    if wanted is not None and isinstance(machine.host.read(wanted), MissingValue):
        raise missing
    env = variables(blas, core or core_for(machine.hardware.cpu_flags))
    argv = [machine.tools / "nm-dgemm", *map(str, cpus)]
    done = machine.host.run(argv, timeout=_LIMIT, env=env)
    if not done.ok:
        raise missing if "libblas.so.3" in done.stderr else UnavailableError(done.failure())
    found = parse_peak(done.stdout)
    if wanted is not None and Path(found.library).parent != wanted.parent:
        raise UnavailableError(f"{found.library} was loaded, not {wanted}")
    return found
