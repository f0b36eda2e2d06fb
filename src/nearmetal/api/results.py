"""Finds and analyses results directories."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from .. import RESULTS
from ..errors import NearmetalError, RecordsError, UsageError
from ..host.lock import living_runs as living_runs
from ..model.result import Analysis, Cell
from ..model.study import Study
from ..plan import make_plan
from ..records import ResultsDirectory, SeriesDirectory, drawn_machines, node_states
from ..records.directory import PLAN, STUDY, directories_with
from ..records.series import SERIES
from ..report.tables.inside import InsideRecord, inside_of
from ..samplers import costs_in
from ..study_file import load_text
from ..study_file.environments.backends import is_bare
from .studies import Note, ignore

if TYPE_CHECKING:
    from ..node.progress import BlockDone as BlockDone
    from ..records import ResultsDirectory, SeriesDirectory, Trials


FIGURES = "figures"
"""Name of the directory of figures in a results directory."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """A run with the analysis of its records.

    stored: its results directory.
    trials: the records of its trials, which are read on first use.
    stopped: why the run ended, if this process ran it; else empty.
    interrupted: whether a signal ended the run. All measurements were saved.
    """

    stored: ResultsDirectory
    study: Study
    analysis: Analysis
    trials: Trials
    stopped: str = ""
    interrupted: bool = False

    @property
    def directory(self) -> Path:
        return self.stored.path

    @property
    def day(self) -> str:
        """The date when the run began, as text: '24 Nov 2026'."""
        return time.strftime("%-d %b %Y", time.localtime(self.stored.plan().created))

    @property
    def inside(self) -> InsideRecord:
        """The counters of the run, and what sampling them cost."""
        return inside_of(self.stored.provenance, costs_in(self.stored.files.below("samples")))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All comparisons: each metric of each environment against its baseline, with interval and
        verdict."""
        return self.analysis.cells


Analyse = Callable[[ResultsDirectory], Results]
"""A function that analyses a results directory, such as analysed()."""


def load(directory: str | PathLike[str]) -> Results:
    """Analyse a results directory. Raises RecordsError if it cannot be read."""
    return analysed(ResultsDirectory.open(Path(directory)))


def open_series(
    path: Path | None, parent: Path = Path(RESULTS), note: Note = ignore
) -> SeriesDirectory | None:
    """Open the series at path; without a path, the newest series below parent. Returns None if there is none,
    and without a path also if a single run below parent is newer."""
    if path is not None:
        return SeriesDirectory.at(path)
    found = series_below(parent, note)
    passed_over: list[str] = []
    single = newest_first(parent, passed_over.append)
    if not found or (single and single[0].plan().created > found[0].created):
        return None  # open_results() reports the directories that are skipped
    for text in passed_over:
        note(text)
    return found[0]


def series_below(parent: Path, note: Note = ignore) -> list[SeriesDirectory]:
    """Return all directories of series below parent, newest first.

    note: called with a text for each directory that cannot be read and is left out.
    """
    found = []
    for path in directories_with(SERIES, parent):
        series = SeriesDirectory(path=path)
        try:
            found.append((series.created, series.path.name, series))
        except RecordsError as e:
            note(f"passed over: {e}")
    return [series for _, _, series in sorted(found, key=lambda f: f[:2], reverse=True)]


def open_results(path: Path | None, parent: Path = Path(RESULTS), note: Note = ignore) -> ResultsDirectory:
    """Open the results directory at path, or the newest one below path; without a path, the newest one below
    parent.

    note: called with a text for each directory that cannot be read and is skipped.

    Raises UsageError if there is none, or if path is the directory of a series.
    """
    if path is not None and SeriesDirectory.at(path) is not None:
        raise UsageError(
            "this directory holds a study in parts, and the command takes one part",
            where=str(path),
            remedy=f"name a part: ls {shlex.quote(str(path))}",
        )
    if path is not None and ResultsDirectory(path=path).files.exists(STUDY):
        return ResultsDirectory.open(path)
    found = newest_first(path or parent, note)
    if path is not None and not found:
        return ResultsDirectory.open(path)
    if not found:
        raise UsageError(f"no results below {parent}/", remedy="nearmetal quick, or name a results directory")
    return found[0]


