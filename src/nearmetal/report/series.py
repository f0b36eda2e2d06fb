"""The summary of a study in parts: the results of the paper beside the results measured here, as sections,
text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..analysis.instances import InstanceFigures
from ..analysis.papers.check import check_paper
from ..model.papers.published import Published, PublishedFigure, Quantity
from ..model.record import JsonValue, TrialRecord
from ..model.result import Analysis, Cell
from ..model.series import Part, Scale, Series, omission_lines
from ..model.study import Study
from ..samplers import SampleSection
from ..units import show_clock
from .forms.json_form import json_form
from .page.trouble import number_text, seen_text, time_text
from .record_index import RecordIndex
from .sheet import Block, Grid, Leaf, Words, text_of
from .tables.answer import answer_sentences
from .tables.cells import Entry, compared_labels, left_out_text, verdict_table, verdict_text
from .tables.events.clients import clients_grids
from .tables.events.sentences import event_sentences
from .tables.events.sweeps import sweeps_json
from .tables.guest_gains import gains_grids, gains_json, gains_of
from .tables.instances import instances_blocks, instances_json, instances_of, printed_grids, printed_json
from .tables.papers.beside import PrintedComparison, beside, times_grid
from .tables.papers.boot import boot_blocks, printed_boots
from .tables.papers.claims import ClaimHere, claims_grid, claims_here
from .tables.papers.findings import finding_json, findings_blocks
from .tables.papers.layout import LaidOutTable, laid_out
from .tables.papers.method import method_blocks, method_json
from .tables.papers.whole_runs import whole_runs, whole_runs_grids, whole_runs_json
from .tables.trust import trust_in
from .text import one_line, plural


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """One part of a series, with its results on disk.

    directory: relative to the directory of the series; None if there is none.
    study, analysis: None if nothing was measured.
    records: the records of its trials.
    why: how the part stopped, or why it has no results.
    provenance: the description of the machine when its run began.
    guests: the counters that were sampled inside its guests.
    """

    part: Part
    directory: Path | None
    study: Study | None
    analysis: Analysis | None
    records: Sequence[TrialRecord]
    why: str
    provenance: Mapping[str, JsonValue] = field(default_factory=dict)
    guests: Sequence[SampleSection] = ()


def series_files(directory: Path) -> tuple[Path, Path]:
    """Return the paths of the HTML page and the Markdown file of a summary."""
    return directory / "report.html", directory / "report.md"


def scale_text(scale: Scale | None) -> str:
    """Return text on the scale that is appended to a line, such as ' · scale small'; '' for None."""
    return "" if scale is None else f" · scale {scale}"


def series_text(series: Series, results: Sequence[PartResult], paper: Published | None) -> str:
    return "\n\n".join(
        [one_line(series.title), answer_of(results), *map(text_of, sheet(series, results, paper))]
    )


def series_json(
    series: Series,
    results: Sequence[PartResult],
    paper: Published | None,
    *,
    results_dir: str,
    report: str,
) -> dict[str, JsonValue]:
    """Return the summary as JSON: the results of each part (see json_form()), and separately the paper's
    figures with their sources."""
    return {
        "format": 1,
        "study": series.name,
        "title": series.title,
        "scale": None if series.scale is None else series.scale.value,
        "seed": series.seed,
        "notes": list(series.notes),
        "results_dir": results_dir,
        "report": report,
        "paper": None if paper is None else _paper_json(paper),
        "parts": [_part_json(r, paper, results_dir) for r in results],
    }


def _paper_json(paper: Published) -> dict[str, JsonValue]:
    p = paper.paper
    texts: dict[str, JsonValue] = {k: getattr(p, k) for k in ("title", "authors", "where", "setting")}
    method: JsonValue = None if p.method is None else {"kind": p.method.kind.value, "where": p.method.source}
    return {
        **texts,
        "year": p.year,
        "method": method,
        "findings": [finding_json(f) for f in check_paper(paper)],
    }


def _part_json(r: PartResult, paper: Published | None, results_dir: str) -> dict[str, JsonValue]:
    records, figures = RecordIndex(r.records), _figures(r, paper)
    counted = instances_of(r.study, records) if r.study is not None else ()
    own: dict[str, JsonValue] | None = None
    if r.study is not None and r.analysis is not None and r.directory is not None:
        own = json_form(r.study, r.analysis, results_dir=str(Path(results_dir) / r.directory))
        own |= sweeps_json(r.study, r.analysis.cells, records)
    return {
        "part": r.part.key,
        "title": r.part.title,
        "notes": list(r.part.notes),
        "left_out": [asdict(o) for o in r.part.left_out],
        "why": r.why,
        "emulated": r.study is not None and any(a.placement.node.emulated for a in r.study.arms()),
        "places": dict(r.part.places),
        "result": own,
        "instances": instances_json(counted),
        "guest_gains": []
        if r.study is None or r.analysis is None
        else gains_json(gains_of(r.study, r.analysis, counted)),
        "whole_runs": whole_runs_json(() if r.study is None else whole_runs(r.study, records)),
        "published": [
            *(b.as_json() for b in _beside(r, figures, records)),
            *printed_json(figures, r.part.places, counted),
        ],
        "tables": [t.as_json() for t in _tables(r, paper, records)],
        "claims": [c.as_json() for c in _claims_of(r, paper, records)],
        "paper_method": [] if paper is None else method_json(paper.paper, r.analysis),
    }


def answer_of(results: Sequence[PartResult]) -> str:
    """Return how many parts were measured, and how many comparisons had each verdict."""
    cells = [c for r in results if r.analysis is not None for c in r.analysis.cells]
    if not cells:
        return "Nothing was measured yet."
    measured = sum(r.analysis is not None and r.analysis.blocks > 0 for r in results)
    return (
        f"{measured} of {plural(len(results), 'part')} measured, {plural(len(cells), 'comparison')}: "
        f"{_verdicts(cells)}."
    )


def _verdicts(cells: Sequence[Cell]) -> str:
    """Return how many comparisons had each verdict, the most frequent first; '' without comparisons."""
    found = Counter(verdict_text(c.verdict) for c in cells)
    return ", ".join(f"{n} {words}" for words, n in found.most_common())


PartCharts = Callable[
    [PartResult, Sequence[PrintedComparison], Sequence[InstanceFigures], RecordIndex], Sequence[Block]
]
"""A function that returns the charts of a part. Its arguments are the results of the part, the printed
figures with ours, the counters of its guests, and its records."""


def sheet(
    series: Series,
    results: Sequence[PartResult],
    paper: Published | None,
    charts: PartCharts = lambda *_: (),
) -> tuple[Leaf, ...]:
    """Return the sections of the summary: the overview, then the parts, then the paper's setting.

    charts: returns the charts of a part; by default none, because a text shows no charts.
    """
    leaves = [_overview(series, results), *(_part(r, paper, charts) for r in results)]
    if paper is not None:
        p = paper.paper
        texts = (
            f"{p.authors}: {p.title} ({p.year}), {p.where}. {p.setting}. "
            "Its figures are shown beside ours and enter none of them."
        )
        blocks = (Words(text=texts), *findings_blocks(paper))
        leaves.append(Leaf(key="paper", title="The paper", blocks=blocks))
    return tuple(leaves)


def _overview(series: Series, results: Sequence[PartResult]) -> Leaf:
    rows = []
    for r in results:
        a = r.analysis
        rows.append(
            (
                r.part.title,
                "none" if a is None else f"{a.blocks} in {show_clock(a.elapsed)}",
                _verdicts(() if a is None else a.cells) or _without_verdicts(r),
                trust_in(r.study, a.noise_floor).sentence if r.study is not None and a is not None else "",
                r.why,
            )
        )
    heads = ("part", "rounds", "verdicts", "noise floor", "how it ended")
    blocks: list[Block] = [Words(text=note) for note in series.notes]
    return Leaf(
        key="verdicts",
        title="The parts",
        blocks=(*blocks, Grid(title="Parts", heads=heads, rows=tuple(rows))),
    )


def _figures(r: PartResult, paper: Published | None) -> tuple[PublishedFigure, ...]:
    return paper.of_part(r.part.key) if paper is not None else ()


def _claims_of(r: PartResult, paper: Published | None, records: RecordIndex) -> tuple[ClaimHere, ...]:
    claims = paper.claims_of(r.part.key) if paper is not None else ()
    return claims_here(claims, r.part, r.study, r.analysis, r.provenance, records, r.why)


def _tables(r: PartResult, paper: Published | None, records: RecordIndex) -> tuple[LaidOutTable, ...]:
    tables = paper.tables_of(r.part.key) if paper is not None else ()
    return laid_out(tables, r.part.places, r.study, r.analysis, records)


def _beside(
    r: PartResult, figures: Sequence[PublishedFigure], records: RecordIndex
) -> tuple[PrintedComparison, ...]:
    elsewhere = (Quantity.INSTANCES, Quantity.BOOT)  # in tables of their own
    figures = [f for f in figures if f.quantity not in elsewhere]
    return beside(figures, r.part.places, r.study, r.analysis, records, r.why)


def _part(r: PartResult, paper: Published | None, charts: PartCharts) -> Leaf:
    records = RecordIndex(r.records)
    pairs = _beside(r, _figures(r, paper), records)
    counted = instances_of(r.study, records) if r.study is not None else ()
    blocks: list[Block] = [Words(text=note, quiet=True) for note in r.part.notes]
    left_out = omission_lines(r.part.left_out)
    blocks += [Words(text=f"Left out on this machine: {line}.", quiet=True) for line in left_out]
    if r.study is None or r.analysis is None or not r.analysis.blocks:
        blocks.insert(0, Words(text=f"Nothing was measured: {r.why}."))
    else:
        link = (f"All of part {r.part.key}", f"{r.directory}/report.html")
        answer = " ".join((r.study.question, *answer_sentences(r.study, r.analysis)))
        blocks = [Words(text=answer, link=link), *blocks]
        blocks += charts(r, pairs, counted, records)
        blocks += _grids(r.study, r.analysis)
        blocks += whole_runs_grids(r.study, whole_runs(r.study, records))
        blocks += [Words(text=text) for text in event_sentences(r.study, records)]
        blocks += clients_grids(r.study, records)
        blocks += gains_grids(r.study, gains_of(r.study, r.analysis, counted))
        blocks += instances_blocks(r.study, counted)
    times = [b for b in pairs if b.figure.quantity in (Quantity.TIME, Quantity.TIME_SHARE)]
    if times and r.study is not None and r.analysis is not None:
        blocks.append(times_grid(r.study, r.part.places, times, records))
    if paper is not None and (printed_times := printed_boots(paper, _figures(r, paper))):
        blocks += [*(() if r.study is None else boot_blocks(r.study, records)), *printed_times]
    blocks += [t.grid() for t in _tables(r, paper, records)]
    marks = _marks(r)
    claims = _claims_of(r, paper, records)
    if claims:
        blocks.append(claims_grid(claims))
    told = {c.answer.claim.what for c in claims}
    if others := [b for b in pairs if b not in times and b.figure.what not in told]:
        blocks.append(_others(others, marks))
    if paper is not None and r.study is not None and r.analysis is not None:
        blocks += method_blocks(paper.paper, r.study, r.analysis)
    printed = [f for f in _figures(r, paper) if f.quantity is Quantity.INSTANCES]
    blocks += printed_grids(printed, r.part.places, counted, marks)
    return Leaf(key=f"part-{r.part.key}", title=r.part.title, blocks=tuple(blocks))


def _grids(study: Study, analysis: Analysis) -> list[Block]:
    """Return tables of all comparisons, one table per baseline arm, and a table of TCP time-outs if there
    were any."""
    out: list[Block] = [
        Grid(
            title=f"Against {group.baseline.full}",
            heads=("metric", "baseline", *(c.full for c in group.columns)),
            rows=tuple(
                (line.label, line.baseline, *(_entry_text(line.entries.get(c.arm)) for c in group.columns))
                for line in group.lines
            ),
        )
        for group in verdict_table(study, analysis)
    ]
    left_out = left_out_text(analysis)
    if left_out:
        out.append(Words(text=f"{left_out}.", quiet=True))
    trouble = [c for c in analysis.cells if c.network is not None and c.network.timeouts]
    if trouble:
        out.append(_timeouts(study, trouble))
    return out


def _without_verdicts(r: PartResult) -> str:
    compares = r.study is None or r.analysis is None or r.study.comparisons()
    return "nothing measured" if compares else "none: nothing is compared"


def _entry_text(e: Entry | None) -> str:
    return "no figure" if e is None else f"{e.overhead} {e.interval} {e.n} {e.verdict}"


def _timeouts(study: Study, cells: Sequence[Cell]) -> Grid:
    """Return the table of TCP time-outs and retransmissions in the timed part of a trial, as means over
    trials."""
    heads = ("time-outs", "of the baseline", "sent again", "least RTO seen", "waited")
    return Grid(
        title="TCP time-outs in the timed part of a trial",
        heads=("metric, environment", *heads),
        rows=tuple(
            (
                label,
                number_text(t.timeouts),
                number_text(t.baseline_timeouts),
                number_text(t.retransmitted),
                seen_text(t.rto),
                time_text(t.waited),
            )
            for label, c in zip(compared_labels(study, cells), cells, strict=True)
            if (t := c.network) is not None
        ),
        numbers=True,
    )


def _marks(r: PartResult) -> dict[str, str]:
    """Return a mark for each emulated arm, such as ' (TCG, no KVM)', by the paper's name for the arm."""
    if r.study is None:
        return {}
    texts = {a.name: one_line(a.environment.emulation).partition(":")[0] for a in r.study.arms()}
    return {word: f" ({how})" for word, arm in r.part.places.items() if (how := texts.get(arm))}


def _others(pairs: Sequence[PrintedComparison], marks: Mapping[str, str]) -> Grid:
    def ours(b: PrintedComparison) -> str:
        mark = marks.get(b.figure.arm) or marks.get(b.figure.baseline, "")
        return b.ours + (mark if b.found else "")

    return Grid(
        title="What the paper found, and what was found here",
        heads=("what", "paper", "where", "here", "the paper's is", "what differs"),
        rows=tuple(
            (b.figure.what, b.printed, b.figure.source, ours(b), b.likeness, b.figure.differs) for b in pairs
        ),
    )
