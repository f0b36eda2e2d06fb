"""The plan of a study as text or as JSON."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from ..model.plan import GROWING
from ..model.study import Study
from ..plan import make_block
from ..run.budget import too_short
from ..run.estimate import estimate
from ..units import show_clock
from .common import print_json

#: Blocks shown by plan when the study does not say how many.
SHOWN = 3


def show_plan(study: Study, *, json: bool, blocks: int | None, shown: str = "") -> None:
    """Show the first blocks in order. The time of a block is estimated, because nothing has been measured
    yet."""
    guess = estimate(study)
    short = too_short(
        study, GROWING, spent=guess.rehearsal_seconds, done=0, block_seconds=guess.block_seconds
    )
    count = blocks or min(SHOWN, guess.blocks)
    made = [make_block(study, n) for n in range(1, count + 1)]
    if json:
        print_json(
            {
                "study": study.name,
                "seed": study.design.seed,
                "mode": study.design.mode.value,
                "estimated_blocks": guess.blocks,
                "estimated_block_seconds": guess.block_seconds,
                "estimated_seconds": guess.seconds,
                "too_short": short,
                "comparisons": [asdict(c) for c in study.comparisons()],
                "blocks": [asdict(b) for b in made],
            }
        )
        return
    print(study.question)
    print(
        f"seed {study.design.seed:x} · {study.design.mode.value} · about {guess.blocks} rounds of"
        f" {guess.block_seconds:.1f} s: {show_clock(guess.seconds)} (estimated; the rehearsal measures it)"
    )
    if short is not None:
        print(f"note: {short}")
    for c in study.comparisons():
        print(f"  {c.arm} against {c.baseline}")
    for block in made:
        print(f"round {block.number}")
        for t in block.trials:
            print(f"  {t.position + 1}  {t.arm}{'  (A/A: the baseline again)' if t.aa else ''}")
    if guess.blocks > count:
        every = f"; nearmetal plan {shlex.quote(shown)} --blocks {guess.blocks} prints all" if shown else ""
        print(f"… and {guess.blocks - count} more{every}")