def newest_first(parent: Path, note: Note = ignore) -> list[ResultsDirectory]:
    """Return all results directories directly below parent, newest first.

    note: called with a text for each directory that cannot be read and is left out.
    """
    found = []
    for path in directories_with(PLAN, parent):
        try:
            directory = ResultsDirectory.open(path)
            found.append((directory.plan().created, directory.name, directory))
        except NearmetalError as e:
            note(f"passed over: {e}")
    return [directory for _, _, directory in sorted(found, key=lambda f: f[:2], reverse=True)]


def frozen_study(directory: ResultsDirectory) -> Study:
    """Return the study of a results directory, reduced to the arms that took part."""
    text, where, frozen = directory.study_yaml, str(directory.path / STUDY), directory.plan()
    # Use no catalogue, because results are also read on machines that lack the backends of the measurement.
    study = load_text(text, where, None, seed=frozen.seed).with_arms(frozen.arms)
    if not study.design.baselines:
        raise RecordsError(
            "corrupt: the plan leaves out every baseline of the study",
            where=str(directory.path / PLAN),
            remedy="take it from a copy",
        )
    return study


def analysed(directory: ResultsDirectory, report: Callable[[float], None] = lambda share: None) -> Results:
    """Analyse the records of a results directory.

    report: called with the fraction of the records that has been read, up to 1.

    Raises RecordsError if they cannot be read.
    """
    from ..analysis import conclude, fold_request
    from ..analysis.roofs import with_roofs
    from ..run.folding import fold_trials, fold_workers, uncollected

    with uncollected(), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        with fold_workers(directory.trials_bytes()) as workers:
            study = frozen_study(directory)
            planned = directory.plan()
            plan = make_plan(
                study,
                schedule=planned.schedule,
                started=planned.started,
                missing=planned.missing,
                nodes=node_states(directory),
                machines=drawn_machines(directory, study),
            )
            trials = directory.trials()
            # conclude() needs it. Loading it takes a tenth of a second, in which the workers fold.
            threads.submit(import_module, "scipy.special")
            folded = fold_trials(fold_request(study), plan, trials, workers, report)
        # In threads, because numpy spends most of the time without Python's lock.
        analysis = conclude(study, plan, trials.heads, folded, each=threads.map)
    bare = {e.name for e in study.environments if is_bare(e.backend)}
    cells = with_roofs(study, analysis.cells, directory.roofs(), bare)
    return Results(stored=directory, study=study, analysis=replace(analysis, cells=cells), trials=trials)


def furthest_from_verdict(analysis: Analysis, count: int) -> list[Cell]:
    """Return at most `count` undecided cells, the one furthest from a verdict first."""
    from ..analysis import furthest

    return furthest(analysis.undecided)[:count]


def write_report(found: Results, *, figures: bool = False) -> list[Path]:
    """Write report.html, .md, .tex and .csv to the results directory. With `figures`, also write every figure
    to its directory figures/.

    Returns the paths of the files.
    """
    from ..report.charts.engine import drawing_thread

    drawing_thread()  # it starts while the following imports Altair
    from ..report.write import write_report as write
    from ..run.folding import uncollected

    directory, study, analysis, records = found.stored, found.study, found.analysis, found.trials
    with uncollected():
        out = write(
            directory.path,
            study,
            analysis,
            records,
            directory.provenance,
            commands=(
                shlex.join(
                    ["nearmetal", "run", str(directory.path / STUDY), "--seed", str(study.design.seed)]
                ),
                shlex.join(["nearmetal", "analyze", str(directory.path)]),
            ),
            when=found.day,
        )
    if figures:
        from ..report.forms.figures import write_figures

        out += write_figures(study, analysis, directory.path / FIGURES, records=records)
    return out
