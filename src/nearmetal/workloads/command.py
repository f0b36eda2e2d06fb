"""A user's own program as a workload: makes rows from its output and from the resources that it used."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from ..model.change import replace
from ..model.expression import search
from ..model.record import TOO_SHORT, JsonValue, Row, Status
from ..model.study import Better, CommandWorkload, MetricSpec, Stream, VerifySpec
from ..model.workloads.programs import RESOURCES
from .numbers import NoNumber, NothingFound, Number
from .program_output import (
    SEARCHED,
    ending,
    metric_value,
    number_by,
    other_text,
    printed_text,
    too_long,
)

# Number of characters that the record contains of what a verification found.
SHOWN = 300


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one check of a run: the expected and the actual value."""

    ok: bool
    expected: str
    found: str


@dataclass(frozen=True, kw_only=True)
class ResourceUse:
    """The resources that one run of a program used. A value that was not measured is None.

    wall, user, system: seconds.
    max_rss: bytes.
    io: bytes of system calls, by kind as in /proc/self/io.
    parts: seconds within wall, by kind.
    """

    wall: float
    user: float | None = None
    system: float | None = None
    max_rss: int | None = None
    io: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, float] | None = None


def parse(
    workload: CommandWorkload,
    stdout: str,
    used: ResourceUse,
    *,
    stderr: str = "",
    files: Mapping[str, str] | None = None,
    difference: str | None = None,
) -> tuple[Row, ...]:
    """Return the rows of one run: those of used_rows, then the workload's own metrics. A metric of the
    workload replaces the row of used_rows with the same name.

    files: contents of the files that the program wrote, by name.
    difference: first difference from the reference; '' if there is none, None if nothing was compared.

    If the workload has a verification, every row contains what was expected and found. If the verification
    failed, every row is FAILED and keeps its values.
    In a regex, ^ and $ match the begin and end of each line, and the *first* match counts. If a program
    prints a value for each step, the expression must select one. A json_path is looked up in every JSON
    object and list of the output, and the first that contains it counts. A step of the path is a key, or an
    index into a list.
    A value that is missing, not a number or not positive gives a FAILED row with the reason.
    """
    texts = _Texts(
        stdout=stdout[:SEARCHED],
        stderr=stderr[:SEARCHED],
        files={name: text[:SEARCHED] for name, text in (files or {}).items()},
    )
    values = {m.name: _value(m, texts) for m in workload.metrics}
    own = {m.name: _own_row(workload.name, m, values[m.name]) for m in workload.metrics}
    resources = used_rows(workload.name, used, own=own)
    checks = [_bounded(m, values[m.name]) for m in workload.metrics if m.bounds]
    if workload.verify is not None:
        checks += _verified(workload.verify, texts, difference)
    return checked_rows(resources + tuple(own.values()), checks)


def used_rows(name: str, used: ResourceUse, *, own: Container[str] = ()) -> tuple[Row, ...]:
    """Return the resources that a run used, as rows of the workload `name`.

    They are those of RESOURCES. A value that was not measured has no row, nor have reads and writes of 0
    bytes.

    own: names of metrics that the workload measures itself. They have no row here.
    """
    measured = {
        "wall": used.wall,
        "user": used.user,
        "system": used.system,
        "max_rss": used.max_rss,
        "read": used.io.get("rchar") or None,
        "written": used.io.get("wchar") or None,
    }
    return tuple(
        value_row(name, metric, unit, Better.LOWER, value, parts=used.parts if metric == "wall" else None)
        for metric, unit in RESOURCES.items()
        if (value := measured[metric]) is not None and metric not in own
    )


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """What a program printed, and the files that it wrote, by name."""

    stdout: str
    stderr: str
    files: Mapping[str, str]

    def of(self, spec: MetricSpec | VerifySpec) -> str | None:
        """Return the text that is searched; None if the program did not write this file."""
        return self.files.get(spec.file) if spec.file else printed_text(spec.stream, self.stdout, self.stderr)

    def elsewhere(self, spec: MetricSpec | VerifySpec) -> str:
        """Return the end of a message about text that was not searched; '' if there is none."""
        return "" if spec.file else other_text(spec.stream, self.stdout, self.stderr)


def _verified(spec: VerifySpec, texts: _Texts, difference: str | None) -> list[CheckResult]:
    """Return the checks of a verification."""
    checks = []
    text = texts.of(spec)
    if text is None:
        return [CheckResult(ok=False, expected=f"a file {spec.file}", found="none")]
    if spec.regex is not None:
        checks.append(_matched(spec, spec.regex, text, texts.elsewhere(spec)))
    if spec.reference is not None:
        expected = f"what {spec.reference.path} holds"
        checks.append(CheckResult(ok=not difference, expected=expected, found=difference or "the same"))
    return checks


