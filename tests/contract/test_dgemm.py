"""nm-dgemm with the BLAS packages of this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from nearmetal.errors import UnavailableError
from nearmetal.host import LocalHost
from nearmetal.host.processes.failure import find_error_line
from nearmetal.model.roof import DGEMM, RoofRequest
from nearmetal.node.machine import Machine, prepare_machine
from nearmetal.node.progress import NullProgress
from nearmetal.run.bounds.dgemm import measure_dgemm
from nearmetal.run.bounds.measuring import MEASURES
from nearmetal.workloads.applications.hpc_challenge import blas
from nearmetal.workloads.applications.hpc_challenge.blas import Blas


@pytest.fixture(scope="module")
def machine() -> Machine:
    return prepare_machine(LocalHost(), NullProgress())


@pytest.mark.more
def test_each_blas_is_the_one_asked_for_and_openblas_is_the_faster(machine: Machine) -> None:
    reference = measure_dgemm(machine, machine.cpus[:1], Blas.REFERENCE)
    fast = measure_dgemm(machine, machine.cpus[:1])
    assert (reference.core, fast.core) == (None, blas.core_for(machine.hardware.cpu_flags))
    assert "/blas/" in reference.library and "/openblas-pthread/" in fast.library
    assert fast.best()[0] > 1.5 * reference.best()[0]


def test_all_cpus_at_once_with_kernels_by_name(machine: Machine) -> None:
    found = measure_dgemm(machine, machine.cpus[:2], core="Nehalem")
    assert found.core == "Nehalem" and found.cpus == machine.cpus[:2]
    assert len(found.best()) == len(machine.cpus[:2])


@pytest.mark.more
def test_the_roof_is_that_of_all_ranks_together(machine: Machine, tmp_path: Path) -> None:
    ranks = len(machine.cpus[:2])
    roof = MEASURES[DGEMM](machine, RoofRequest(name=DGEMM, ranks=ranks, transport=""), "label", tmp_path)
    assert (roof.ranks, roof.unit) == (ranks, "FLOP/s")
    assert 1e8 < roof.value < 1e15 and "libopenblas0-pthread" in roof.how


def test_missing_blas_is_reported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_DIRECTORY", {Blas.OPENBLAS: "nowhere"})
    with pytest.raises(UnavailableError, match="no libopenblas0-pthread"):
        measure_dgemm(machine, machine.cpus[:1])


def test_missing_cpu_is_reported_and_leaves_no_process(machine: Machine) -> None:
    with pytest.raises(
        UnavailableError, match=r"^nm-dgemm \(CPU 1000\): sched_setaffinity: Invalid argument$"
    ):
        measure_dgemm(machine, (machine.cpus[0], 1000))
    words = machine.host.run([machine.tools / "nm-dgemm", "0x1"], timeout=600)
    assert words.returncode == 2 and "nm-dgemm: usage" in str(find_error_line(words.stderr))
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(file.read_bytes())
    assert not [line for line in lines if b"nm-dgemm" in line and b"\x001000\x00" in line]
