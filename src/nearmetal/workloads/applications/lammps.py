"""LAMMPS (molecular dynamics): the Lennard-Jones melt, by default with 32,000 atoms. The metrics are the
times that LAMMPS reports."""

from __future__ import annotations

import math
import re

from ...model.record import JsonValue
from ...model.study import Better
from ..numbers import number
from ..parameter import Choices, Kind, Parameter
from .contract import Application, Invocation, Needs, Output, Parsed, Place, metrics_of, parts_of
from .several import program_parameter, program_problem

#: Atoms in a cell of the face-centred cubic lattice.
EACH = 4
#: Cells along each edge in LAMMPS's own Lennard-Jones benchmark, and its number of steps.
BENCH_CELLS, BENCH_STEPS = 20, 100
#: Memory of a rank (resident set, bytes) without atoms, and additional memory for each atom with neighbours
#: and ghosts: measured with 4,000 to 442,368 atoms on one rank of LAMMPS of 29 Sep 2021 (64-bit).
RANK_BYTES, ATOM_BYTES = 36e6, 350.0
#: For estimates: seconds of the start, and of a step for each atom of a rank; memory of a rank in bytes.
START_SECONDS, ATOM_SECONDS, USUAL_MEMORY = 0.25, 3e-7, 512 << 20
#: An atom's number has 31 bits (tagint in a usual build).
MOST_ATOMS = (1 << 31) - 1
#: For the perfect lattice at density 0.8442 with a cut-off of 2.5 sigma: potential energy of an atom
#: (epsilon) at any size, and the temperature for which velocities are drawn.
LATTICE_ENERGY, START_TEMPERATURE = -6.7733681, 1.44
#: Results of the benchmark after 100 steps with 32,000 atoms: temperature, energy of an atom.
BENCH_END = (0.7574531, -4.6223613)
#: Tolerance for any number of ranks and order of sums; and the drift of the total energy, which the
#: equations conserve, with this time step and cut-off while the lattice melts (measured: 0.2 %).
BENCH_TOLERANCE, DRIFT = 1e-3, 5e-3

#: Lines of the breakdown, in its order: the metric and its kind of time.
SECTIONS = {
    "Pair": "compute",
    "Neigh": "compute",
    "Comm": "comm",
    "Output": "io",
    "Modify": "compute",
    "Other": "other",
}
_TIMED = (("loop", "s", Better.LOWER), ("timesteps", "op/s", Better.HIGHER))
_PROGRAM, _INPUT = "lmp", "in.melt"
#: With this suffix LAMMPS writes binary data. The disk is then measured, not the formatting of numbers.
_DUMP = "positions.bin"

PARAMETERS = (
    Parameter(
        "cells",
        Kind.WHOLE,
        BENCH_CELLS,
        "lattice cells of 4 atoms along each edge of the box; auto: as many as `fill` allows",
        auto=True,
        least=4,
        most=800,
    ),
    Parameter(
        "fill", Kind.SHARE, 0.5, "how much of the instances' memory cells: auto fills", least=0.01, most=1.5
    ),
    Parameter(
        "scaling",
        Kind.WORD,
        "fixed",
        "fixed: one box, whatever the ranks; ranks: a box of so many cells for each of them",
        words=("fixed", "ranks"),
    ),
    Parameter("steps", Kind.WHOLE, BENCH_STEPS, "time steps", most=1 << 30),
    Parameter(
        "write_every",
        Kind.WHOLE,
        0,
        "steps from one writing of all positions into the storage to the next; 0: none",
        least=0,
        most=1 << 30,
    ),
    program_parameter(_PROGRAM),
)


