"""Finds kernels by name, and makes the arguments of nm-micro for a workload and the rows from its output."""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import TrialFailedError, UsageError
from ...model.record import JsonValue, Row, Status, slice_value
from ...model.study import Better, KernelWorkload
from ...model.workloads.base import PROGRAMS
from ..parameter import Choices, Parameter
from ..protocol import PartLine, SliceLine, VerifyLine
from .contract import RATE, Kernel, KernelMetric, KernelSetting, SliceWork, WorkKind


def _described() -> Iterator[Kernel]:
    """Yield the kernels of every module in this package that defines `KERNELS`. No other file lists them."""
    for found in pkgutil.iter_modules((str(Path(__file__).parent),)):
        yield from getattr(importlib.import_module(f"{__package__}.{found.name}"), "KERNELS", ())


_FIRST_WORD = re.compile(r"([a-z]+)((?:[^a-z].*)?)", re.DOTALL)
_ORDER = tuple(WorkKind)
_KERNELS: Mapping[str, Kernel] = {
    kernel.name: kernel for kernel in sorted(_described(), key=lambda k: _ORDER.index(k.kind))
}


def kernel_names() -> tuple[str, ...]:
    return tuple(_KERNELS)


def kernel(name: str) -> Kernel:
    """Return the kernel of this name. Raises UsageError for an unknown name."""
    found = _KERNELS.get(name)
    if found is None:
        raise UsageError(f"unknown kernel '{name}'", remedy=f"one of {', '.join(_KERNELS)}")
    return found


def kind(name: str) -> str:
    """Return the kind of work of a kernel; PROGRAMS for a kernel that this version does not have."""
    found = _KERNELS.get(name)
    return found.kind.value if found is not None else PROGRAMS


def workload_title(workload: str, metric: str | None = None) -> str:
    """Return the name of a workload as sentences and tables show it: 'CG' for cg, 'NAS IS.A' for is.A.

    Only a name that begins with the name of a kernel differs from that in study files.

    metric: a metric of the workload; a workload without the kernel's metrics is a program with the same name.
    """
    name, rest = found.groups() if (found := _FIRST_WORD.fullmatch(workload)) else ("", "")
    known = _KERNELS.get(name)
    if known is None or not known.title:
        return workload
    own = {m for m, *_ in metrics(KernelWorkload(name=name, kernel=name, params={}))}
    return known.title + rest if metric is None or metric in own else workload


def parameters(name: str) -> dict[str, Parameter]:
    """Return the parameters of a kernel by name. Raises UsageError for an unknown kernel."""
    return {p.name: p for p in kernel(name).parameters}


def problems(name: str, params: Mapping[str, object]) -> dict[str, str]:
    """Return the errors in a workload's params, by key; empty if there are none.

    Raises UsageError for an unknown kernel.
    """
    known = parameters(name)
    found: dict[str, str] = {}
    for key, value in params.items():
        if key not in known:
            found[key] = f"kernel '{name}' has no key '{key}'; it has {', '.join(known)}"
        elif (what := known[key].problem(value)) is not None:
            found[key] = what
    return found


def counts_operations(name: str) -> bool:
    """Return whether the full run of a kernel is measured in operations per second, as for the NAS
    benchmarks."""
    every = metrics(KernelWorkload(name=name, kernel=name, params={}))
    return any((metric, unit) == (RATE.name, RATE.unit) for metric, unit, _ in every)


def metrics(workload: KernelWorkload) -> tuple[tuple[str, str, Better], ...]:
    """Return (name, unit, better) of each row that rows() returns, in order."""
    return tuple((m.name, m.unit, m.better) for m in _metrics(workload))


def argument(
    workload: KernelWorkload, *, ranks: int, llc_bytes: int, extra: float, turns: int = 1, threads: int = 1
) -> str:
    """Return the KERNEL-SPEC argument of nm-micro.

    It is the same for all arms with the same number of ranks, except for `extra`.

    extra: additional work in every slice for calibration, as a share (0.03 = 3 %).
    turns: least number of instances that take turns with their slices.
    threads: threads of each rank. A kernel that supports only one refuses more itself.

    Raises UsageError if the kernel cannot run on this number of ranks, or if a key is not valid for it.
    """
    found, choices = _resolve(workload)
    if ranks < found.least_ranks or not found.ranks.allow(ranks):
        allowed = f"at least {found.least_ranks}" if ranks < found.least_ranks else found.ranks.value
        raise UsageError(
            f"kernel '{found.name}' of workload '{workload.name}' does not run on {ranks} ranks",
            remedy=f"give its placements {allowed} ranks",
        )
    setting = KernelSetting(ranks=ranks, llc_bytes=llc_bytes, turns=turns)
    keys: dict[str, str | int] = {**found.keys(choices, setting), "pages": workload.pages.value}
    words = [found.name, *(f"{key}={value}" for key, value in keys.items())]
    if _alone(found, workload):
        words.append(f"only={workload.metrics[0]}")
    if threads > 1:
        words.append(f"threads={threads}")
    if extra:
        words.append(f"extra={extra:.9g}")
    return ":".join(words)