def _matched(spec: VerifySpec, regex: str, text: str, elsewhere: str) -> CheckResult:
    """Return the check of a regular expression.

    elsewhere: end of the message if nothing matches.
    """
    if spec.bounds:
        try:
            value = number_by(regex, text, decimal=spec.decimal).value
        except NoNumber as e:
            more = elsewhere if isinstance(e, NothingFound) else ""
            return CheckResult(ok=False, expected=str(spec.bounds), found=f"{e}{more}")
        return CheckResult(ok=spec.bounds.hold(value), expected=str(spec.bounds), found=f"{value:g}")
    wanted = f"output like {regex}" if spec.expected is None else spec.expected
    try:
        match = search(regex, text)
    except TimeoutError:
        return CheckResult(ok=False, expected=wanted, found=too_long(regex))
    if match is None:
        lack = "none" if spec.expected is None else f"nothing like {regex}"
        return CheckResult(ok=False, expected=wanted, found=f"{lack}; {ending(text)}{elsewhere}")
    if spec.expected is None:
        return CheckResult(ok=True, expected=wanted, found=match.text)
    return CheckResult(ok=match.group == spec.expected, expected=wanted, found=match.group or "")


def _bounded(metric: MetricSpec, found: Number | str) -> CheckResult:
    expected = f"{metric.name} {metric.bounds}"
    if isinstance(found, str):
        return CheckResult(ok=False, expected=expected, found=found)
    return CheckResult(ok=metric.bounds.hold(found.value), expected=expected, found=f"{found.value:g}")


def checked_rows(rows: tuple[Row, ...], checks: Sequence[CheckResult]) -> tuple[Row, ...]:
    """Return the rows with the result of a verification: whether it passed, the expected and the actual
    values.

    The values are those of the failed checks, or of all checks if none failed.
    """
    if not checks:
        return rows
    shown = [c for c in checks if not c.ok] or checks
    return verified_rows(
        rows,
        ok=all(c.ok for c in checks),
        expected="; ".join(c.expected for c in shown),
        found="; ".join(c.found[:SHOWN] for c in shown),
    )


def verified_rows(rows: tuple[Row, ...], *, ok: bool, expected: str, found: str) -> tuple[Row, ...]:
    """Return the rows with the expected and the actual result. If the verification failed, they are FAILED
    and keep their values."""
    verification: dict[str, JsonValue] = {"ok": ok, "expected": expected, "found": found[:SHOWN]}
    if ok:
        return tuple(replace(r, verification=verification) for r in rows)
    reason = f"verification failed: expected {expected}, found {found[:SHOWN]}"
    return tuple(replace(r, status=Status.FAILED, reason=reason, verification=verification) for r in rows)


def _value(metric: MetricSpec, texts: _Texts) -> Number | str:
    """Return the metric's number, or why there is none."""
    text = texts.of(metric)
    if text is None:
        return f"metric '{metric.name}': the program wrote no file {metric.file}"
    if not metric.file and not text.strip():
        empty = "stdout and stderr were" if metric.stream is Stream.BOTH else f"{metric.stream} was"
        return f"metric '{metric.name}': {empty} empty{texts.elsewhere(metric)}"
    try:
        return metric_value(metric, text)
    except NothingFound as e:
        return f"{e}{texts.elsewhere(metric)}"
    except NoNumber as e:
        return str(e)


def _own_row(workload: str, metric: MetricSpec, found: Number | str) -> Row:
    if isinstance(found, str):
        return value_row(workload, metric.name, metric.unit, metric.better, None, found)
    return value_row(workload, metric.name, metric.unit, metric.better, found.value, text=found.text)


def value_row(
    workload: str,
    metric: str,
    unit: str,
    better: Better,
    value: float | None,
    reason: str = "",
    parts: Mapping[str, float] | None = None,
    text: str = "",
) -> Row:
    """Return the row of one value, or a FAILED row with the reason if there is no positive value.

    text: the text that the value was read from.
    """
    if value is not None and not (math.isfinite(value) and value > 0):
        # A ratio of such values has no meaning. A time of 0 is below the resolution of the system's clock.
        what = TOO_SHORT if value == 0 and unit == "s" else f"{value:g} {unit} is not a positive number"
        value, reason = None, f"{metric}: {f'{text!r}: ' if text else ''}{what}"
    return Row(
        workload=workload,
        metric=metric,
        unit=unit,
        better=better,
        values=() if value is None else (float(value),),
        status=Status.FAILED if value is None else Status.OK,
        reason="" if value is not None else reason,
        parts={} if value is None or not parts else {kind: (part,) for kind, part in parts.items()},
    )
