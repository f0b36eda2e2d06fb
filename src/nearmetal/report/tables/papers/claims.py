"""Table of a paper's claims: whether each holds here, by our intervals. No I/O.

No value of a paper is used in an estimate."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from ....analysis.papers.claims import ClaimAnswer, ClaimOutcome, OwnOverhead, hold, unlike
from ....analysis.papers.differences import OwnConditions, difference
from ....model.papers.published import MeasurementConditions, PaperClaim
from ....model.record import JsonValue, section
from ....model.result import Analysis, Cell, Verdict
from ....model.series import Part
from ....model.study import Arm, Study
from ....units import show_effect
from ...record_index import RecordIndex
from ...sheet import Grid
from ...text import one_line
from ..cells import has_interval
from ..profile import computation_shares
from .beside import WHOLE, end_or_none
from .findings import claim_json, claim_text


@dataclass(frozen=True, kw_only=True)
class ClaimHere:
    """A claim with its answer.

    cells: our comparisons by which the claim was checked.
    differs: sentence on the differences between the paper's conditions and ours that matter.
    """

    answer: ClaimAnswer
    cells: tuple[Cell, ...]
    differs: str

    @property
    def ours(self) -> str:
        """Return our intervals as text."""
        return "; ".join(
            f"{one_line(_what(self.answer.claim, c))} "
            + (show_effect(c.overhead, c.low, c.high) if has_interval(c) else "no interval yet")
            for c in self.cells
        )

    def as_json(self) -> dict[str, JsonValue]:
        a = self.answer
        claim = claim_json(a.claim)
        return {
            **{key: v for key, v in claim.items() if key not in ("part", "low", "high")},
            "held": a.held.value,
            "direction_held": a.direction.value,
            "each": {what: held.value for what, held in a.each},
            "reason": a.reason,
            "differs": self.differs,
            "note": a.claim.differs,
            "ours": [
                {"workload": x.workload, "low": end_or_none(x.low), "high": end_or_none(x.high), "n": x.n}
                for x in self.cells
            ],
        }


def claims_here(
    claims: Sequence[PaperClaim],
    part: Part,
    study: Study | None,
    analysis: Analysis | None,
    provenance: Mapping[str, JsonValue],
    records: RecordIndex,
    why: str,
) -> tuple[ClaimHere, ...]:
    """Return the claims of one part with their answers.

    study, analysis: None if nothing was measured.
    records: those of the part. Their profiles give the baseline's share of computation.
    why: how the part stopped, or why it has no results.
    """
    return tuple(_one(c, part, study or part.study, analysis, provenance, records, why) for c in claims)


def _one(
    claim: PaperClaim,
    part: Part,
    study: Study | None,
    analysis: Analysis | None,
    provenance: Mapping[str, JsonValue],
    records: RecordIndex,
    why: str,
) -> ClaimHere:
    cannot = _cannot(claim, part, study)
    if study is None or cannot or claim.cannot:
        return ClaimHere(answer=hold(claim, (), cannot=cannot, why=why), cells=(), differs="")
    meant = {*claim.workloads, *claim.above}
    ran = {w.name: w.name if w.name in meant else w.ran for w in study.workloads}
    arm, baseline = part.places[claim.arm], part.places[claim.baseline]
    arms = {a.name: a for a in study.arms()}
    # An arm that fails in the rehearsal is left out of the run, but not of the part.
    if gone := next((name for name in (arm, baseline) if name not in arms), ""):
        reason = section(provenance, "not_here").get(gone, why)
        return ClaimHere(answer=hold(claim, (), why=f"not measured: {reason}"), cells=(), differs="")
    cells = tuple(
        c
        for c in (analysis.cells if analysis is not None else ())
        if (c.arm, c.baseline) == (arm, baseline) and ran.get(c.workload) in meant
    )
    cells = tuple(c for c in cells if c.metric == claim.metric) if claim.metric else _whole(cells)
    names = {f"{name}.{claim.metric}" for name, known in ran.items() if known in meant}
    reason = _reason(names, analysis) or why
    unasked = unlike(claim, _computation(baseline, ran, records)) if cells else {}
    own_overheads = [_own(claim, c, ran[c.workload]) for c in cells]
    answer = hold(claim, own_overheads, why=f"not measured: {reason}", unasked=unasked)
    own = _conditions(study, arms[arm], cells, ran, provenance)
    return ClaimHere(answer=answer, cells=cells, differs=one_line(difference(claim, own)))


def _computation(arm: str, ran: Mapping[str, str], records: RecordIndex) -> dict[str, float | None]:
    """Return the share of computation in the computation and communication of an arm, by kernel or
    application; None without a profile.

    ran: kernel or application of each workload.
    """
    found = computation_shares((arm,), records)
    return {**dict.fromkeys(ran.values()), **{ran[w]: v for (_, w), v in found.items() if w in ran}}


def _reason(names: Container[str], analysis: Analysis | None) -> str:
    """Return why the first of these metrics, each as 'workload.metric', has no values; '' if no reason is
    known."""
    unused = () if analysis is None else analysis.unused
    return next((u.reason for u in unused if u.what.rpartition(": ")[2] in names), "")


def _whole(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the comparisons that represent whole workloads. If a workload has no metric for the whole, as
    STREAM, they are those of all its metrics."""
    with_whole = {c.workload for c in cells if c.metric in WHOLE}
    return tuple(c for c in cells if c.metric in WHOLE or c.workload not in with_whole)


