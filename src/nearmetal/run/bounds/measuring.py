"""Upper bounds: the best values that the bare machine reaches, measured between the blocks of a run. Only the
bounds that the study needs are measured.

Each is measured several times, at different times. The results are stored with the compiled tools and reused
by later runs with the same boot, tools, MPI and CPUs."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from ...errors import NearmetalError
from ...host import MissingValue
from ...host.durable import write_file
from ...host.facts.provenance import BOOT_ID
from ...host.runtime import cache_directory
from ...host.untrusted import UntrustedDirectory
from ...model.roof import (
    DGEMM,
    DISK_READ,
    DISK_WRITE,
    ROOF_KERNELS,
    SOCKETS,
    MeasuredRoof,
    RoofRequest,
    read_roofs,
    roof_record,
)
from ...model.study import Better, Transport
from ...node.machine import Machine
from ...node.node import Node
from ...node.progress import Progress
from ...workloads.applications.hpc_challenge.blas import Blas, package
from ..kernel_run import run_once
from .dgemm import measure_dgemm
from .disk import by_fio
from .socket import by_sockets

KEPT = "roofs.json"
ROUNDS = 3
"""Number of times that each upper bound is measured."""
SHARE = 0.05
"""Maximum fraction of the run's time that may be spent on upper bounds."""


Measure = Callable[[Machine, RoofRequest, str, Path], MeasuredRoof]


def by_kernel(machine: Machine, roof: RoofRequest, label: str, scratch: Path) -> MeasuredRoof:
    """Measure an upper bound by a built-in kernel.

    Raises NearmetalError if the kernel fails.
    """
    known = ROOF_KERNELS[roof.name]
    done = run_once(
        machine,
        known.kernel,
        roof.ranks,
        known.params,
        threads=1,
        label=label,
        scratch=scratch,
        profiled=False,
        transport=Transport(roof.transport) if roof.transport else Transport.SHM,
    )
    found = [done.metrics[name] for name in known.metrics]
    best = max if known.better is Better.HIGHER else min
    return MeasuredRoof(
        name=roof.name,
        ranks=roof.ranks,
        transport=roof.transport,
        value=best(metric.value for metric in found),
        unit=found[0].unit,
        better=known.better,
        measured=time.time(),
        how=known.how,
    )


def by_dgemm(machine: Machine, roof: RoofRequest, label: str, scratch: Path) -> MeasuredRoof:
    """Measure an upper bound with OpenBLAS, with one process on each CPU of the ranks, all at the same time.

    Raises NearmetalError if OpenBLAS is not installed, or fails.
    """
    found = measure_dgemm(machine, machine.cpus[: roof.ranks])
    return MeasuredRoof(
        name=roof.name,
        ranks=roof.ranks,
        transport="",
        value=sum(found.best()),
        unit="FLOP/s",
        better=Better.HIGHER,
        measured=time.time(),
        how=f"nm-dgemm, {package(Blas.OPENBLAS)} with its kernels for {found.core}, best size",
    )


#: The function that measures an upper bound, by the bound's name. A bound without an entry is not measured.
MEASURES: dict[str, Measure] = {
    **dict.fromkeys(ROOF_KERNELS, by_kernel),
    **dict.fromkeys((DISK_READ, DISK_WRITE), by_fio),
    DGEMM: by_dgemm,
}


class RoofMeter:
    """Measures the upper bounds of a study's metrics, one at a time, between its blocks."""

    def __init__(self, node: Node, wanted: Iterable[RoofRequest], progress: Progress) -> None:
        """wanted: the bounds to measure, see analysis.roofs.wanted(). Those with more ranks than this machine
            has CPUs are left out.

        The caller must hold the lock of the machine.
        """
        self._node, self._progress = node, progress
        # By name of the arm. A bound measured over one of them is valid for this run only.
        self._networks = {arm: network for (arm, aa), network in node.networks.items() if not aa}
        self._measures: dict[str, Measure] = {**MEASURES, SOCKETS: partial(by_sockets, self._networks)}
        cpus = len(node.machine.cpus)
        self._wanted = [w for w in wanted if w.name in self._measures and w.ranks <= cpus]
        self._key, self._file = _key(node.machine), cache_directory() / KEPT
        self._kept = list(_read(self._file, self._key))
        self._found = {w: roof for w in self._wanted for roof in self._kept if roof.fits(w)}
        self._spent = 0.0

    def roofs(self) -> tuple[MeasuredRoof, ...]:
        """Return the upper bounds known so far."""
        return tuple(self._found[w] for w in self._wanted if w in self._found)

    def step(self, elapsed: float) -> bool:
        """Measure the upper bound with the fewest rounds once more. Returns whether anything was measured.

        Nothing is measured if every bound has ROUNDS rounds, or if the fraction SHARE of the elapsed seconds
        is used up. Nothing else may run during the measurement. A bound that cannot be measured is reported
        once and not tried again.
        """
        lacking = self._lacking(ROUNDS)
        if not lacking or self._spent > SHARE * elapsed:
            return False
        return self._measure(lacking[0])

    def complete(self) -> bool:
        """Measure every upper bound that was never measured, at the end of a run that was too short for it.

        Returns whether anything was measured.
        """
        lacking = self._lacking(1)
        for roof in lacking:
            self._measure(roof)
        return bool(lacking)

    def _lacking(self, rounds: int) -> list[RoofRequest]:
        """Return the upper bounds with fewer rounds than this, those with the fewest first."""
        had = {w: self._found[w].rounds if w in self._found else 0 for w in self._wanted}
        return sorted((w for w in self._wanted if had[w] < rounds), key=lambda w: had[w])

    def _measure(self, roof: RoofRequest) -> bool:
        node, begin = self._node, time.monotonic()
        try:
            found = self._measures[roof.name](node.machine, roof, node.label, node.scratch)
        except NearmetalError as e:
            self._progress.note(f"no upper bound for {roof.name}: {e.what}")
            self._wanted.remove(roof)
            return False
        finally:
            self._spent += time.monotonic() - begin
        before = self._found.get(roof)
        self._found[roof] = found if before is None else before.with_round(found)
        if roof.place not in self._networks:
            self._kept = [k for k in self._kept if not k.fits(roof)] + [self._found[roof]]
            _keep(self._file, self._key, self._kept)
        return True


def _key(machine: Machine) -> str:
    """Return a text that is the same for two runs if one can use the upper bounds of the other: the boot ID,
    the digest of the tools, the MPI and the CPUs."""
    boot = machine.host.read(BOOT_ID)
    named = "" if isinstance(boot, MissingValue) else boot.decode().strip()
    return f"{named} {machine.built.digest} {machine.mpi.title} {','.join(map(str, machine.cpus))}"


def _read(file: Path, key: str) -> tuple[MeasuredRoof, ...]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(UntrustedDirectory(file.parent).read_bytes(file.name))
        if isinstance(found, dict) and found.get("of") == key:
            return read_roofs(found.get("roofs"))
    return ()


def _keep(file: Path, key: str, roofs: Sequence[MeasuredRoof]) -> None:
    """Write the upper bounds to the file, in place of all others there. If that is impossible, for example
    because the disk is full, nothing is written."""
    with contextlib.suppress(OSError):
        text = json.dumps({"of": key, "roofs": [roof_record(r) for r in roofs]}, indent=1)
        write_file(file, f"{text}\n".encode())
