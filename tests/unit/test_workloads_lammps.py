"""LAMMPS: the input of the melt, and what its output gives, whole or not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.workloads.applications.contract import Output, Parsed, Place
from nearmetal.workloads.applications.lammps import (
    ATOM_SECONDS,
    RANK_BYTES,
    SECTIONS,
    START_SECONDS,
    Lammps,
    atoms,
    box,
    grid,
    memory,
)
from nearmetal.workloads.parameter import Choices, Value

#: What LAMMPS of 29 Sep 2021 printed on two ranks.
PRINTED = """LAMMPS (29 Sep 2021 - Update 2)
Lattice spacing in x,y,z = 1.6795962 1.6795962 1.6795962
  1 by 1 by 2 MPI processor grid
Created 32000 atoms
Setting up Verlet run ...
  Current step  : 0
Per MPI rank memory allocation (min/avg/max) = 7.885 | 7.885 | 7.885 Mbytes
Step Temp E_pair E_mol TotEng Press 
       0         1.44   -6.7733681            0   -4.6134356   -5.0197073 
     100    0.7574531   -5.7585055            0   -4.6223613   0.20726105 
Loop time of 2.37571 on 2 procs for 100 steps with 32000 atoms

Performance: 18184.024 tau/day, 42.093 timesteps/s
65.0% CPU use with 2 MPI tasks x 1 OpenMP threads

MPI task timing breakdown:
Section |  min time  |  avg time  |  max time  |%varavg| %total
---------------------------------------------------------------
Pair    | 1.1705     | 1.2435     | 1.3164     |   6.5 | 52.34
Neigh   | 0.18693    | 0.20798    | 0.22903    |   4.6 |  8.75
Comm    | 0.82351    | 0.88165    | 0.93979    |   6.2 | 37.11
Output  | 0.000103   | 0.00018897 | 0.00027493 |   0.0 |  0.01
Modify  | 0.033203   | 0.035326   | 0.037448   |   1.1 |  1.49
Other   |            | 0.007099   |            |       |  0.30