def _cannot(claim: PaperClaim, part: Part, study: Study | None) -> str:
    """Return why a claim cannot be checked on this machine; '' if it can."""
    if study is None:
        return part.absent or "this part has no study here"
    for word in (claim.arm, claim.baseline):
        if word not in part.places:
            return f'the study has no environment "{word}" on this machine'
    ran = {name for w in study.workloads for name in (w.name, w.ran)}
    missing = [w for w in claim.workloads if w not in ran]
    return f"the study does not run {', '.join(missing)}" if len(missing) == len(claim.workloads) else ""


def _what(claim: PaperClaim, cell: Cell) -> str:
    """Return the name of a comparison: its workload, with the metric if the claim is on several metrics."""
    return cell.workload if claim.metric or cell.metric in WHOLE else cell.label


def _own(claim: PaperClaim, cell: Cell, workload: str) -> OwnOverhead:
    # Failed rounds count as infinitely slow, but say nothing about the time of runs that do not fail.
    known = not (cell.failed and cell.verdict is Verdict.NONE)
    low, high = (cell.low, cell.high) if known else (-math.inf, math.inf)
    return OwnOverhead(what=_what(claim, cell), workload=workload, low=low, high=high, margin=cell.margin)


def _conditions(
    study: Study, arm: Arm, cells: Sequence[Cell], ran: Mapping[str, str], provenance: Mapping[str, JsonValue]
) -> OwnConditions:
    place = arm.placement
    release = section(provenance, "kernel").get("release") if arm.environment.guest is None else None
    measured = {c.workload for c in cells}
    classes: dict[str, list[str]] = {}
    for w in study.kernels:
        if "class" in w.params and w.name in measured:
            classes.setdefault(ran[w.name], []).append(str(w.params["class"]))
    texts = [(abs(c.overhead), c.workload, c.attribution.sentence) for c in cells if c.attribution]
    _, workload, sentence = max((t for t in texts if t[2]), default=(0.0, "", ""))
    return OwnConditions(
        conditions=MeasurementConditions(
            ranks=(place.ranks, place.ranks),
            nodes=place.nodes,
            classes={kernel: " and ".join(sizes) for kernel, sizes in classes.items()},
            link=place.link.rate if place.node.emulated else 0.0,
            kernel=release.partition("-")[0] if isinstance(release, str) else "",
            environment=arm.environment.backend,
        ),
        emulated=place.node.emulated,
        guest=next((c.guest.partition(":")[0] for c in cells if c.guest), ""),
        explained=f"{workload}: {sentence}" if sentence else "",
    )


def claims_grid(claims: Sequence[ClaimHere]) -> Grid:

    def answer(c: ClaimHere) -> str:
        return f"{c.answer.held}: {c.answer.reason}" if c.answer.reason else c.answer.held.value

    def differs(c: ClaimHere) -> str:
        note = c.answer.claim.differs
        known = note and c.answer.held is not ClaimOutcome.IMPOSSIBLE
        return f"{c.differs} In the paper: {note}.".lstrip() if known else c.differs

    return Grid(
        title="Do the paper's claims hold here?",
        heads=("claim", "paper", "where", "overhead here", "answer", "what differs"),
        rows=tuple(
            (
                c.answer.claim.what,
                claim_text(c.answer.claim),
                c.answer.claim.source,
                c.ours or "not measured",
                answer(c),
                differs(c),
            )
            for c in claims
        ),
    )
