"""MITgcm (an ocean model), with the user's own executable and run directory. The metrics are the timers that
it prints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from ...model.record import JsonValue
from ...model.study import Better
from ..numbers import number
from ..parameter import Choices, Kind, Parameter
from .contract import Application, Invocation, Needs, Output, Parsed, Place, metrics_of, parts_of

_STDOUT, _PROGRAM = "STDOUT.0000", "nm-mitgcm"
#: By metric: the sections that it sums (packages may add others), and its kind of time; '' if it is part of
#: another.
SECTIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "all": (("ALL",), ""),
    "initialise": (("INITIALISE_FIXED", "INITIALISE_VARIA"), "init"),
    "forward_step": (("FORWARD_STEP",), ""),
    "thermodynamics": (("THERMODYNAMICS",), "compute"),
    "dynamics": (("DYNAMICS",), "compute"),
    "pressure": (("SOLVE_FOR_PRESSURE",), "compute"),
    "exchanges": (("BLOCKING_EXCHANGES",), "comm"),
    "output": (("DO_THE_MODEL_IO", "DO_WRITE_PICKUP"), "io"),
}
#: Limits of the temperature of sea water, in degrees.
COLDEST, WARMEST = -3.0, 45.0
_SECTION = re.compile(r'Seconds in section "([A-Z_]+(?: [A-Z]+)*) *\[')
_WALL = re.compile(r"Wall clock time:(.*)$")
_STARTS = re.compile(r"No\. starts: *([0-9]{1,18})\s*$")
_MEAN = re.compile(r"%MON dynstat_(theta|salt)_mean *=(.*)$")
_LONGEST = 300  # maximum number of characters in a line


class Mitgcm(Application):
    """MITgcm. The paths of the executable and of the run directory are given by the user."""

    name = "mitgcm"
    doc = "ocean model: your executable in a copy of your run directory, section times, mean temperature"
    parameters: tuple[Parameter, ...] = (
        Parameter("executable", Kind.TEXT, "", "absolute path of mitgcmuv as you built it"),
        Parameter("run", Kind.TEXT, "", "absolute path of a run directory: data, eedata, input"),
        Parameter("mpi", Kind.WORD, "no", "built with MPI", words=("no", "yes")),
        Parameter(
            "theta",
            Kind.TEXT,
            "any",
            "mean potential temperature that it must end with, in degrees; any: that of sea water",
        ),
        Parameter("tolerance", Kind.SHARE, 1e-6, "how far the mean may be from theta", least=0, most=1),
    )

    def needs(self, choices: Choices) -> Needs:
        given = choices.word("executable")
        # The user's executable is copied into the directory of its input, also for an image.
        return Needs(
            programs=() if given else ("mitgcmuv",), remedy="name your own: executable=PATH,run=PATH"
        )

    def problem(self, choices: Choices, place: Place) -> str | None:
        for key, what in (("executable", "mitgcmuv as you built it"), ("run", "its run directory")):
            if not choices.word(key).startswith("/"):
                return f"{key} is an absolute path, of {what}"
        if choices.word("mpi") == "no" and place.ranks > 1 and place.tasks != place.ranks:
            return "without MPI it runs in one instance; write mpi: yes, or take a placement of one"
        if _expected_theta(choices) is None and choices.word("theta") != "any":
            return f"theta is a number of degrees, or any, not {choices.word('theta')[:40]!r}"
        return None

    def command(self, choices: Choices, place: Place) -> Invocation:
        return Invocation(
            argv=(str(PurePosixPath(place.directory, _PROGRAM)),),
            mpi=choices.word("mpi") == "yes",
            copies={choices.word("run"): ".", choices.word("executable"): _PROGRAM},
            fresh=True,
            outputs=(_STDOUT,),
        )

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return (*((name, "s", Better.LOWER) for name in SECTIONS), ("steps", "op/s", Better.HIGHER))

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        # Without MPI it prints everything to the standard output.
        text = output.files.get(_STDOUT) or output.stdout
        walls, starts, means = _read(text)
        values: dict[str, float | None] = {}
        for name, (sections, _) in SECTIONS.items():
            found = [walls[s] for s in sections if s in walls]
            values[name] = sum(found) if found else None
        whole, steps = values["forward_step"], starts.get("FORWARD_STEP")
        values["steps"] = steps / whole if steps and whole else None
        ok, expected, seen = _verified(choices, means.get("theta"), ended="ALL" in walls)
        facts: dict[str, JsonValue] = {f"{name}_mean": value for name, value in means.items()}
        parts = parts_of(((name, kind) for name, (_, kind) in SECTIONS.items()), values)
        return Parsed(
            metrics=metrics_of(
                self.metrics(choices), values, lambda name: f"its output has no seconds of {name}"
            ),
            ok=ok,
            expected=expected,
            found=seen,
            parts=parts,
            facts=facts | ({"time_steps": steps} if steps else {}),
        )


def _read(text: str) -> tuple[dict[str, float], dict[str, int], dict[str, float]]:
    """Return wall seconds and number of starts by section, and the last means printed by the monitor."""
    walls: dict[str, float] = {}
    starts: dict[str, int] = {}
    means: dict[str, float] = {}
    section = ""
    for line in text.splitlines():
        if len(line) > _LONGEST:
            continue
        if match := _SECTION.search(line):
            section = match[1]
        elif match := _MEAN.search(line):
            means.pop(match[1], None)  # the last value counts, even if it is not a number
            value = number(match[2].strip())
            if value is not None:
                means[match[1]] = value
        elif section and (match := _WALL.search(line)):
            value = number(match[1].strip())
            if value is not None and value >= 0:
                walls.setdefault(section, value)
        elif section and (match := _STARTS.search(line)):
            starts.setdefault(section, int(match[1]))
            section = ""
    return walls, starts, means


def _expected_theta(choices: Choices) -> float | None:
    return None if choices.word("theta") == "any" else number(choices.word("theta"))


def _verified(choices: Choices, theta: float | None, *, ended: bool) -> tuple[bool, str, str]:
    wanted = _expected_theta(choices)
    low, high = COLDEST, WARMEST
    if wanted is not None:
        away = choices.real("tolerance") * abs(wanted)
        low, high = wanted - away, wanted + away
    expected = f"an end, with a mean temperature from {low:.9g} to {high:.9g}"
    if theta is None:
        return False, expected, "no mean temperature (its monitor prints it: monitorFreq in data)"
    if not ended:
        return False, expected, "no seconds of section ALL, which it prints at its end"
    return low <= theta <= high, expected, f"{theta:.9g}"
