"""Reads published figures of papers, which are stored as data. They are shown beside measured results and are
never part of an estimate.

This package does not know the analysis.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from importlib import resources
from typing import Any

from ..errors import PaperFileError, StudyProblem
from ..model.published import Likeness, Paper, Published, PublishedFigure, Quantity

_SYNTAX = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)
PHASES = ("computation", "communication", "start of MPI")
"""Phases of a process, in the order of the tables of times."""


def paper_keys() -> tuple[str, ...]:
    """Return the keys of the built-in papers, oldest first."""
    files = (f.name for f in resources.files(__name__).iterdir())
    keys = (name.removesuffix(".toml") for name in files if name.endswith(".toml"))
    return tuple(sorted(keys, key=lambda key: (key.rpartition("-")[2], key)))


def published(key: str) -> Published | None:
    """Return the figures of a paper by its key; None if there are none."""
    file = resources.files(__name__).joinpath(f"{key}.toml")
    return read(file.read_text(encoding="utf-8"), f"{key}.toml") if file.is_file() else None


def read(text: str, name: str) -> Published:
    """Read figures from our file format.

    name: name of the file in messages.
    Raises PaperFileError with the position of a mistake.

    Its tables are [paper], [times] with a row of (percent, milliseconds) by phase, [[figure]], and
    [[instances]] with a row of numbers by place and the names of its columns.
    """
    try:
        return _published(tomllib.loads(text))
    except tomllib.TOMLDecodeError as e:
        found = _SYNTAX.fullmatch(str(e))
        line, column = (int(found[2]), int(found[3])) if found else (text.count("\n") + 1, 1)
        what = f"not readable as TOML: {found[1] if found else e}"
        raise PaperFileError((StudyProblem(file=name, line=line, column=column, what=what),)) from e


def _published(data: Mapping[str, Any]) -> Published:
    figures = (
        *(_times(data["times"]) if "times" in data else ()),
        *map(_figure, data.get("figure", ())),
        *(f for entry in data.get("instances", ()) for f in _instances(entry)),
    )
    return Published(paper=Paper(**data["paper"]), figures=figures)


def _times(table: Mapping[str, Any]) -> Iterator[PublishedFigure]:
    for entry in table["place"]:
        for name, row in entry.items():
            if name == "place":
                continue
            kernel, _, size = name.partition("-")
            for phase, (percent, milliseconds) in zip(PHASES, row, strict=True):
                for quantity, value, unit in (
                    (Quantity.TIME, milliseconds / 1000, "s"),
                    (Quantity.TIME_SHARE, percent / 100, "share"),
                ):
                    yield PublishedFigure(
                        part=table["part"],
                        what=f"{phase} of {name}, {entry['place']}",
                        quantity=quantity,
                        low=value,
                        high=value,
                        unit=unit,
                        source=table["source"],
                        likeness=Likeness(table["likeness"]),
                        differs=table["differs"],
                        workloads=(kernel.lower(),),
                        size=size,
                        arm=entry["place"],
                        phase=phase,
                    )


def _figure(entry: Mapping[str, Any]) -> PublishedFigure:
    words = {k: entry.get(k, "") for k in ("size", "arm", "baseline")}
    if "percent" in entry:
        (low, high), unit = (p / 100 for p in entry["percent"]), "share"
    else:
        (low, high), unit = entry["number"], entry["unit"]
    return PublishedFigure(
        part=entry["part"],
        what=entry["what"],
        quantity=Quantity(entry["quantity"]),
        low=float(low),
        high=float(high),
        unit=unit,
        source=entry["source"],
        likeness=Likeness(entry["likeness"]),
        differs=entry["differs"],
        workloads=tuple(entry.get("workloads", ())),
        **words,
    )


def _instances(entry: Mapping[str, Any]) -> Iterator[PublishedFigure]:
    scale = Decimal("0.01") if entry["unit"] == "share" else Decimal(str(entry.get("scale", 1)))
    for place, row in entry["place"].items():
        for name, value in zip(entry["names"], row, strict=True):
            yield PublishedFigure(
                part=entry["part"],
                what=f"{entry['what']} {name}, {place}",
                quantity=Quantity(entry.get("quantity", Quantity.INSTANCES)),
                low=float(Decimal(str(value)) * scale),
                high=float(Decimal(str(value)) * scale),
                unit=entry["unit"],
                source=entry["source"],
                likeness=Likeness(entry["likeness"]),
                differs=entry["differs"],
                workloads=tuple(entry["workloads"]),
                arm=place,
                phase=f"{entry['of']}.{name}",
            )
