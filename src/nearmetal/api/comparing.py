"""Compares results directories from before and after an upgrade, boot by boot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..analysis import compare_states, least_boots
from ..errors import UsageError
from ..host.facts.provenance import cpu_summary
from ..model.record import section
from ..model.result import USAGE
from ..model.study import Design, Study
from ..records import ResultsDirectory
from ..records.directory import STUDY
from ..report.tables.upgrade import UPGRADED, SystemChange, Upgrade
from .results import Results, analysed, newest_first, open_results
from .studies import Note, ignore

OTHER_BOOT = "name results of another boot"
"""The remedy for a run that is given twice."""
_MAY_DIFFER = frozenset(
    (
        *("seed", "max_time", "max_blocks", "min_blocks", "expected_blocks", "target_width"),
        *("margin", "confidence", "primary", "baselines", "slices", "sample_every"),
    )
)
"""Keys of a design that change the duration and the number of measurements, not what is measured."""


_ONLY_BEFORE = "only in the runs before the upgrade"
_NOTHING_AFTER = "no values in the runs after the upgrade"
_NOTHING_BEFORE = "no values in the runs before the upgrade"


def compare(
    before: Sequence[Path],
    after: Sequence[Path],
    *,
    margin: float | None = None,
    against: Sequence[tuple[str, str]] = (),
    note: Note = ignore,
    analyse: Callable[[ResultsDirectory], Results] = analysed,
) -> Upgrade:
    """Compare the runs in results directories from before and after an upgrade.

    before, after: results directories, or directories with results directories in them.
    margin: smallest material difference, as a fraction; None for the margin of the studies. Any other margin
        makes the comparison exploratory, because it was chosen after the data were measured.
    against: as in analysis.compare_states.
    analyse: analyses one results directory.

    Raises UsageError if a run is given twice, or if the two sides have nothing in common.
    """
    sides = [[d for path in paths for d in _runs_in(path, note)] for paths in (before, after)]
    _check_different(*sides)
    old, new = ([analyse(d) for d in side] for side in sides)
    runs = [*old, *new]
    designs = [r.study.design for r in runs]
    margin, exploratory = _margin(designs, margin)
    confidence = max(d.confidence for d in designs)
    primary = set(designs[0].primary).intersection(*(d.primary for d in designs))
    boots = [_by_boot(side) for side in (old, new)]
    shared = boots[0].keys() & boots[1].keys()
    left_out = _unlike(old, new, arms=not against)
    provenance = runs[0].stored.provenance
    cells = compare_states(
        *([[r.analysis for r in boot] for boot in side.values()] for side in boots),
        margin=margin,
        confidence=confidence,
        against=against,
        deciding=lambda w, m: f"{w}.{m}" in primary if primary else m not in USAGE,
        left_out=left_out,
        one_boot=bool(shared),
    )
    if not cells:
        raise UsageError(
            f"{sides[0][0].path} and {sides[1][0].path} have no environment and metric in common",
            remedy="--pair BEFORE=AFTER, with names that nearmetal analyze shows",
        )
    family = sum(c.deciding for c in cells)
    if not against:
        left_out |= _without_values(old, new, left_out)
    return Upgrade(
        cells=cells,
        boots=(len(boots[0]), len(boots[1])),
        runs=(len(old), len(new)),
        shared_boots=len(shared),
        least=least_boots(confidence, family),
        margin=margin,
        margin_exploratory=exploratory,
        confidence=confidence,
        primary=bool(primary),
        machine=cpu_summary({name: provenance.get(name) for name in ("cpu", "memory")}),
        changes=tuple(_changes(old, new)),
        not_compared=tuple(f"{name}: {why}" for name, why in left_out.items()),
        lost=tuple(name for name, why in left_out.items() if why in (_ONLY_BEFORE, _NOTHING_AFTER)),
        failed_trials=sum(r.analysis.failed_trials for r in runs),
    )


def _runs_in(path: Path, note: Note) -> list[ResultsDirectory]:
    """Return the run at a path, or all runs below it, oldest first."""
    if ResultsDirectory(path=path).files.exists(STUDY) or not (below := newest_first(path, note)):
        return [open_results(path)]
    return below[::-1]


def _check_different(before: Sequence[ResultsDirectory], after: Sequence[ResultsDirectory]) -> None:
    """Check that no run is given twice, not even as a copy.

    Raises UsageError if one is.
    """
    known: dict[tuple[Any, ...], tuple[Path, int]] = {}
    for side, directories in enumerate((before, after)):
        for d in directories:
            planned = d.plan()
            one = (planned.study, planned.seed, planned.created)
            if one not in known:
                known[one] = (d.path, side)
                continue
            other, first = known[one]
            if other.resolve() != d.path.resolve():
                what = f"{other} and {d.path} are copies of one run"
            elif first == side:
                what = f"{d.path} is given twice"
            else:
                what = f"{d.path} is given on both sides: a results directory does not differ from itself"
            raise UsageError(what, remedy=OTHER_BOOT)


def _margin(designs: Sequence[Design], given: float | None) -> tuple[float, bool]:
    """Return the margin, and whether it is exploratory.

    given: the margin from the command line, which was chosen after the data were measured.

    Raises UsageError if none is given and the runs have different margins.
    """
    planned = sorted({d.margin for d in designs})
    if given is not None:
        return given, planned != [given]
    if len(planned) > 1:
        raise UsageError(
            f"the runs have different margins: {', '.join(f'{m * 100:.3g} %' for m in planned)}",
            remedy=f"--margin {planned[-1] * 100:.3g}%",
        )
    return planned[0], False


def _by_boot(runs: Sequence[Results]) -> dict[str, list[Results]]:
    """Return the runs by boot ID. A run without a recorded boot ID counts as a boot of its own."""
    boots: dict[str, list[Results]] = {}
    for run in runs:
        boot = run.stored.provenance.get("boot")
        boots.setdefault(boot if isinstance(boot, str) else str(run.directory), []).append(run)
    return boots


def _unlike(before: Sequence[Results], after: Sequence[Results], *, arms: bool) -> dict[str, str]:
    """Return the workloads and arms that cannot be compared by their definitions, with the reason.

    arms: whether to check arms too, not only workloads.
    """
    studies = [[r.study for r in side] for side in (before, after)]
    parts: list[Callable[[Study], Mapping[str, object]]] = [lambda s: {w.name: w for w in s.workloads}]
    if arms:
        parts.append(
            lambda s: {a.name: (replace(a.environment, placements=()), a.placement) for a in s.arms()}
        )
    out: dict[str, str] = {}
    for part in parts:
        old, new = ([part(s) for s in side] for side in studies)
        for name in dict.fromkeys(n for own in (*old, *new) for n in own):
            if not any(name in own for own in new):
                out[name] = _ONLY_BEFORE
            elif not any(name in own for own in old):
                out[name] = "only in the runs after the upgrade"
            elif len({repr(own[name]) for own in (*old, *new) if name in own}) > 1:
                out[name] = "the studies define it differently"
    return out


def _without_values(
    before: Sequence[Results], after: Sequence[Results], known: Collection[str]
) -> dict[str, str]:
    """Return the workloads and arms that have values on one side only, because they always failed on the
    other.

    known: workloads and arms that are already excluded for another reason.
    """
    old, new = (dict.fromkeys(m for r in side for m in _measured(r)) for side in (before, after))
    return {
        f"{workload} of {arm}": _NOTHING_AFTER if (arm, workload) in old else _NOTHING_BEFORE
        for arm, workload in (*old, *new)
        if ((arm, workload) in old) != ((arm, workload) in new) and not {arm, workload} & set(known)
    }


def _measured(run: Results) -> list[tuple[str, str]]:
    """Return the arms of a run with the workloads that have values there."""
    analysis = run.analysis
    cells = [c for c in (*analysis.noise_floor.cells, *analysis.cells) if c.d]
    return [(arm, c.workload) for c in cells for arm in (c.baseline, c.arm)]


def _changes(before: Sequence[Results], after: Sequence[Results]) -> list[SystemChange]:
    """Return the facts that differ between the sides, with all values of each side."""
    old, new = (dict.fromkeys(f for r in side for f in _facts(r).items()) for side in (before, after))
    names = dict.fromkeys(name for name, _ in (*old, *new))
    out = []
    for name in names:
        left, right = (tuple(v for n, v in side if n == name) for side in (old, new))
        if set(left) != set(right):
            out.append(SystemChange(name=name, before=left, after=right, upgrade=name in UPGRADED))
    return out


def _facts(run: Results) -> dict[str, str]:
    """Return the facts that an upgrade may change (UPGRADED), and the facts that should be the same on both
    sides."""
    p, study = run.stored.provenance, run.study
    cpu, kernel, hypervisor, tools, versions = (
        section(p, name) for name in ("cpu", "kernel", "hypervisor", "tools", "versions")
    )
    memory, usable = section(p, "memory").get("bytes"), cpu.get("usable")
    facts: dict[str, object] = {
        "kernel": kernel.get("release"),
        "distribution": p.get("distribution"),
        "libc": versions.get("libc"),
        "kernel command line": kernel.get("command_line"),
        "firmware": hypervisor.get("bios"),
        "microcode": cpu.get("microcode"),
        "study": study.name,
        "machine": cpu.get("model"),
        "CPUs": str(len(usable)) if isinstance(usable, list) else None,
        "memory": f"{memory / 2**30:.0f} GiB" if isinstance(memory, int) else None,
        "nearmetal": versions.get("nearmetal"),
        "kernels of nearmetal": tools.get("digest"),
        "compiler": tools.get("compiler"),
        "MPI": section(p, "mpi").get("used"),
    }
    for name in section(p, "images"):
        facts[f"image {name}"] = section(p, "images", name).get("digest")
    for audited in section(p, "parity", "facts").values():
        facts |= {name: digest for name, digest in audited.items() if name.startswith("binary ")}
    for f in fields(Design):
        if f.name not in _MAY_DIFFER:
            facts[f"design: {f.name}"] = str(getattr(study.design, f.name))
    return {name: value for name, value in facts.items() if isinstance(value, str)}
