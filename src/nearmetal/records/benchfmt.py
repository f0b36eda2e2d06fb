"""The Go benchmark format, for benchstat: one line per instance and metric, since the instance is the
replicate.

Format: https://golang.org/design/14313-benchmark-format (result and configuration lines) and
https://golang.org/issue/43744 (unit lines).

To compare environments: benchstat -col /env -filter '-/aa:2' FILE
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from ..model.record import JsonValue, Row, Status, TrialRecord, section
from ..model.study import Better
from ..plain_text import clean, one_line
from .reading import counted_attempts

_NOT_IN_NAMES = re.compile(r"[/=\s]")
_UNITS = {"s": "sec/op", "B": "B/op"}


def benchfmt(records: Iterable[TrialRecord], *, study: str, provenance: Mapping[str, JsonValue]) -> bytes:
    """Return the records as text in the Go benchmark format.

    A line such as `BenchmarkStreamTriad/env=native/placement=1x2 8 0.0123 sec/op` is the median of 8 runs
    inside one instance. The unit of seconds is sec/op; rates keep their unit. Failed rows and records of
    incomplete attempts are left out. The A/A arm has /aa=2. No name ends in a dash and a number, which the
    format would read as GOMAXPROCS.

    study: name of the study.
    provenance: contents of provenance.json.
    """
    used = [
        (r, row)
        for r in counted_attempts(records)
        for row in r.rows
        if row.status is Status.OK and row.values
    ]
    names = _names([row for _, row in used])
    lines = [*_configuration(study, provenance), *_unit_lines([row for _, row in used])]
    lines += [
        f"Benchmark{names[row.workload, row.metric]}{_sub_names(r)} {len(row.values)} "
        f"{median(row.values)!r} {unit(row.unit)}"
        for r, row in used
    ]
    return clean("\n".join(lines) + "\n").encode()


def unit(base: str) -> str:
    """Return the unit that benchstat expects for a base unit; never with a space."""
    return _UNITS.get(base) or re.sub(r"\s+", "-", base) or "value"


def _configuration(study: str, provenance: Mapping[str, JsonValue]) -> list[str]:
    lines = [f"study: {one_line(study)}"]
    for of, name in (("cpu", "model"), ("kernel", "release")):
        value = section(provenance, of).get(name)
        if isinstance(value, str):
            lines.append(f"{of}: {one_line(value)}")
    return lines


def _unit_lines(rows: Sequence[Row]) -> list[str]:
    """Return, for each unit, a line that says whether higher or lower is better. A unit is left out if its
    metrics differ in this."""
    ways: dict[str, set[Better]] = {}
    for row in rows:
        ways.setdefault(unit(row.unit), set()).add(row.better)
    return [f"Unit {u} better={next(iter(way)).value}" for u, way in ways.items() if len(way) == 1]


def _names(rows: Sequence[Row]) -> dict[tuple[str, str], str]:
    """Return a CamelCase name for each (workload, metric). A number is appended to a name that is already
    taken."""
    names: dict[tuple[str, str], str] = {}
    for row in rows:
        key = (row.workload, row.metric)
        if key not in names:
            name, number = _camel(f"{row.workload} {row.metric}"), 1
            while (name if number == 1 else f"{name}_{number}") in names.values():
                number += 1
            names[key] = name if number == 1 else f"{name}_{number}"
    return names


def _camel(text: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in re.findall(r"[^\W_]+", text)) or "Unnamed"


def _sub_names(record: TrialRecord) -> str:
    environment, _, placement = record.arm.partition("/")
    pairs = [("env", environment), ("placement", placement)] + ([("aa", "2")] if record.aa else [])
    name = "".join(f"/{key}={_NOT_IN_NAMES.sub('_', value)}" for key, value in pairs if value)
    return re.sub(r"-(\d+)$", r"_\1", name)