def slice_work(workload: KernelWorkload, *, ranks: int, llc_bytes: int, turns: int = 1) -> SliceWork:
    """Return the work of a slice of this workload. Raises UsageError if a key is not valid."""
    found, choices = _resolve(workload)
    setting = KernelSetting(ranks=ranks, llc_bytes=llc_bytes, turns=turns, alone=_alone(found, workload))
    return found.work(choices, setting)


def _alone(kernel: Kernel, workload: KernelWorkload) -> bool:
    """Return whether the workload runs only the part of the one metric that it selects."""
    return kernel.alone and len(workload.metrics) == 1


def rows(workload: KernelWorkload, slices: Sequence[SliceLine], verify: VerifyLine | None) -> tuple[Row, ...]:
    """Return one row per metric, with one value for each slice in the order of measurement.

    If the verification failed, every row is FAILED and keeps its values.
    verify: result of the verification; None if none was requested.
    Raises TrialFailedError if a slice belongs to another kernel or lacks a part.
    """
    return tuple(_row(workload, metric, slices, verify) for metric in _metrics(workload))


def _resolve(workload: KernelWorkload) -> tuple[Kernel, Choices]:
    wrong = problems(workload.kernel, workload.params)
    if wrong:
        raise UsageError(f"workload '{workload.name}': {next(iter(wrong.values()))}")
    found = kernel(workload.kernel)
    values = {p.name: p.default for p in found.parameters} | dict(workload.params)
    return found, Choices(values=values)


def _metrics(workload: KernelWorkload) -> tuple[KernelMetric, ...]:
    found, choices = _resolve(workload)
    every = found.metrics(choices)
    unknown = set(workload.metrics) - {m.name for m in every}
    if unknown:
        raise UsageError(
            f"workload '{workload.name}': kernel '{found.name}' has no metric '{min(unknown)}'",
            remedy=f"one of {', '.join(m.name for m in every)}",
        )
    return tuple(m for m in every if not workload.metrics or m.name in workload.metrics)


def _part(workload: KernelWorkload, metric: KernelMetric, line: SliceLine) -> PartLine:
    for part in line.parts:
        if line.name == workload.kernel and part.metric == metric.part:
            return part
    raise TrialFailedError(
        f"workload '{workload.name}': a time share of kernel '{line.name}' has no part '{metric.part}'"
    )


def _row(
    workload: KernelWorkload, metric: KernelMetric, slices: Sequence[SliceLine], verify: VerifyLine | None
) -> Row:
    parts = [_part(workload, metric, line) for line in slices]
    usable = [p for p in parts if p.seconds > 0 and p.work > 0]
    seconds, works = tuple(p.seconds for p in usable), [metric.unit_work * p.work for p in usable]
    values = tuple(slice_value(metric.better, work, s) for work, s in zip(works, seconds, strict=True))
    reason = _reason(metric, len(parts), values, verify)
    verification: dict[str, JsonValue] = {}
    if verify is not None:
        verification = {
            "ok": verify.ok,
            "expected": dict(verify.expected),
            "found": dict(verify.found),
            "seconds": verify.seconds,
            "work": verify.work,
        }
    return Row(
        workload=workload.name,
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        values=values,
        status=Status.FAILED if reason else Status.OK,
        reason=reason,
        seconds=seconds,
        work=works[0] if len(set(works)) == 1 else 0.0,
        parts={"comm": tuple(p.comm_seconds for p in usable)},
        verification=verification,
    )


def _reason(
    metric: KernelMetric, requested: int, values: tuple[float, ...], verify: VerifyLine | None
) -> str:
    """Return why the row fails; empty if it does not.

    requested: number of slices.
    values: values of the usable slices.
    """
    if verify is not None and not verify.ok:
        return f"verification failed: expected {dict(verify.expected)}, found {dict(verify.found)}"
    if requested == 0:
        return "nothing was measured"
    if len(values) < requested:
        return f"{requested - len(values)} of {requested} time shares {metric.unusable}"
    if not all(math.isfinite(v) and v > 0 for v in values):
        return "a value is not a positive number"
    return ""
