"""nm-dgemm and the DGEMM roof with the BLAS packages of this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from nearmetal.execute.dgemm_roof import DgemmRoof, measure_dgemm_roof
from nearmetal.execute.machine import Machine
from nearmetal.execute.progress import Silent
from nearmetal.execute.session import prepare_machine
from nearmetal.host import LocalHost, Unavailable
from nearmetal.workloads import blas
from nearmetal.workloads.blas import Blas


@pytest.fixture(scope="module")
def machine() -> Machine:
    return prepare_machine(LocalHost(), Silent())


def roof(machine: Machine, of: Blas, core: str | None = None) -> DgemmRoof:
    found = measure_dgemm_roof(machine, machine.cpus[:2], of, core)
    assert isinstance(found, DgemmRoof), found
    return found


def test_each_blas_is_the_one_asked_for_and_openblas_is_the_faster(machine: Machine) -> None:
    reference, fast = roof(machine, Blas.REFERENCE), roof(machine, Blas.OPENBLAS)
    assert (reference.core, fast.core) == (None, blas.core_for(machine.hardware.cpu_flags))
    assert "/blas/" in reference.library and "/openblas-pthread/" in fast.library
    assert len(fast.each) == len(machine.cpus[:2])
    assert fast.alone > 1.5 * reference.alone


def test_kernels_by_name(machine: Machine) -> None:
    assert roof(machine, Blas.OPENBLAS, "Nehalem").core == "Nehalem"


def test_a_blas_that_is_not_there_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_DIRECTORY", {Blas.OPENBLAS: "nowhere"})
    found = measure_dgemm_roof(machine, machine.cpus[:1])
    assert found == Unavailable("no BLAS: install libopenblas0-pthread")


def test_a_cpu_that_is_not_there_is_told_and_leaves_no_process(machine: Machine) -> None:
    found = measure_dgemm_roof(machine, (machine.cpus[0], 1000))
    assert isinstance(found, Unavailable) and "CPU 1000" in found.reason
    words = machine.host.run([machine.tools / "nm-dgemm", "0x1"], timeout=10)
    assert words.returncode == 2 and "usage" in words.stderr
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(file.read_bytes())
    assert not [line for line in lines if b"nm-dgemm" in line and b"\x001000\x00" in line]