def grid(ranks: int) -> tuple[int, int, int]:
    """Return three factors whose product is `ranks`, as equal as possible, the largest first."""
    best = (ranks, 1, 1)
    for a in range(1, round(ranks ** (1 / 3)) + 1):
        for b in range(a, math.isqrt(ranks // a) + 1):
            if ranks % a == 0 and (ranks // a) % b == 0:
                best = min(best, (ranks // a // b, b, a))
    return best


def box(choices: Choices, place: Place) -> tuple[int, int, int]:
    """Return the number of lattice cells along each edge of the box."""
    factors = grid(place.ranks) if choices.word("scaling") == "ranks" else (1, 1, 1)
    cells = choices.whole("cells")
    if cells is None:
        atoms = (choices.real("fill") * place.memory / place.tasks - RANK_BYTES) / ATOM_BYTES
        each = max(atoms, 0.0) * place.ranks / math.prod(factors) / EACH
        cells = max(4, int(each ** (1 / 3) + 1e-9))
    x, y, z = (cells * f for f in factors)
    return x, y, z


def atoms(choices: Choices, place: Place) -> int:
    return EACH * math.prod(box(choices, place))


def memory(choices: Choices, place: Place) -> float:
    """Return the approximate memory in bytes of the ranks of one instance."""
    return place.tasks * (RANK_BYTES + ATOM_BYTES * atoms(choices, place) / place.ranks)


class Lammps(Application):
    """Debian's lammps."""

    name = "lammps"
    doc = "molecular dynamics: a Lennard-Jones melt, loop time and its breakdown"
    parameters = PARAMETERS

    def needs(self, choices: Choices) -> Needs:
        program = choices.word("program")
        return Needs(
            programs=(program,),
            packages=("lammps",) if program == _PROGRAM else (),
            storage=bool(choices.whole("write_every")),
        )

    def problem(self, choices: Choices, place: Place) -> str | None:
        if (what := program_problem(choices)) is not None:
            return what
        count, wanted = atoms(choices, place), memory(choices, place)
        if count > MOST_ATOMS:
            return f"{count:,} atoms: LAMMPS numbers at most {MOST_ATOMS:,}; take fewer cells"
        if wanted > place.memory and choices.whole("cells") is not None:
            return (
                f"{count:,} atoms take about {wanted / 2**20:,.0f} MiB in each instance, which has "
                f"{place.memory / 2**20:,.0f} MiB; take fewer cells, or cells: auto"
            )
        return None

    def seconds(self, choices: Choices, ranks: int = 1) -> float:
        cells = choices.whole("cells")
        each = (choices.real("fill") * USUAL_MEMORY - RANK_BYTES) / ATOM_BYTES
        if cells is not None:
            each = EACH * cells**3 / (1 if choices.word("scaling") == "ranks" else ranks)
        return START_SECONDS + max(each, 0.0) * (choices.whole("steps") or 1) * ATOM_SECONDS

    def command(self, choices: Choices, place: Place) -> Invocation:
        return Invocation(
            argv=(choices.word("program"), "-in", _INPUT, "-log", "none", "-nocite"),
            mpi=True,
            env={"OMP_NUM_THREADS": "1"},  # one thread for each CPU would differ between the arms
            files={_INPUT: _melt(choices, place)},
        )

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return (*_TIMED, *((name.lower(), "s", Better.LOWER) for name in SECTIONS))

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        text = output.stdout
        values = _timed(text) | _breakdown(text)
        ok, expected, found = _verified(choices, place, text)
        kinds = ((name.lower(), kind) for name, kind in SECTIONS.items())
        return Parsed(
            metrics=metrics_of(self.metrics(choices), values, lambda name: _missing(output, name)),
            ok=ok,
            expected=expected,
            found=found,
            parts=parts_of(kinds, values),
            facts=_facts(text),
        )


def _melt(choices: Choices, place: Place) -> str:
    """Return the input: LAMMPS's documented Lennard-Jones benchmark, with another size.

    Initial velocities depend on the position only (loop geom), so that any number of ranks computes the same
    melt.
    """
    x, y, z = box(choices, place)
    steps, every = choices.whole("steps"), choices.whole("write_every")
    lines = [
        "units lj",
        "atom_style atomic",
        "lattice fcc 0.8442",
        f"region box block 0 {x} 0 {y} 0 {z}",
        "create_box 1 box",
        "create_atoms 1 box",
        "mass 1 1.0",
        f"velocity all create {START_TEMPERATURE} 87287 loop geom",
        "pair_style lj/cut 2.5",
        "pair_coeff 1 1 1.0 1.0 2.5",
        "neighbor 0.3 bin",
        "neigh_modify delay 0 every 20 check no",
        "fix 1 all nve",
    ]
    if every and place.storage is not None:
        lines.append(f'dump 1 all custom {every} "{place.storage / _DUMP}" id x y z')
    return "\n".join([*lines, f"run {steps}", ""])


def _pattern(regex: str) -> re.Pattern[str]:
    return re.compile(regex, re.MULTILINE | re.ASCII)


# Whole numbers of digits only: no 'nan', no decimal comma.
_N = r"(?<![\d.,])([-+]?\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,3})?)"
_LOOP = _pattern(rf"^Loop time of {_N} on (\d{{1,9}}) procs for (\d{{1,12}}) steps with (\d{{1,12}}) atoms")
_RATE = _pattern(rf"^Performance:.{{0,200}}?{_N} timesteps/s")
_SECTION = _pattern(rf"^({'|'.join(SECTIONS)}) *\|(?: *{_N}? *\|) *{_N} *\|")
_STEPS = _pattern(r"^ *Step +Temp +E_pair +E_mol +TotEng +Press *\n((?: *[-+\d][-+\d.eE ]*\n)+)")
_MEMORY = _pattern(rf"^Per MPI rank memory allocation \(min/avg/max\) = {_N} \| {_N} \| {_N} Mbytes")
_GRID = _pattern(r"^ *(\d{1,6} by \d{1,6} by \d{1,6}) MPI processor grid")
_USE = _pattern(rf"^{_N}% CPU use")
_VERSION = _pattern(r"^LAMMPS \(([^)\n]{1,60})\)")


def _timed(text: str) -> dict[str, float | None]:
    loop, rate = _LOOP.search(text), _RATE.search(text)
    return {
        "loop": None if loop is None else number(loop[1]),
        "timesteps": None if rate is None else number(rate[1]),
    }


def _breakdown(text: str) -> dict[str, float | None]:
    """Return the mean time over the ranks, in seconds, by section of LAMMPS's timing breakdown."""
    rows = {m[1]: number(m[3]) for m in _SECTION.finditer(text)}
    return {name.lower(): rows.get(name) for name in SECTIONS}


def _verified(choices: Choices, place: Place, text: str) -> tuple[bool, str, str]:
    """Check the energy of the perfect lattice, the number of atoms, and the conservation of the total energy.
    For the benchmark itself, also check the known temperature and energy."""
    count, steps = atoms(choices, place), choices.whole("steps")
    kinetic = 1.5 * START_TEMPERATURE * (count - 1) / count  # the total momentum is removed
    start = kinetic + LATTICE_ENERGY
    expected = f"{count} atoms, {steps} steps, from energy {start:.7g}, kept within {DRIFT:.1%}"
    bench = tuple(sorted(box(choices, place))) == (BENCH_CELLS,) * 3 and steps == BENCH_STEPS
    if bench:
        expected += f", to temperature {BENCH_END[0]} and energy {BENCH_END[1]}"
    loop, table = _LOOP.search(text), _STEPS.search(text)
    rows = [line.split() for line in table[1].splitlines()] if table else []
    shown = [tuple(map(number, row)) for row in rows if len(row) == 6]
    if loop is None or len(shown) < 2:
        return False, expected, "no end of the run"
    first, last = shown[0], shown[-1]
    found = (
        f"{loop[4]} atoms, {loop[3]} steps, from energy {first[4]} to temperature {last[1]}, energy {last[4]}"
    )
    same = loop[4] == str(count) and loop[3] == str(steps) and last[0] == steps
    same = same and _near(first[4], start, 1e-6) and _near(last[4], start, DRIFT)
    if bench:
        same = same and all(
            _near(value, known, BENCH_TOLERANCE)
            for value, known in zip((last[1], last[4]), BENCH_END, strict=True)
        )
    return same, expected, found


def _near(value: float | None, known: float, share: float) -> bool:
    return value is not None and abs(value - known) <= share * abs(known)


def _facts(text: str) -> dict[str, JsonValue]:
    """Return further facts for the record: version, atoms, processor grid, largest memory of a rank as
    reported by LAMMPS (bytes), and its '% CPU use'.

    A CPU use of less than 100 % means that ranks waited for a CPU.
    """
    out: dict[str, JsonValue] = {}
    if version := _VERSION.search(text):
        out["version"] = version[1]
    if loop := _LOOP.search(text):
        out["atoms"] = int(loop[4])
    if processors := _GRID.search(text):
        out["grid"] = processors[1]
    if (allocated := _MEMORY.search(text)) and (value := number(allocated[3])) is not None:
        out["rank_memory"] = value * 2**20
    if (use := _USE.search(text)) and (percent := number(use[1])) is not None:
        out["cpu_use"] = percent / 100
    return out


def _missing(output: Output, name: str) -> str:
    """Return why a metric has no value, with LAMMPS's own error if there is one."""
    for line in (*output.stdout.splitlines(), *output.stderr.splitlines()):
        if line.startswith("ERROR"):
            return f"LAMMPS: {line[:200]}"
    return f"the output has no {name}: it ends before the timing breakdown, or is not LAMMPS's"
