"""What several commands share: the catalogue of what there is, loading of studies and results, the last words."""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ExitCode, UsageError
from ..model.record import TrialRecord
from ..model.result import Analysis, Verdict
from ..model.study import Study

if TYPE_CHECKING:
    from ..records import ResultsDirectory
    from ..study_file import Catalog

RESULTS = Path("results")


class FailOn(StrEnum):
    """What makes a command end with exit code 1."""

    NOTHING = "nothing"
    MATERIAL = "material"
    UNDECIDED = "undecided"


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    print()


def catalog() -> Catalog:
    """The backends and kernels that study files may name."""
    from ..environments.registry import backends
    from ..study_file import Catalog
    from ..workloads.kernels import kernel_catalog

    return Catalog(backends=tuple(sorted(backends())), kernels=kernel_catalog())


def draw_seed() -> int:
    """A seed of 16 bits: short enough to be said aloud, and shown in every result."""
    return secrets.randbits(16)


def study_from(text_or_path: str, seed: int | None) -> Study:
    """A built-in study by name, or a study file by path."""
    from ..studies import builtin, names
    from ..study_file import load_study, load_text

    chosen = draw_seed() if seed is None else seed
    path = Path(text_or_path)
    if path.exists():
        study = load_study(path, catalog(), seed=chosen)
    elif text_or_path in names():
        study = load_text(builtin(text_or_path), text_or_path, catalog(), seed=chosen)
    else:
        raise UsageError(
            f"no study file {text_or_path}, and no built-in study of that name",
            remedy=f"built in: {', '.join(names())}; a file of your own: nearmetal init",
        )
    return study if seed is None else replace(study, design=replace(study.design, seed=seed))


def duration(text: str | None) -> float | None:
    """Seconds of '90s', '10m', '1h30m', for --time."""
    from ..units import Dimension, UnitError, parse

    if text is None:
        return None
    try:
        seconds = parse(text, Dimension.TIME)
    except UnitError as e:
        raise UsageError(f"--time: {e}", remedy="write 90s, 10m or 1h30m") from e
    if seconds <= 0:
        raise UsageError("--time: must be longer than nothing", remedy="write 90s, 10m or 1h30m")
    return seconds


def open_results(path: Path | None, parent: Path = RESULTS) -> ResultsDirectory:
    """The results directory at path, or the newest below parent."""
    from ..records import ResultsDirectory

    if path is not None:
        return ResultsDirectory.open(path)
    found = newest_first(parent)
    if not found:
        raise UsageError(f"no results below {parent}/", remedy="nearmetal quick, or name a results directory")
    return found[0]


def newest_first(parent: Path) -> list[ResultsDirectory]:
    """All results directories below parent."""
    from ..records import ResultsDirectory

    found = [ResultsDirectory.open(p.parent) for p in parent.glob("*/plan.json")]
    return sorted(found, key=lambda d: (d.plan().created, d.name), reverse=True)


def frozen_study(directory: ResultsDirectory) -> Study:
    """The study of a results directory, narrowed to the arms that took part."""
    from ..execute.run import narrowed
    from ..study_file import load_text

    text, where, frozen = directory.study_yaml, str(directory.path / "study.yaml"), directory.plan()
    return narrowed(load_text(text, where, catalog(), seed=frozen.seed), frozen.arms)


def analysed(directory: ResultsDirectory) -> tuple[Study, Analysis, tuple[TrialRecord, ...]]:
    """Everything that follows from the records of a results directory."""
    from ..analysis import analyse
    from ..model.plan import Plan

    study = frozen_study(directory)
    records = directory.trials().records
    frozen = directory.plan()
    plan = Plan(seed=frozen.seed, expected_blocks=frozen.expected_blocks, blocks=())
    return study, analyse(study, plan, records), records


def exit_code(analysis: Analysis, fail_on: FailOn) -> ExitCode:
    """0, 1 for a finding that was asked for, 4 when trials failed."""
    material = any(c.verdict in (Verdict.SLOWER, Verdict.FASTER) for c in analysis.cells)
    if fail_on is FailOn.MATERIAL and material:
        return ExitCode.FINDING
    if fail_on is FailOn.UNDECIDED and analysis.undecided:
        return ExitCode.FINDING
    return ExitCode.FAILED_TRIALS if analysis.failed_trials else ExitCode.DONE
