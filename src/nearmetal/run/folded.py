"""Folds the records of a running study to one value per block. Each block is folded once, and its records are
then removed from memory. This module imports the statistics, which take a second to load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..analysis import fold_request
from ..analysis.fold.attempts import choose
from ..analysis.fold.comparisons import Folded, joined_pieces, merged_pieces
from ..analysis.fold.pieces import Piece, fold_stored
from ..model.plan import Plan
from ..model.record import Claim, claim_of
from ..model.study import Study
from ..records import Trials

BATCH = 256
"""Largest number of blocks that are folded at once, so that few records are in memory."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Consecutive blocks that are folded.

    blocks: for each block, the attempt that counts and the number of its trials.
    """

    blocks: tuple[tuple[Claim, int], ...]
    piece: Piece


class FoldedSoFar:
    """Folds the trials of a run again and again. Only new blocks are folded; the results of the others are
    kept."""

    def __init__(self, study: Study) -> None:
        self._request = fold_request(study, detail=False)
        self._parts: list[_Part] = []

    def fold(self, plan: Plan, trials: Trials) -> Folded:
        """Return the same as analysis.fold.comparisons.fold() for all trials, without the counters, which no
        verdict needs.

        Raises RecordsError if a record is corrupt.
        """
        choice = choose(plan, trials.heads)
        groups = {(claim_of(trials.heads[group[0]]), len(group)): group for group in choice.used if group}
        kept = {part.blocks[0]: part for part in self._parts if groups.keys() >= set(part.blocks)}
        parts: list[_Part] = []
        for run in _runs(list(groups), kept):
            part = kept.get(run[0])
            if part is None or part.blocks != run:
                used = trials.lines(at for block in run for at in groups[block])
                part = _Part(blocks=run, piece=_light(fold_stored(self._request, used, trials.lines(()))))
            parts.append(part)
            while len(parts) > 1 and len(parts[-2].blocks) < 2 * len(parts[-1].blocks):
                parts[-2:] = [_joined(*parts[-2:])]
        self._parts = parts
        pieces = [_copy(part.piece) for part in parts]
        others = trials.lines(choice.others)  # waiting or never used, but searched for wrong results
        return joined_pieces(choice, [*pieces, fold_stored(self._request, trials.lines(()), others)])


def _runs(
    blocks: list[tuple[Claim, int]], kept: dict[tuple[Claim, int], _Part]
) -> Iterator[tuple[tuple[Claim, int], ...]]:
    """Split the blocks into runs of consecutive ones, in their order. The blocks of a kept part are one run;
    the blocks between kept parts are split into runs of at most BATCH."""
    at = 0
    while at < len(blocks):
        part = kept.get(blocks[at])
        end = at + len(part.blocks) if part is not None else 0
        if part is None or tuple(blocks[at:end]) != part.blocks:
            end = at + 1
            while end < len(blocks) and end - at < BATCH and blocks[end] not in kept:
                end += 1
        yield tuple(blocks[at:end])
        at = end


def _joined(first: _Part, second: _Part) -> _Part:
    return _Part(blocks=first.blocks + second.blocks, piece=merged_pieces([first.piece, second.piece]))


def _light(piece: Piece) -> Piece:
    """Return a piece without the counters of its trials. They only explain a result, after the run."""
    counts = {s: replace(c, counters={}, network={}, counted={}) for s, c in piece.counts.items()}
    return replace(piece, counts=counts)


def _copy(piece: Piece) -> Piece:
    """Return a copy of a piece for joined_pieces(), which empties the tables of its pieces. The arrays are
    shared."""
    return replace(
        piece, measured=dict(piece.measured), compared=dict(piece.compared), counts=dict(piece.counts)
    )