Nlocal:        16000.0 ave       16001 max       15999 min
Total wall time: 0:00:02
"""  # noqa: W291 # as printed, a space at the end of a line
#: A newer one sets the table otherwise.
NEWER = PRINTED.replace(
    "Step Temp E_pair E_mol TotEng Press \n",
    "   Step          Temp          E_pair         E_mol          TotEng         Press     \n",
)


def choices(**values: Value) -> Choices:
    return Choices(values={p.name: p.default for p in Lammps.parameters} | values)


def place(*, instances: int = 1, tasks: int = 2, memory: int = 1 << 30) -> Place:
    here = Path("/run/x")
    return Place(
        nodes=1, instances=instances, tasks=tasks, directory=here, storage=here / "storage", memory=memory
    )


def parsed(text: str, stderr: str = "", **values: Value) -> Parsed:
    return Lammps().parse(choices(**values), place(), Output(stdout=text, stderr=stderr))


@pytest.mark.parametrize("text", [PRINTED, NEWER])
def test_the_breakdown_the_loop_and_the_verification(text: str) -> None:
    found = parsed(text)
    assert {m.name: m.value for m in found.metrics} == {
        "loop": 2.37571,
        "timesteps": 42.093,
        "pair": 1.2435,
        "neigh": 0.20798,
        "comm": 0.88165,
        "output": 0.00018897,
        "modify": 0.035326,
        "other": 0.007099,
    }
    assert [(m.name, m.unit, m.better) for m in found.metrics] == list(Lammps().metrics(choices()))
    assert found.ok, found.found
    assert found.parts["comm"] == 0.88165 and found.parts["io"] == 0.00018897
    assert sum(found.parts.values()) == pytest.approx(2.37571, rel=1e-3)
    assert found.facts == {
        "version": "29 Sep 2021 - Update 2",
        "atoms": 32000,
        "grid": "1 by 1 by 2",
        "rank_memory": 7.885 * 2**20,
        "cpu_use": 0.65,
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("100    0.7574531", "100    0.7674531"),  # another temperature
        ("-4.6223613", "-4.6523613"),  # energy that is not kept
        ("-4.6134356", "-4.6134456"),  # another start
        ("with 32000 atoms", "with 31999 atoms"),
        ("for 100 steps", "for 99 steps"),
        ("-4.6223613", "nan"),
        ("0.7574531", "0,7574531"),
        ("     100    0.7574531", "      50    0.7574531"),
    ],
)
def test_a_wrong_result_is_not_verified(old: str, new: str) -> None:
    assert old in PRINTED
    assert parsed(PRINTED.replace(old, new)).ok is False


def test_only_energies_are_verified_for_other_sizes() -> None:
    """4 cells, 256 atoms, 20 steps as LAMMPS printed them: no known temperature, but known energies."""
    small = (
        PRINTED.replace("32000", "256")
        .replace("100 steps", "20 steps")
        .replace("-4.6134356", "-4.6218056")
        .replace(
            "     100    0.7574531   -5.7585055            0   -4.6223613",
            "20 0.6239063 -5.557644 0 -4.6254403",
        )
    )
    assert parsed(small, cells=4, steps=20).ok
    assert not parsed(small, cells=5, steps=20).ok


def test_commas_of_a_locale_and_missing_numbers_are_no_values() -> None:
    text = PRINTED.replace("2.37571", "2,37571").replace("| 0.88165 ", "| inf ").replace("42.093", "nan")
    found = {m.name: m for m in parsed(text).metrics}
    assert found["loop"].value is None and found["comm"].value is None and found["timesteps"].value is None
    assert "has no loop" in found["loop"].reason and found["pair"].value == 1.2435


def test_lammps_says_itself_why_there_is_nothing() -> None:
    error = "ERROR: Unknown command: meltt (src/input.cpp:312)"
    assert all(error in m.reason for m in parsed(f"LAMMPS (1)\n{error}\n").metrics)
    assert all(error in m.reason for m in parsed("", error).metrics)


@given(st.text() | st.binary().map(lambda b: b.decode(errors="replace")))
def test_any_text_is_read(text: str) -> None:
    found = parsed(text)
    assert len(found.metrics) == 2 + len(SECTIONS) and found.ok is False


@given(st.integers(0, len(PRINTED)), st.text(max_size=5), st.integers(0, 40))
def test_any_truncation_and_damage_is_read(at: int, other: str, length: int) -> None:
    for text in (PRINTED[:at], PRINTED[:at] + other + PRINTED[at + length :]):
        found = parsed(text)
        assert all((m.value is None) == bool(m.reason) for m in found.metrics)
    assert parsed(PRINTED[:at]).ok is (PRINTED[:at].count("32000 atoms") == 2)


def test_digits_without_end_are_no_number() -> None:
    assert parsed(PRINTED.replace("2.37571", "9" * 5000)).metrics[0].value is None


@pytest.mark.parametrize(
    ("ranks", "factors"), [(1, (1, 1, 1)), (2, (2, 1, 1)), (8, (2, 2, 2)), (12, (3, 2, 2)), (7, (7, 1, 1))]
)
def test_boxes_as_near_to_a_cube_as_they_can_be(ranks: int, factors: tuple[int, int, int]) -> None:
    assert grid(ranks) == factors


def test_the_box_is_scaled_to_ranks_and_to_memory() -> None:
    two = place()
    assert atoms(choices(), two) == 32_000
    assert box(choices(scaling="ranks"), two) == (40, 20, 20)
    assert box(choices(scaling="ranks"), place(instances=2, tasks=1)) == (40, 20, 20)
    for scaling in ("fixed", "ranks"):
        filled = choices(cells="auto", scaling=scaling, fill=0.5)
        larger = choices(cells=box(filled, two)[1] + 1, scaling=scaling)
        assert memory(filled, two) <= 0.5 * two.memory < memory(larger, two)
    tiny = place(memory=int(RANK_BYTES))
    assert box(choices(cells="auto"), tiny) == (4, 4, 4)


def test_sizes_that_do_not_fit_are_refused_before_the_start() -> None:
    assert Lammps().problem(choices(), place()) is None
    assert "cells: auto" in (Lammps().problem(choices(cells=400), place()) or "")
    assert Lammps().problem(choices(cells="auto"), place()) is None
    beyond = choices(cells=800, scaling="ranks")
    assert "numbers at most" in (Lammps().problem(beyond, place(tasks=8, memory=1 << 50)) or "")


def test_input_script_has_the_requested_sizes() -> None:
    invocation = Lammps().command(choices(write_every=10), place())
    (name,) = invocation.files
    text = invocation.files[name]
    assert name in invocation.argv and invocation.mpi
    assert "block 0 20 0 20 0 20" in text and text.endswith("run 100\n")
    assert re.search(r'^dump 1 all custom 10 "/run/x/storage/\S+" id x y z$', text, re.M)
    assert "dump" not in Lammps().command(choices(), place()).files[name]
    assert not Lammps().prepare(choices(), place())
    assert Lammps().needs(choices()).packages == ("lammps",)
    assert [Lammps().needs(choices(write_every=n)).storage for n in (0, 10)] == [False, True]
    own = choices(program="/opt/lammps/bin/lmp")
    assert Lammps().needs(own).programs == ("/opt/lammps/bin/lmp",) and not Lammps().needs(own).packages
    assert Lammps().command(own, place()).argv[0] == "/opt/lammps/bin/lmp"
    assert "absolute path" in (Lammps().problem(choices(program="bin/lmp"), place()) or "")


def test_the_estimate_grows_with_atoms_and_steps_of_a_rank() -> None:
    def seconds(ranks: int = 1, **values: Value) -> float:
        return Lammps().seconds(choices(**values), ranks) - START_SECONDS

    assert seconds(steps=1000) == pytest.approx(10 * seconds(steps=100))
    assert seconds(ranks=2) == pytest.approx(seconds() / 2)
    assert seconds(ranks=2, scaling="ranks") == seconds() == pytest.approx(32_000 * 100 * ATOM_SECONDS)
    assert seconds(cells="auto") > seconds()
