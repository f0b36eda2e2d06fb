"""Roofs measured on the bare machine before a run, those alone that its study needs; once per boot, tools and
set of CPUs, then kept beside the compiled tools with the time they were measured."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import NearmetalError
from ..host import Unavailable
from ..host.provenance import BOOT_ID
from ..model.roof import (
    BANDWIDTH,
    DGEMM,
    DISK_READ,
    DISK_WRITE,
    LATENCY,
    SOCKETS,
    TRIAD,
    MeasuredRoof,
    Wanted,
    read_roofs,
    roof_record,
)
from ..model.study import Better, Study, Transport
from ..network.build import Network
from ..records.disk import write_file
from ..workloads.blas import Blas, package
from .dgemm_roof import measure_dgemm
from .disk_roof import by_fio
from .machine import Machine, cache_directory
from .once import run_once
from .progress import Progress
from .socket_roof import by_sockets

KEPT = "roofs.json"
LONG, SHORT = 1 << 20, 8
"""Bytes of the messages whose bandwidth and latency are the roofs."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """How one of our kernels measures a roof: the best of its slices."""

    kernel: str
    params: Mapping[str, str | int]
    metric: str
    better: Better
    how: str


KERNELS: Mapping[str, Kernel] = {
    TRIAD: Kernel(
        kernel="stream",
        params={"elements": "auto"},
        metric="triad",
        better=Better.HIGHER,
        how="kernel stream, arrays of 4 x the last-level cache, best slice",
    ),
    LATENCY: Kernel(
        kernel="pingpong",
        params={"bytes": SHORT},
        metric="latency",
        better=Better.LOWER,
        how="kernel pingpong, 8 B, best slice",
    ),
    BANDWIDTH: Kernel(
        kernel="pingpong",
        params={"bytes": LONG},
        metric="bandwidth",
        better=Better.HIGHER,
        how="kernel pingpong, 1 MiB, best slice",
    ),
}

Measure = Callable[[Machine, Wanted, str, Path], MeasuredRoof]


def by_kernel(machine: Machine, roof: Wanted, label: str, scratch: Path) -> MeasuredRoof:
    """Raises NearmetalError."""
    known = KERNELS[roof.name]
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
    metric = done.metrics[known.metric]
    return MeasuredRoof(
        name=roof.name,
        ranks=roof.ranks,
        transport=roof.transport,
        value=metric.best,
        unit=metric.unit,
        better=known.better,
        measured=time.time(),
        how=known.how,
    )


def by_dgemm(machine: Machine, roof: Wanted, label: str, scratch: Path) -> MeasuredRoof:
    """With OpenBLAS, a process on each CPU of the ranks at once. Raises NearmetalError."""
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


#: What measures a roof, by its name; a roof without an entry is not measured.
MEASURES: dict[str, Measure] = {
    **dict.fromkeys(KERNELS, by_kernel),
    **dict.fromkeys((DISK_READ, DISK_WRITE), by_fio),
    DGEMM: by_dgemm,
}


def measured_roofs(
    machine: Machine,
    study: Study,
    label: str,
    scratch: Path,
    networks: Mapping[str, Network],
    progress: Progress,
) -> tuple[MeasuredRoof, ...]:
    """The roofs over the study's metrics; one that cannot be measured is left out and said. networks: by arm;
    a roof over one is of this run alone. The caller holds the machine, and nothing else runs."""
    from ..analysis.roofs import wanted

    key = _key(machine)
    file = cache_directory() / KEPT
    kept = list(_read(file, key))
    measures: dict[str, Measure] = {**MEASURES, SOCKETS: partial(by_sockets, networks)}
    out: list[MeasuredRoof] = []
    for roof in wanted(study):
        if roof.name not in measures or roof.ranks > len(machine.cpus):
            continue
        found = next((k for k in kept if _is(k, roof)), None)
        if found is None:
            of = roof.place or f"{roof.ranks} ranks"
            progress.phase(f"measuring a roof of this machine: {roof.name}, {of}")
            try:
                found = measures[roof.name](machine, roof, label, scratch)
            except NearmetalError as e:
                progress.note(f"no roof {roof.name}: {e.what}")
                continue
            if roof.place not in networks:
                kept.append(found)
                _keep(file, key, kept)
        out.append(found)
    return tuple(out)


def _is(kept: MeasuredRoof, roof: Wanted) -> bool:
    same = (kept.name, kept.transport, kept.place) == (roof.name, roof.transport, roof.place)
    return same and kept.ranks in (None, roof.ranks)


def _key(machine: Machine) -> str:
    """What a roof is of: this boot, these tools, this MPI, these CPUs."""
    boot = machine.host.read(BOOT_ID)
    named = "" if isinstance(boot, Unavailable) else boot.decode().strip()
    return f"{named} {machine.built.digest} {machine.mpi.title} {','.join(map(str, machine.cpus))}"


def _read(file: Path, key: str) -> tuple[MeasuredRoof, ...]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(file.read_text())
        if isinstance(found, dict) and found.get("of") == key:
            return read_roofs(found.get("roofs"))
    return ()


def _keep(file: Path, key: str, roofs: Sequence[MeasuredRoof]) -> None:
    """Roofs of another boot make room; a disk that is full keeps none."""
    with contextlib.suppress(OSError):
        text = json.dumps({"of": key, "roofs": [roof_record(r) for r in roofs]}, indent=1)
        write_file(file, f"{text}\n".encode())
