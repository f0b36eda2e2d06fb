"""A user's own program as a workload: rows out of its output and what the system says it used."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from ..errors import UsageError
from ..model.record import JsonValue, Row, Status
from ..model.study import Better, CommandWorkload, MetricSpec, VerifySpec

# Characters of the output that are looked at: whatever a program prints, reading it ends.
SEARCHED = 8 << 20
# ... and of what a verification found, in its record.
SHOWN = 300


def problem(metric: MetricSpec) -> str | None:
    """Why this metric cannot be read from any output, or None: for the study file, before anything starts."""
    try:
        if metric.regex is not None:
            _pattern(metric)
    except UsageError as e:
        return e.what
    if metric.json_path is not None and not all(metric.json_path.split(".")):
        return f"json_path of metric '{metric.name}': an empty name in '{metric.json_path}'"
    return None


def parse(
    workload: CommandWorkload,
    stdout: str,
    *,
    wall: float,
    user: float | None,
    system: float | None,
    max_rss: int | None,
    io: Mapping[str, int] | None = None,
    parts: Mapping[str, float] | None = None,
) -> tuple[Row, ...]:
    """The rows of one run: those of used_rows, then the workload's own metrics, of which one that bears one
    of their names takes its place. parts: seconds within wall by kind. Where the workload has something to
    verify, every row holds what was expected and found; where that failed, every row is FAILED and keeps its
    values.

    A regex is searched with ^ and $ meaning lines, and the *first* match counts (where a program prints a
    value per step, the expression tells them apart). A json_path is looked up in the whole output, or else in
    the first line that is a JSON object holding it; a step is a key, or a number into a list. A value that is
    missing, not a number or not positive gives a FAILED row with the reason. Raises UsageError for a regex
    that is none."""
    text = stdout[:SEARCHED]
    own = {m.name: _own_row(workload, m, text) for m in workload.metrics}
    used = used_rows(
        workload.name, wall=wall, user=user, system=system, max_rss=max_rss, io=io, own=own, parts=parts
    )
    return _verified(workload.verify, text, used + tuple(own.values()))


def used_rows(
    name: str,
    *,
    wall: float,
    user: float | None,
    system: float | None,
    max_rss: int | None,
    io: Mapping[str, int] | None = None,
    own: Container[str] = (),
    parts: Mapping[str, float] | None = None,
) -> tuple[Row, ...]:
    """What a run took, as rows of the workload `name`: wall, user, system (seconds), max_rss, and read and
    written by system calls (bytes; no row where there were none), where measured. own: names of metrics that
    the workload measures itself, which take their place; parts: as in parse."""
    measured: tuple[tuple[str, str, float | None], ...] = (
        ("wall", "s", wall),
        ("user", "s", user),
        ("system", "s", system),
        ("max_rss", "B", max_rss),
        ("read", "B", (io or {}).get("rchar") or None),
        ("written", "B", (io or {}).get("wchar") or None),
    )
    rows = tuple(
        value_row(name, metric, unit, Better.LOWER, value)
        for metric, unit, value in measured
        if value is not None and metric not in own
    )
    if parts and rows and rows[0].metric == "wall" and rows[0].values:
        divided = replace(rows[0], parts={kind: (seconds,) for kind, seconds in parts.items()})
        rows = (divided, *rows[1:])
    return rows


def _verified(spec: VerifySpec | None, text: str, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    if spec is None:
        return rows
    match = re.search(spec.regex, text, re.MULTILINE)
    if spec.expected is None:
        expected, found = f"output like {spec.regex}", match[0] if match else f"none; {_end(text)}"
        ok = match is not None
    else:
        expected = spec.expected
        found = (match[1] or "") if match else f"nothing like {spec.regex}; {_end(text)}"
        ok = match is not None and match[1] == spec.expected
    return verified_rows(rows, ok=ok, expected=expected, found=found)


def verified_rows(rows: tuple[Row, ...], *, ok: bool, expected: str, found: str) -> tuple[Row, ...]:
    """The rows with what was expected and found; of a run that failed, FAILED with their values."""
    verification: dict[str, JsonValue] = {"ok": ok, "expected": expected, "found": found[:SHOWN]}
    if ok:
        return tuple(replace(r, verification=verification) for r in rows)
    reason = f"verification failed: expected {expected}, found {found[:SHOWN]}"
    return tuple(replace(r, status=Status.FAILED, reason=reason, verification=verification) for r in rows)


def _end(text: str) -> str:
    """How an output ends, in words."""
    lines = text.split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"the output ends in {last!r}" if last else "there is no output"


def _own_row(workload: CommandWorkload, metric: MetricSpec, text: str) -> Row:
    found = _by_regex(metric, text) if metric.regex is not None else _by_path(metric, text)
    if isinstance(found, str):
        return value_row(workload.name, metric.name, metric.unit, metric.better, None, found)
    return value_row(workload.name, metric.name, metric.unit, metric.better, found)


def value_row(
    workload: str, metric: str, unit: str, better: Better, value: float | None, reason: str = ""
) -> Row:
    """One value, or why there is none."""
    if value is not None and not (math.isfinite(value) and value > 0):
        # A ratio of such values means nothing; times of 0 lie below the resolution of the system's clock.
        value, reason = None, f"{value:g} {unit} is not a positive number"
    return Row(
        workload=workload,
        metric=metric,
        unit=unit,
        better=better,
        values=() if value is None else (float(value),),
        status=Status.FAILED if value is None else Status.OK,
        reason=reason,
    )


def _pattern(metric: MetricSpec) -> re.Pattern[str]:
    """Raises UsageError unless the regex compiles and has exactly one group."""
    try:
        pattern = re.compile(metric.regex or "", re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as e:
        raise UsageError(f"regex of metric '{metric.name}': {e}") from e
    if pattern.groups != 1:
        raise UsageError(
            f"regex of metric '{metric.name}' has {pattern.groups} groups; one is needed, around the number",
            remedy="write other groups as (?:...)",
        )
    return pattern


def _by_regex(metric: MetricSpec, text: str) -> float | str:
    """The value, or why there is none."""
    match = _pattern(metric).search(text)
    if match is None or match[1] is None:
        return f"metric '{metric.name}': the output holds nothing like {metric.regex}"
    return _number(metric, match[1])


def _by_path(metric: MetricSpec, text: str) -> float | str:
    steps = (metric.json_path or "").split(".")
    for document in _documents(text):
        found = _walk(document, steps)
        if isinstance(found, bool | list | dict):
            return f"metric '{metric.name}': {metric.json_path} is not a number"
        if found is not None:
            return _number(metric, found)
    return f"metric '{metric.name}': the output holds no {metric.json_path} in JSON"


def _documents(text: str) -> Iterator[JsonValue]:
    for part in (text, *(line for line in text.splitlines() if line.lstrip().startswith("{"))):
        try:
            document: JsonValue = json.loads(part)
        except (ValueError, RecursionError):
            continue
        yield document


def _walk(value: JsonValue, steps: list[str]) -> JsonValue:
    """What stands at the path; None where nothing does."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _number(metric: MetricSpec, value: str | int | float) -> float | str:
    try:
        return float(value) * metric.scale
    except (ValueError, OverflowError):
        return f"metric '{metric.name}': '{str(value)[:80]}' is not a number"
