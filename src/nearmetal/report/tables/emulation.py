"""Warnings about environments that were emulated."""

from __future__ import annotations

from collections.abc import Iterable

from ...model.environments.guest import labels_emulator
from ...model.result import Analysis
from ..text import enumerated, one_line


def emulation_warnings(analysis: Analysis) -> tuple[str, ...]:
    """Return sentences about the environments that were emulated, or whose guests were."""
    cells = (*analysis.cells, *analysis.noise_floor.cells)
    return emulation_sentences((name, c.guest) for c in cells for name in c.guest_of or (c.environment,))


def emulation_sentences(found: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return a sentence for each kind of emulation, which names its environments.

    found: pairs of the name of an environment and how it is emulated; '' if it is not.
    """
    by_why: dict[str, dict[str, None]] = {}
    for name, why in found:
        if why:
            by_why.setdefault(one_line(why), {})[one_line(name)] = None
    sentences = []
    for why, names in by_why.items():
        verb, their = ("is", "its") if len(names) == 1 else ("are", "their")
        emulated = f"emulated: {their} figures say nothing about programs on a real processor"
        inner = f"nested: {their} figures say nothing about guests that run directly on a machine"
        state = emulated if labels_emulator(why) else inner
        sentences.append(f"Warning: {enumerated(tuple(names))} ({why}) {verb} {state}.")
    return tuple(sentences)
