"""The file plan.json of a results directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from ..errors import RecordsError
from ..host.untrusted import UntrustedDirectory
from ..model.plan import GROWING, ExpectedLooks, GrowingLooks, Schedule, Work
from ..model.record import JsonValue
from .json_files import json_object, require_schema, unix_time

_SCHEMA, _OLD_SCHEMA = 2, 1
"""Schemas of plan.json. Plans of schema 1 have no schedule."""


_GROWING, _EXPECTED = "growing looks", "expected looks"


@dataclass(frozen=True, kw_only=True)
class PlanMeta:
    """The data that, together with the study, determine the order of the trials and when the results are
    analysed.

    seed: seed of all random orders.
    arms: names of the arms in the order of the study.
    created: Unix seconds when the plan was written.
    started: Unix seconds when the command that began the run was started; None in older directories.
    schedule: when the results are analysed.
    slices: number of slices in the first block, by kernel workload; empty in older directories.
    work: units of work in a slice, by kernel workload and number of ranks; empty in older directories.
    missing: numbers of the blocks that were given up.
    """

    study: str
    seed: int
    arms: tuple[str, ...]
    created: float
    started: float | None = None
    schedule: Schedule = GROWING
    slices: Mapping[str, int] = field(default_factory=dict)
    work: Work = field(default_factory=dict)
    missing: tuple[int, ...] = ()


def plan_form(plan: PlanMeta) -> dict[str, Any]:
    """Return the contents of plan.json as JSON values."""
    match plan.schedule:
        case GrowingLooks(closing=closing, first=first):
            schedule: dict[str, JsonValue] = {"name": _GROWING, "closing": list(closing)}
            if first:
                schedule["first"] = first
        case ExpectedLooks(expected=expected):
            schedule = {"name": _EXPECTED, "expected": expected}
        case _ as unknown:
            assert_never(unknown)
    known = {k: v for k, v in plan.__dict__.items() if k != "missing" or v}
    return {"schema": _SCHEMA, **known, "schedule": schedule}


def _schedule(data: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a plan.json. Plans of schema 1 contain only the expected number of blocks.

    Raises ValueError, KeyError or TypeError if the data are corrupt.
    """
    if "schedule" not in data:
        return ExpectedLooks(expected=int(data["expected_blocks"]))
    found = data["schedule"]
    if found["name"] == _GROWING:
        closing = tuple(int(block) for block in found["closing"])
        return GrowingLooks(closing=closing, first=int(found.get("first", 0)))
    if found["name"] == _EXPECTED:
        return ExpectedLooks(expected=int(found["expected"]))
    raise ValueError(f"schedule {found['name']!r}")


def read_plan(directory: UntrustedDirectory, name: str) -> PlanMeta:
    """Return the plan in a plan.json.

    Raises RecordsError if the file cannot be read or is corrupt, or if its schema is unknown.
    """
    data, file = json_object(directory, name), directory.path_to(name)
    require_schema(data, "plan", _OLD_SCHEMA if data.get("schema") == _OLD_SCHEMA else _SCHEMA, file)
    try:
        return PlanMeta(
            study=str(data["study"]),
            seed=int(data["seed"]),
            arms=tuple(str(a) for a in data["arms"]),
            created=unix_time(data["created"]),
            started=None if (started := data.get("started")) is None else unix_time(started),
            schedule=_schedule(data),
            slices={str(k): int(v) for k, v in data.get("slices", {}).items()},
            work={
                str(name): {int(ranks): int(n) for ranks, n in units.items()}
                for name, units in data.get("work", {}).items()
            },
            missing=tuple(int(n) for n in data.get("missing", ())),
        )
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError) as e:
        raise RecordsError(f"corrupt: {e!r}", where=str(file), remedy="take it from a copy") from e
