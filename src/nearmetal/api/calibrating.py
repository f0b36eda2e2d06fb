"""Plants known costs in runs on this machine, and compares them with what is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..model.study import Mode, Study
from ..run.calibration import PlantedCheck as PlantedCheck
from ..run.calibration import judge, likely_misses
from .measuring import checked, complete_run, measured
from .results import Analyse, analysed
from .studies import Note, ignore, study_from

if TYPE_CHECKING:
    from ..node.progress import Progress
    from ..run.run import Order, Outcome
    from .series.running import Open

#: Study, mode and share of the time budget. Plain trials are the alternative design to slices.
PARTS = (
    ("calibrate", Mode.SLICES, 0.55),
    ("calibrate", Mode.PLAIN, 0.25),
    ("calibrate-quota", Mode.PLAIN, 0.2),
)
Change = Callable[[Study], Study]
"""A function that applies a user's settings to a study, with a time budget among them."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The result of a calibration.

    checks: one for each planted cost and each baseline that is compared with itself.
    confidence: of the intervals.
    directories: the results directory of each part.
    unchecked: those in which no round ended in time.
    interrupted: the part that a signal ended, and which is not analysed; None if all ran to their end.
    """

    checks: tuple[PlantedCheck, ...]
    confidence: float
    directories: tuple[Path, ...]
    unchecked: tuple[Path, ...]
    interrupted: Outcome | None = None

    @property
    def passed(self) -> bool:
        return not self.unchecked and all(c.passed for c in self.checks)

    @property
    def likely_misses(self) -> int:
        """How many of the intervals may miss by chance; see run.calibration.likely_misses()."""
        return likely_misses(len(self.checks), 1 - self.confidence)


def checked_calibration(
    change: Change, progress: Progress, *, seed: int | None = None, note: Note = ignore
) -> Study:
    """Return the first study of a calibration as it would run here. Nothing is measured. Raises the errors of
    checked(), also for the other study.

    seed: None to draw one for each study.
    """
    first, second = (change(study_from(name, seed, note)) for name in ("calibrate", "calibrate-quota"))
    checked(second, progress)
    return checked(first, progress)


def calibrate(
    change: Change,
    order: Order,
    opened: Open,
    *,
    seed: int | None = None,
    note: Note = ignore,
    analyse: Analyse = analysed,
) -> Calibration:
    """Measure the planted costs in several runs, write their reports, and compare.

    seed: None to draw one for each run.

    Raises the errors of measured().
    """
    checks: list[PlantedCheck] = []
    directories: list[Path] = []
    unchecked: list[Path] = []
    confidence, interrupted = 0.0, None
    for name, mode, share in PARTS:
        study = change(study_from(name, seed, note))
        confidence = study.design.confidence
        assert study.design.max_time is not None, "the settings have a time budget"
        design = replace(study.design, mode=mode, max_time=study.design.max_time * share)
        own = replace(order, longer=f"this part gets {100 * share:.0f} % of --time, of which")
        with opened() as progress:
            outcome = measured(replace(study, design=design), own, progress)
        if outcome.interrupted or outcome.directory is None:
            interrupted = outcome
            break
        found = complete_run(outcome, analyse=analyse)
        directories.append(found.directory)
        planted = judge(found.study, found.analysis, mode)
        unchecked += [] if planted else [found.directory]
        checks += planted
    return Calibration(
        checks=tuple(checks),
        confidence=confidence,
        directories=tuple(directories),
        unchecked=tuple(unchecked),
        interrupted=interrupted,
    )
