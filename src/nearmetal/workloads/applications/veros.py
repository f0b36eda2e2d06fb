"""Veros (an ocean model in Python): an idealised global ocean with a resolution of 4 degrees and 20 layers.
It needs no downloaded data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from ...model.record import JsonValue
from ...model.study import Better
from ..json_text import number_at
from ..parameter import Choices, Kind, Parameter
from .contract import Application, Invocation, Needs, Output, Parsed, Place, metrics_of, parts_of

#: Default grid and number of steps. The grid is a published one: 4 degrees, 20 layers of 50 to 815 m.
GRID, STEPS = (90, 40, 20), 30
#: The mean temperature (degrees) and the eastward current (m/s) that 30 steps of it end with, and by how much
#: either may differ: Veros 1.7 on NumPy.
ENDS: Mapping[str, float] = {"temp": 3.079440, "current": 0.0238497}
TOLERANCE = 1e-3
#: Degrees and g/kg by which the mean may differ from what came in through the surface: rounding alone.
CLOSED = 1e-9
#: Bytes for each cell of the grid that Veros takes, and what it takes besides: an estimate, rather too much,
#: to refuse grids that cannot fit.
CELL_BYTES, BASE_BYTES = 4000, 250e6

#: For estimates: seconds of the start of Python and of the model, and of one step for each cell of the grid.
START_SECONDS, CELL_SECONDS = 2.0, 5e-7

_PROGRAM, _RESULT = "veros_setup.py", "ocean.json"
#: By timer of Veros: the metric and its kind of time. A timer that is part of another one has no kind.
SECTIONS: Mapping[str, tuple[str, str]] = {
    "momentum": ("momentum", "compute"),
    "pressure": ("pressure", ""),
    "friction": ("friction", ""),
    "thermodynamics": ("thermodynamics", "compute"),
    "isoneutral": ("isoneutral", ""),
    "eq_of_state": ("eq_of_state", ""),
    "tke": ("tke", "compute"),
    "diagnostics": ("output", "io"),
}


def _number(name: str, default: int, most: int, doc: str, least: int = 1) -> Parameter:
    return Parameter(name, Kind.WHOLE, default, doc, least=least, most=most)


class Veros(Application):
    """Veros, run by the user's Python interpreter, in which it is installed."""

    name = "veros"
    doc = "ocean model: an idealised global ocean, section times, snapshots and checkpoints"
    parameters: tuple[Parameter, ...] = (
        Parameter("python", Kind.TEXT, "python3", "the interpreter that has the package veros"),
        _number("nx", GRID[0], 3600, "cells from west to east", least=8),
        _number("ny", GRID[1], 1600, "cells from south to north", least=8),
        _number("nz", GRID[2], 500, "layers", least=4),
        _number("steps", STEPS, 1 << 20, "time steps, a day each at 4 degrees", least=2),
        _number("snapshot", 10, 1 << 20, "steps from one snapshot of all fields to the next"),
        _number("checkpoint", 10, 1 << 20, "steps from one restart file to the next"),
    )

    def needs(self, choices: Choices) -> Needs:
        python = choices.word("python")
        return Needs(
            programs=(python,),
            probe=(python, "-c", "import importlib.util as u; raise SystemExit(not u.find_spec('veros'))"),
            probed="the Python package veros",
            remedy=f"{python} -m pip install veros, or name an interpreter that has it: python=PATH",
        )

    def problem(self, choices: Choices, place: Place) -> str | None:
        wanted = BASE_BYTES + CELL_BYTES * math.prod(_grid(choices))
        if wanted > place.memory:
            return (
                f"a grid of {math.prod(_grid(choices)):,} cells takes about {wanted / 2**20:,.0f} MiB, and "
                f"each instance has {place.memory / 2**20:,.0f} MiB; take fewer"
            )
        return None

    def seconds(self, choices: Choices, ranks: int = 1) -> float:
        return START_SECONDS + math.prod(_grid(choices)) * (choices.whole("steps") or 1) * CELL_SECONDS

    def command(self, choices: Choices, place: Place) -> Invocation:
        keys = ("nx", "ny", "nz", "steps", "snapshot", "checkpoint")
        numbers = [word for key in keys for word in (f"--{key}", str(choices.whole(key)))]
        output = "." if place.storage is None else str(place.storage)
        return Invocation(
            argv=(choices.word("python"), _PROGRAM, *numbers, "--output", output, "--result", _RESULT),
            env={
                "VEROS_BACKEND": "numpy",
                "VEROS_FORCE_OVERWRITE": "true",  # left by an earlier run in this storage
                "OMP_NUM_THREADS": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            files={_PROGRAM: _program()},
            outputs=(_RESULT,),
        )

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        timed = (name for name, _ in SECTIONS.values())
        return (
            ("run", "s", Better.LOWER),
            ("main", "s", Better.LOWER),
            ("steps", "op/s", Better.HIGHER),
            *((name, "s", Better.LOWER) for name in timed),
        )

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        result = _parse_result(output.files.get(_RESULT, ""))
        seconds = result.get("seconds")
        timers = seconds if isinstance(seconds, dict) else {}
        steps, main = number_at(result.get("steps")), number_at(timers.get("main"))
        values = {"run": number_at(result.get("run")), "main": main}
        # Its timers omit the first step, in which everything is initialised.
        values["steps"] = (steps - 1) / main if steps is not None and main else None
        values |= {name: number_at(timers.get(timer)) for timer, (name, _) in SECTIONS.items()}
        ok, expected, found = _verified(choices, result)
        parts = parts_of(SECTIONS.values(), values)
        return Parsed(
            metrics=metrics_of(
                self.metrics(choices), values, lambda name: f"its result file {_RESULT} has no {name}"
            ),
            ok=ok,
            expected=expected,
            found=found,
            parts=parts,
            facts={
                key: result[key] for key in ("veros", "steps", "written", "means", "current") if key in result
            },
        )


def _grid(choices: Choices) -> tuple[int, ...]:
    return tuple(choices.whole(key) or 1 for key in ("nx", "ny", "nz"))


@lru_cache(maxsize=1)
def _program() -> str:
    return (Path(__file__).parent / _PROGRAM).read_text(encoding="utf-8")


def _parse_result(text: str) -> dict[str, JsonValue]:
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}


def _verified(choices: Choices, result: Mapping[str, JsonValue]) -> tuple[bool, str, str]:
    """Check that heat and salt are conserved. At the default size, also check the final state of the ocean.

    Returns (whether they are right, expected, found).
    """
    astray, means = result.get("astray"), result.get("means")
    own = {
        name: (number_at(astray.get(name)), number_at(means.get(name)))
        for name in ("temp", "salt")
        if isinstance(astray, dict) and isinstance(means, dict)
    }
    known = [(name, a, mean) for name, (a, mean) in own.items() if a is not None and mean is not None]
    if len(known) < 2:
        return False, "means of temperature and salinity", "none"
    expected, found = [f"heat and salt astray by less than {CLOSED:g}"], []
    found.append(", ".join(f"{name} {a:.1e}" for name, a, _ in known))
    ok = all(abs(a) < CLOSED for _, a, _ in known)
    if _grid(choices) == GRID and choices.whole("steps") == STEPS:
        ends = {"temp": known[0][2], "current": number_at(result.get("current"))}
        for name, wanted in ENDS.items():
            value = ends[name]
            expected.append(f"{name} {wanted:g} to {TOLERANCE:.1%}")
            found.append(f"{name} {value if value is None else f'{value:.6g}'}")
            ok = ok and value is not None and abs(value - wanted) <= TOLERANCE * wanted
    return ok, "; ".join(expected), "; ".join(found)
