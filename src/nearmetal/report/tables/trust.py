"""How far a run can be trusted: a grade, the sentence that every format of the report shows, and the cause.
No I/O; independent of the format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...model.result import DIFFERENT, Cell, NoiseFloor, Verdict, deciding_cells
from ...model.study import Study
from ..text import one_line
from .cells import bounded, margin_text, metric_label
from .floors import Floor, floors, half_width, width_text


class Grade(StrEnum):
    """How large the noise is: how far the baseline differs from itself."""

    LOW = "low"
    HIGH = "high"
    NOT_TRUSTWORTHY = "not trustworthy"
    UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How far a run can be trusted.

    sentence: grade, figures and cause as a sentence.
    cause: the strongest disturbance of the machine; empty if there was none, or nothing is known.
    """

    grade: Grade
    sentence: str
    cause: str

    @property
    def alert(self) -> bool:
        """Whether the sentence has to be shown before any figure."""
        return self.grade is Grade.NOT_TRUSTWORTHY


def trust_in(study: Study, noise: NoiseFloor) -> Trust:
    """Grade a run by the comparisons of the baseline with itself that decide (deciding_cells).

    Low: all of them are equivalent. High: at least one has an interval that exceeds the margin.
    Not trustworthy: at least one shows a difference. Not known: there are none, or none has an interval.
    The sentence names secondary figures that are wider or show a difference. They do not change the grade.
    """
    known = [f for f in floors(study, noise) if math.isfinite(f.half_width) and (f.decides or _equal(f))]
    cause = one_line(noise.cause)
    if not noise.cells:
        reason = "the baseline was not compared with itself"
        return Trust(grade=Grade.UNKNOWN, sentence=f"{Grade.UNKNOWN}: {reason}", cause="")
    if noise.trusted and not any(f.decides for f in known):
        reason = "there are too few rounds to compare the baseline with itself"
        return Trust(grade=Grade.UNKNOWN, sentence=f"{Grade.UNKNOWN} yet: {reason}", cause="")
    base = one_line(noise.cells[0].environment)
    figures = ", ".join(map(_figure, known))
    deciding = {c.key for c in deciding_cells(study, noise.cells)}
    if not noise.trusted:
        grade, reason = Grade.NOT_TRUSTWORTHY, one_line(noise.reason)
        reason += f"; it differs by: {figures}" if figures else ""
    elif noise.proven:
        margin = margin_text(max(c.margin for c in noise.cells)).removeprefix("±")
        grade = Grade.LOW
        reason = f"{base} differs from itself by less than {margin}: {figures}"
    else:
        grade = Grade.HIGH
        # A metric that is listed apart from its group is named only if it is the reason for this grade.
        reasons = {c.key for c in noise.cells if c.key in deciding and c.verdict is Verdict.NONE}
        widest = ": " + ", ".join(
            f.text if any(c.key in reasons for c in f.apart) else _figure(f) for f in known
        )
        furthest = max((c for c in noise.cells if c.key in reasons), key=_reach, default=None)
        if furthest is not None and half_width(furthest) <= furthest.margin:
            # Narrow, but not around zero: the half-widths would not say why the grade is high.
            widest = f" up to {100 * _reach(furthest):.1f} % ({metric_label(furthest)})"
        reason = f"{base} may differ from itself by{widest}; smaller costs cannot be seen yet"
        reason += f"; likely cause: {cause}" if cause else ""
    secondary = [c for c in noise.cells if c.key not in deciding]
    reason += _secondary(base, secondary, max((f.half_width for f in known if f.decides), default=math.inf))
    return Trust(grade=grade, sentence=f"{grade}: {reason}", cause=cause)


def _secondary(base: str, cells: Sequence[Cell], deciding: float) -> str:
    """Return text on the secondary figures that show a difference, and on those that are undecided and wider
    than the figures that decide; '' if there are none.

    base: name of the baseline's environment.
    deciding: largest half-width of the figures that decide, as a share.
    """
    odd = [c for c in cells if c.verdict in DIFFERENT]
    wide = [c for c in cells if c.verdict is Verdict.NONE and deciding < half_width(c) < math.inf]
    text = ""
    if wide:
        more = f" and {len(wide) - 1} more" if len(wide) > 1 else ""
        text = f"; wider but secondary: {width_text(max(wide, key=half_width))}{more}"
    if odd:
        text += f"; do not use these secondary figures, in which {base} differs from itself: "
        text += ", ".join(map(metric_label, odd))
    return text


def _reach(cell: Cell) -> float:
    """Return the largest difference that the interval of a cell allows, as a share."""
    return max(-cell.low, cell.high) if bounded(cell) else math.inf


def _equal(floor: Floor) -> bool:
    return all(c.verdict is Verdict.EQUIVALENT for c in floor.cells)


def _figure(floor: Floor) -> str:
    return f"{floor.group} {floor.figure}"
