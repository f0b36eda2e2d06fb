"""The peak of double-precision matrix multiplication on this machine, with a BLAS by name: the most that the
DGEMM of a benchmark can reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..host import Unavailable
from ..workloads.blas import Blas, core_for, library, package, variables
from ..workloads.peak import Peak, parse_peak
from .machine import Machine

_LIMIT = 120.0


@dataclass(frozen=True, kw_only=True)
class DgemmRoof:
    """library: path of the BLAS; core: OpenBLAS's kernels, None of another; alone: FLOP/s of one CPU, the
    others idle; each: of every CPU, all at once, in the order asked for; all at their best size."""

    library: str
    core: str | None
    alone: float
    each: tuple[float, ...]

    @property
    def together(self) -> float:
        return sum(self.each)


def measure_dgemm_roof(
    machine: Machine, cpus: Sequence[int], blas: Blas = Blas.OPENBLAS, core: str | None = None
) -> DgemmRoof | Unavailable:
    """In some 1.5 s alone and again together. core: OpenBLAS's kernels by name, None for those that suit this
    machine's flags, as an application takes them.

    Unavailable where that BLAS is not there, or does not compute.
    """
    alone = _measure(machine, cpus[:1], blas, core)
    if isinstance(alone, Unavailable):
        return alone
    together = _measure(machine, cpus, blas, core) if len(cpus) > 1 else alone
    if isinstance(together, Unavailable):
        return together
    return DgemmRoof(
        library=together.library, core=together.core, alone=alone.best()[0], each=together.best()
    )


def _measure(machine: Machine, cpus: Sequence[int], blas: Blas, core: str | None) -> Peak | Unavailable:
    wanted = library(blas)
    missing = Unavailable(f"no BLAS: install {package(blas) or 'one, such as libopenblas0-pthread'}")
    if wanted is not None and isinstance(machine.host.read(wanted), Unavailable):
        return missing
    env = variables(blas, core or core_for(machine.hardware.cpu_flags))
    argv = [machine.tools / "nm-dgemm", *map(str, cpus)]
    done = machine.host.run(argv, timeout=_LIMIT, env=env)
    if not done.ok:
        return missing if "libblas.so.3" in done.stderr else Unavailable(done.last_words())
    found = parse_peak(done.stdout)
    if wanted is not None and Path(found.library).parent != wanted.parent:
        return Unavailable(f"{found.library} was loaded, not {wanted}")
    return found
