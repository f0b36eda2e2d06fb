"""Chooses the sizes of a part by the results of an earlier part, which measures only the baseline. Sizes are
the problem classes of kernels, and the links between emulated nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import NearmetalError
from ...model.series import Part, Series
from ...model.study import Study
from ..results import Analyse, analysed
from ..studies import Note, ignore
from .files import paper_of
from .planning import reason

if TYPE_CHECKING:
    from ...records import SeriesDirectory


def sized(
    directory: SeriesDirectory,
    series: Series,
    part: Part,
    study: Study,
    *,
    note: Note = ignore,
    analyse: Analyse = analysed,
) -> Study:
    """Return the study of a part with its chosen sizes. They are chosen and recorded only once, before the
    part begins; afterwards the stored study of its results has the sizes.

    study: the study of the part. It is returned unchanged if the part takes its sizes from no other part, if
        the part was begun, or if there is nothing to choose from.
    note: called with a text about the choice, or why there is none.
    """
    if not part.sizes_from or directory.part(part) is not None:
        return study
    study, words = _chosen(directory, series, part, study, analyse)
    directory.choose(part.key, f"Classes and links: {words}")
    note(f"{part.key}: {words}")
    return study


def _chosen(
    directory: SeriesDirectory, series: Series, part: Part, study: Study, analyse: Analyse
) -> tuple[Study, str]:
    """Return the study of a part with its chosen sizes, and a text about the choice. If there is nothing to
    choose from, return the study unchanged, and the reason."""
    from ...analysis.papers.sizes import choose, printed_shares, wanted_shares, with_sizes
    from ...report.record_index import RecordIndex
    from ...report.tables.profile import computation_shares

    try:
        paper = paper_of(directory, series.paper)
    except NearmetalError as e:
        return study, _not_chosen(f"the published table cannot be read: {reason(e)}")
    printed = wanted_shares(study, printed_shares(paper, part.key))
    if not printed:
        return study, _not_chosen(
            f"no claim of the published table about part {part.key} says how long one of its kernels "
            "computes (of those with one workload)"
        )
    source = next((p for p in series.parts if p.key == part.sizes_from), None)
    found = None if source is None else directory.part(source)
    if found is None:
        return study, _not_chosen(f"part {part.sizes_from} has no results")
    try:
        own = analyse(found)
    except NearmetalError as e:
        return study, _not_chosen(f"part {part.sizes_from} cannot be read: {reason(e)}")
    shares = computation_shares([a.name for a in own.study.arms()], RecordIndex(own.trials))
    chosen = choose(own.study, shares, printed)
    if chosen is None:
        return study, _not_chosen(f"part {part.sizes_from} has no profile of its kernels")
    return with_sizes(study, chosen), chosen.words(printed)


def _not_chosen(why: str) -> str:
    return f"Not chosen, so as in its file: {why}."
