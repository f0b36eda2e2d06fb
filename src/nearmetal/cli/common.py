"""What several commands share: the catalogue of what there is, loading of studies and results."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ExitCode, NearmetalError, UsageError
from ..model.result import Analysis, Verdict
from ..model.series import Scale
from ..model.study import EVENT_METRICS, KernelWorkload, Study

if TYPE_CHECKING:
    from ..model.image import ImageDefinition
    from ..records import ResultsDirectory, SeriesDirectory, Trials
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
    from ..environments.registry import backend_names
    from ..study_file import COMMAND, Catalog
    from ..workloads.kernels import kernel, kernel_names, parameters
    from .workload_names import known_applications, type_of

    return Catalog(
        backends=backend_names(),
        kernels={k: {p.name: (type_of(p), p.doc) for p in parameters(k).values()} for k in kernel_names()},
        metrics={
            **{k: _every_metric(k) for k in kernel_names()},
            **{str(event): names for event, names in EVENT_METRICS.items()},
            COMMAND: ("wall", "user", "system", "max_rss", "read", "written"),
        },
        misfit=lambda owner, name, value: parameters(owner)[name].problem(value),
        writers=frozenset(k for k in kernel_names() if kernel(k).storage),
        applications=known_applications(),
        no_image=_no_image,
    )


def _no_image(name: str, own: Mapping[str, ImageDefinition], file: str) -> str | None:
    from ..execute.machine import image_store
    from ..host import LocalHost
    from ..images import no_image

    return no_image(LocalHost(), image_store(), name, own, file)


def require_images(study: Study) -> None:
    """Raises UnavailableError where an image does not stand that an environment is to have."""
    from ..execute.machine import image_store
    from ..host import LocalHost
    from ..images import require_image
    from ..model.image import HOST

    for name in dict.fromkeys(e.image for e in study.environments if e.image != HOST):
        require_image(LocalHost(), image_store(), name, {i.name: i for i in study.images})


def _every_metric(kernel: str) -> tuple[str, ...]:
    """The metrics of a kernel under every word that its parameters may be given."""
    from ..workloads.kernels import metrics, parameters

    choices = [{}, *({p.name: word} for p in parameters(kernel).values() for word in p.words)]
    found = [m for c in choices for m in metrics(KernelWorkload(name=kernel, kernel=kernel, params=c))]
    return tuple(dict.fromkeys(name for name, _, _ in found))


def draw_seed() -> int:
    """A seed of 16 bits: short enough to be said aloud, and shown in every result."""
    return secrets.randbits(16)


def study_from(text_or_path: str, seed: int | None) -> Study:
    """A built-in study by name, or a study file by path."""
    from ..studies import SERIES, builtin, names
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
            remedy=f"built in: {', '.join((*names(), *SERIES))}; a file of your own: nearmetal init",
        )
    if study.design.expected_blocks is not None:
        print(
            "note: expected_blocks is not used any more and may be deleted from the study file: when the "
            "results are looked at no longer depends on it",
            file=sys.stderr,
        )
    return study if seed is None else replace(study, design=replace(study.design, seed=seed))


def in_parts(
    study: str, *, scale: Scale | None = None, only: Sequence[str] = (), backend: str | None = None
) -> bool:
    """Whether a study is a built-in one in parts, which alone has scales, parts to choose and a backend."""
    from ..studies import SERIES

    found = study in SERIES and not Path(study).exists()
    options = {"--scale": scale is not None, "--only": bool(only), "--backend": backend is not None}
    given = [name for name, asked in options.items() if asked]
    if not found and given:
        raise UsageError(
            f"{given[0]} belongs to studies in parts, and {study} is none",
            remedy=f"one of: {', '.join(SERIES)}",
        )
    return found


def duration(text: str | None, option: str = "--time") -> float | None:
    """Seconds of '90s', '10m', '1h30m'; option: what errors name."""
    from ..units import Dimension, UnitError, parse

    if text is None:
        return None
    try:
        seconds = parse(text, Dimension.TIME)
    except UnitError as e:
        raise UsageError(f"{option}: {e}", remedy="write 90s, 10m or 1h30m") from e
    if seconds <= 0:
        raise UsageError(f"{option}: must be longer than nothing", remedy="write 90s, 10m or 1h30m")
    return seconds


def open_series(path: Path | None, parent: Path = RESULTS) -> SeriesDirectory | None:
    """The series at path, or the newest below parent where no single run is newer; else None."""
    from ..records import SeriesDirectory

    if path is not None:
        return SeriesDirectory.at(path)
    found = series_below(parent)
    single = newest_first(parent)
    if not found or (single and single[0].plan().created > found[0].created):
        return None
    return found[0]


def series_below(parent: Path) -> list[SeriesDirectory]:
    """All directories of series below parent, newest first."""
    from ..records import SeriesDirectory

    found = [d for file in parent.glob("*/series.json") if (d := SeriesDirectory.at(file.parent))]
    return sorted(found, key=lambda d: (d.created, d.path.name), reverse=True)


def open_results(path: Path | None, parent: Path = RESULTS) -> ResultsDirectory:
    """The results directory at path, or the newest below parent."""
    from ..records import ResultsDirectory, SeriesDirectory

    if path is not None and SeriesDirectory.at(path) is not None:
        raise UsageError(
            "a study in parts, of which this takes one", where=str(path), remedy=f"name a part: ls {path}"
        )
    if path is not None:
        return ResultsDirectory.open(path)
    found = newest_first(parent)
    if not found:
        raise UsageError(f"no results below {parent}/", remedy="nearmetal quick, or name a results directory")
    return found[0]


def newest_first(parent: Path) -> list[ResultsDirectory]:
    """All results directories below parent."""
    from ..records import ResultsDirectory

    found = []
    for plan in parent.glob("*/plan.json"):
        directory = ResultsDirectory.open(plan.parent)
        try:
            found.append((directory.plan().created, directory.name, directory))
        except NearmetalError as e:
            print(f"passed over: {e}", file=sys.stderr)
    return [directory for _, _, directory in sorted(found, key=lambda f: f[:2], reverse=True)]


def frozen_study(directory: ResultsDirectory) -> Study:
    """The study of a results directory, narrowed to the arms that took part."""
    from ..study_file import load_text

    text, where, frozen = directory.study_yaml, str(directory.path / "study.yaml"), directory.plan()
    # Without a catalogue: results are read on machines that lack what they were measured with.
    return load_text(text, where, None, seed=frozen.seed).with_arms(frozen.arms)


def analysed(directory: ResultsDirectory) -> tuple[Study, Analysis, Trials]:
    """Everything that follows from the records of a results directory."""
    from ..analysis import conclude, wanted
    from ..analysis.roofs import with_roofs
    from ..plan import make_plan
    from .folding import fold_trials, uncollected

    study = frozen_study(directory)
    planned = directory.plan()
    plan = make_plan(study, schedule=planned.schedule, started=planned.started)
    with uncollected():
        trials = directory.trials()
        folded = fold_trials(plan, wanted(study), trials)
        analysis = conclude(study, plan, trials.heads, folded)
    return study, replace(analysis, cells=with_roofs(study, analysis.cells, directory.roofs())), trials


def exit_code(analysis: Analysis, fail_on: FailOn) -> ExitCode:
    """0, 1 for a finding that was asked for, 4 when trials failed."""
    material = any(c.verdict in (Verdict.SLOWER, Verdict.FASTER) for c in analysis.cells)
    if fail_on is FailOn.MATERIAL and material:
        return ExitCode.FINDING
    if fail_on is FailOn.UNDECIDED and analysis.undecided:
        return ExitCode.FINDING
    return ExitCode.FAILED_TRIALS if analysis.failed_trials else ExitCode.DONE
