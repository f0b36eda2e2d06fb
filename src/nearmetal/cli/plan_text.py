"""The plan of a study as text or as JSON."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from ..api.estimates import LONGER, PartProgress, RunEstimate, previewed
from ..model.study import Study
from ..plain_text import one_line
from ..report.text import plural
from ..units import show_clock
from .output import print_json, print_lines


def show_plan(
    study: Study,
    *,
    json: bool,
    blocks: int | None,
    shown: str = "",
    begun: PartProgress | None = None,
    longer: str = LONGER,
) -> None:
    """Print the next blocks in order, with the estimated number and time of all blocks. Environments that
    have none of their workloads' methods are left out, as in a run.

    blocks: number of blocks to print; None for the first few.
    shown: the study as typed on the command line, for a hint how to print all blocks; '' for no hint.
    begun: the state of the run that is to be resumed; None for a new run.
    longer: the option that gives a longer time budget, for a note.
    """
    found = previewed(study, blocks=blocks, begun=begun, longer=longer)
    study, guess = found.study, found.estimate
    if json:
        print_json(
            {
                "study": study.name,
                "seed": study.design.seed,
                "mode": study.design.mode.value,
                **estimate_json(guess),
                "too_short": found.short,
                "left_out": found.unable,
                "risks": study.risks,
                "comparisons": [asdict(c) for c in study.comparisons()],
                "blocks": [asdict(b) for b in found.blocks],
            }
        )
        return
    if study.question:
        print_lines(one_line(study.question))
    rounds = plural(guess.blocks, "round" if begun is None else "more round")
    if guess.least_blocks < guess.blocks:
        rounds = f"{guess.least_blocks} to {rounds}"
    source = _source(study, begun, guess)
    print_lines(
        f"seed {study.design.seed} · mode {study.design.mode.value} · about {rounds} of"
        f" {guess.block_seconds:.1f} s{_late(guess)}: {show_clock(guess.seconds)} ({source})"
    )
    for note in found.notes:
        print_lines(f"note: {note}")
    for c in study.comparisons():
        print_lines(f"  {c.arm} against {c.baseline}")
    for block in found.blocks:
        print_lines(f"round {block.number}")
        for t in block.trials:
            print_lines(f"  {t.position + 1}  {t.arm}{'  (A/A: the baseline again)' if t.aa else ''}")
    if (more := guess.blocks - len(found.blocks)) > 0:
        line = f"nearmetal plan {shlex.quote(shown)} --seed {study.design.seed} --blocks {guess.blocks}"
        print_lines(f"… and {more} more{f'; {line} prints all' if shown else ''}")


def estimate_json(guess: RunEstimate) -> dict[str, object]:
    return {
        "estimated_blocks": guess.blocks,
        "estimated_least_blocks": guess.least_blocks,
        "estimated_block_seconds": guess.block_seconds,
        "estimated_late_blocks": guess.late_blocks,
        "estimated_late_block_seconds": guess.late_seconds if guess.late_blocks else None,
        "estimated_seconds": guess.seconds,
    }


def _late(guess: RunEstimate) -> str:
    """Return text on the duration of the last rounds, in which decided figures are no longer measured; '' if
    all rounds take equally long."""
    if not guess.late_blocks:
        return ""
    last = f"the last {plural(guess.late_blocks, 'round')}" if guess.late_blocks > 1 else "the last round"
    return f", of {guess.late_seconds:.1f} s in {last}, once some figures are decided"


def _source(study: Study, begun: PartProgress | None, guess: RunEstimate) -> str:
    """Return text on how the time of a block was determined."""
    if begun is not None and begun.block_seconds:
        return f"measured in {plural(len(begun.done), 'round')}"
    if guess.measured:
        return "measured in an earlier run"
    if any(w.program and not w.ran for w in study.workloads):
        return "if a program runs for 1 s; the rehearsal measures it"
    return "estimated; the rehearsal measures it"
