"""The blocks of a run: which are out, done, lost or given up, and the records that have arrived of each. No
I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from ...model.plan import blocks_in_order
from ...model.record import Claim, TrialRecord, claim_of
from ...records import by_claim, is_whole_attempt

MAX_ATTEMPTS = 3
"""Number of times that a block may be lost with its worker. The block is then given up, and is missing on
both sides of every comparison."""


class BlockStates:
    """The state of every block that was given to a worker.

    attempts: number of the last attempt, by block.
    out: number of the attempt of each block that is out, by block.
    done: the blocks that have a complete claim.
    missing: the blocks that are given up.
    last: all blocks up to this one are done or given up.
    """

    def __init__(
        self,
        members: int,
        *,
        attempts: Mapping[int, int],
        missing: Iterable[int],
        lost: Mapping[int, int],
        out: Mapping[int, int],
    ) -> None:
        """members: number of trials of a block.
        lost: number of times that each block was lost, by block.
        """
        self.attempts, self.out = dict(attempts), dict(out)
        self.done, self.missing = set[int](), set(missing)
        self.last = 0
        self._members = members
        self._lost = Counter(lost)
        self._parts: dict[Claim, list[TrialRecord]] = {}
        self._whole: dict[int, list[TrialRecord]] = {}

    @property
    def ready(self) -> int:
        """Number of complete blocks before which no block is still to be run. Only these are analysed."""
        return sum(n <= self.last for n in self.done)

    def load(self, known: Iterable[TrialRecord]) -> Iterator[int]:
        """Take records that are on disk already, in ascending order of their blocks. Yields the number of
        each block that they complete."""
        for _, records in groupby(known, key=lambda record: record.block):
            for claim, found in sorted(by_claim(records).items()):
                self._parts[claim] = found
                if self._complete(claim):
                    yield claim.block

    def add(self, record: TrialRecord) -> bool:
        """Take a record that has arrived. Returns whether it completes its block."""
        self.attempts[record.block] = max(self.attempts.get(record.block, 0), record.attempt)
        claim = claim_of(record)
        self._parts.setdefault(claim, []).append(record)
        return self._complete(claim)

    def _complete(self, claim: Claim) -> bool:
        """Record a block as done if the records of a claim complete it. Returns whether they do; False if the
        block was done or given up before."""
        number, found = claim.block, self._parts[claim]
        if number < 1 or not is_whole_attempt(found, self._members):
            return False
        self._forget(number)  # records of other attempts cannot count any more
        if number in self.done or number in self.missing:
            return False
        self.done.add(number)
        self.out.pop(number, None)
        self._whole[number] = found
        return True

    def lose(self, number: int, *, is_loss: bool) -> bool:
        """Note that no worker holds a block any more. Returns whether the block must be given up.

        is_loss: whether its worker was lost; False if the worker gave it back.
        """
        del self.out[number]
        self._lost[number] += is_loss
        return self._lost[number] >= MAX_ATTEMPTS

    def give_up(self, number: int) -> None:
        self.missing.add(number)
        self._forget(number)

    def _forget(self, number: int) -> None:
        for claim in [claim for claim in self._parts if claim.block == number]:
            del self._parts[claim]

    def advance(self) -> Iterator[tuple[int, list[TrialRecord]]]:
        """Yield the blocks before which no block is still to be run since the last call, with their records,
        in ascending order."""
        begin, self.last = self.last, blocks_in_order(self.done, self.missing)
        for number in range(begin + 1, self.last + 1):
            whole = self._whole.pop(number, None)
            if whole is not None:
                yield number, whole
