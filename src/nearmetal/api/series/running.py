"""Runs and resumes a study of several parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BusyError, DiskFullError, NearmetalError, UnavailableError
from ...model.series import Part, Series
from ...model.study import Study
from ...node.progress import Progress
from ...records import SeriesDirectory
from ...records.own_runs import try_note_run
from ...study_file import dump_study
from ...units import show_clock
from ..catalog import catalog
from ..estimates import PartProgress, begun_of, estimated, foreseen
from ..images import build_images
from ..measuring import bounded, complete_run, machine_for, machine_here
from ..results import Analyse, analysed, frozen_study
from ..studies import Note, ignore, study_text
from .planning import checked_series, reason
from .results import waiting_parts
from .sizes import sized

if TYPE_CHECKING:
    from ...node.machine import Machine as Machine
    from ...records import ResultsDirectory
    from ...run.estimate import RunEstimate
    from ...run.run import Order, Outcome

NO_TIME = "no time was left for it; nearmetal resume measures it"
OVERRUN = (
    "note: --overrun: a part whose time is used up goes on until its verdicts are given next. "
    "The later parts keep their shares, so the whole takes longer than its time."
)
Start = Callable[[Part, Study, SeriesDirectory, "ResultsDirectory | None", float], "Outcome"]
"""A function that runs the study of one part, or resumes the part if its results directory is given. The last
argument is the time until which its first round may begin, in seconds from the start of the part."""
Open = Callable[[], AbstractContextManager[Progress]]
"""A function that opens a display of progress, which is closed at the end of the context."""


def create_series(series: Series, results: Path, table: str, note: Note = ignore) -> SeriesDirectory:
    """Make the directory of a series, and store the studies of its parts in it.

    results: parent of the new directory.
    table: text of the user's published table; '' for none.
    note: called with a warning, as text.
    """
    texts = {p.key: dump_study(p.study, catalog()) for p in series.parts if p.study is not None}
    directory = SeriesDirectory.create(results, series, texts, table)
    try_note_run(directory.path, note)
    return directory


def checked_rest(
    directory: SeriesDirectory, series: Series, progress: Progress, *, seconds: float
) -> tuple[Series, dict[str, PartProgress]]:
    """Return the parts that a resumption would run here, and the state of those that were begun, by key.
    Nothing is measured.

    series: result of frozen_series(directory).
    seconds: time budget of all these parts together.

    Raises the error of the first part if none can run.
    """
    series = replace(series, max_time=seconds, parts=tuple(waiting_parts(directory, series)))
    found = {p.key: part for p in series.parts if (part := directory.part(p)) is not None}
    series = checked_series(series, machine_here(progress, None), progress)
    return series, {
        p.key: begun_of(p.study, found[p.key]) for p in series.parts if p.study and p.key in found
    }


def bounded_series(series: Series, max_blocks: int | None) -> Series:
    """Return the series with at most max_blocks blocks in each part; unchanged for None."""
    parts = (p if p.study is None else replace(p, study=bounded(p.study, max_blocks)) for p in series.parts)
    return replace(series, parts=tuple(parts))


def more_time(part: Part, *, resuming: bool) -> str:
    """Return the options that give a part more time. A resumption has no option --only, so its option gives
    all parts more time."""
    return "--time" if resuming else f"--only {part.key} --time"


def part_starter(
    machine: Machine,
    order: Order,
    opened: Open,
    *,
    resuming: bool,
    max_blocks: int | None = None,
    require_kvm: bool = False,
) -> Start:
    """Return a function that runs or resumes one part of a series below its directory.

    order: the order of the series; its fields about directory, study and time are replaced for each part.
    max_blocks: largest number of blocks of each part.
    require_kvm: as in with_accelerators().
    """
    from ...run.run import resume_run, start_run

    def start(
        part: Part,
        study: Study,
        into: SeriesDirectory,
        found: ResultsDirectory | None,
        first_until: float,
    ) -> Outcome:
        began = time.monotonic()
        with opened() as progress:
            fitting, study = machine_for(study, progress, machine=machine, require_kvm=require_kvm)
            own = replace(
                order,
                parent=into.path,
                text=study_text(study) if found is None else found.study_yaml,
                longer=more_time(part, resuming=resuming),
                begin=began,
                first_until=first_until,
            )
            if found is None:
                return start_run(fitting, bounded(study, max_blocks), own, progress)
            frozen = frozen_study(found)
            again = replace(frozen, design=replace(frozen.design, max_time=study.design.max_time))
            return resume_run(fitting, bounded(again, max_blocks), found, own, progress)

    return start


def run_parts(
    directory: SeriesDirectory,
    series: Series,
    start: Start,
    opened: Open,
    *,
    seconds: float,
    overrun: bool = False,
    note: Note = ignore,
    analyse: Analyse = analysed,
) -> bool:
    """Run every part that is not done yet. If all are done, continue those with comparisons that have no
    verdict.

    A part that cannot run here is reported, recorded and skipped. Returns whether a signal interrupted the
    run.

    seconds: time budget of all parts together.
    overrun: whether the time by which a part exceeds its share is added to the time budget, so that the later
        parts keep their shares.
    note: called with each line about the course of the run.
    """
    from ...run.series import OVERESTIMATE, next_part, shortest, with_time

    waiting = waiting_parts(directory, series, analyse)
    least = {p.key: shortest(p, _guess(directory)) for p in waiting}
    begin, begun = time.monotonic(), False
    if not waiting:
        note("every part is done, and every comparison that can be read has its verdict")
    if overrun:
        note(OVERRUN)
    while waiting:
        left = seconds - (time.monotonic() - begin)
        part, share = next_part(waiting, left, least)
        assert part.study is not None
        study = with_time(part.study, share)
        waiting.remove(part)
        if left <= 0 or (begun and left < least[part.key].rehearsal_seconds / OVERESTIMATE):
            directory.ended(part.key, NO_TIME)
            note(f"{part.key}: {NO_TIME}")
            continue
        note(f"{part.key}: {part.title}")
        begun = True
        try:
            begin += _built(part.study, opened)
            started = time.monotonic()
            study = sized(directory, series, part, study, note=note, analyse=analyse)
            outcome = start(part, study, directory, directory.part(part), left)
        except (BusyError, DiskFullError):
            raise
        except KeyboardInterrupt:  # while an image is built
            return True
        except NearmetalError as e:
            note(f"{part.key} did not run: {e}")
            directory.ended(part.key, f"did not run: {reason(e)}")
            continue
        over = time.monotonic() - started - share
        if overrun and over > 0:
            begin += over
            note(f"{part.key} took {show_clock(over)} more than its share")
        directory.ended(part.key, outcome.stopped)
        if outcome.directory is not None:
            complete_run(outcome, analyse=analyse)
        if outcome.interrupted:
            return True
    return False


def _guess(directory: SeriesDirectory) -> Callable[[Part, Study], RunEstimate]:
    """Return a function that estimates the run of a part, or the rest of it if it was begun."""

    def guess(part: Part, study: Study) -> RunEstimate:
        found, begun = directory.part(part), None
        if found is not None:
            with suppress(NearmetalError):  # results that cannot be read stop only their part
                begun = begun_of(study, found)
        return estimated(foreseen(study), begun)

    return guess


def _built(study: Study, opened: Open) -> float:
    """Build the images that a study needs. Returns the seconds that this took: the time limit of a series
    does not include them.

    Raises UnavailableError or RunError.
    """
    begin = time.monotonic()
    with opened() as progress:
        try:
            build_images(study, progress.phase)
        except BusyError as e:  # another process builds the image: only this part cannot run
            raise UnavailableError(e.what, where=e.where, remedy=e.remedy) from e
    return time.monotonic() - begin
