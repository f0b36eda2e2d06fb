"""Describes in one sentence the differences between a paper's conditions and ours that matter for a claim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...model.papers.published import MeasurementConditions, PaperClaim


@dataclass(frozen=True, kw_only=True)
class OwnConditions:
    """Our recorded conditions for one claim.

    emulated: whether our nodes are emulated on one machine.
    guest: how virtual machines are emulated or nested; '' if they are not.
    explained: explanation of our largest overhead by its parts and causes; '' if there is none.
    """

    conditions: MeasurementConditions
    emulated: bool = False
    guest: str = ""
    explained: str = ""


def difference(claim: PaperClaim, own: OwnConditions) -> str:
    """Return a sentence on the conditions that differ, and one on our largest overhead if it is explained; ''
    if nothing is known.

    A rate of links is named only if our ranks are on several nodes, and a class only for the claim's own
    workloads. A condition that one side does not record is left out.
    """
    parts = list(_parts(claim, own))
    sentence = f"Here: {'; '.join(parts)}." if parts else ""
    if own.explained:
        sentence = f"{sentence} Our largest overhead, of {own.explained}.".lstrip()
    return sentence


def _parts(claim: PaperClaim, own: OwnConditions) -> Iterator[str]:
    theirs, ours = claim.conditions, own.conditions
    low, high = theirs.ranks
    ranks = ours.ranks[0]
    if low and ranks and not low <= ranks <= high:
        yield f"{_count(ranks, 'rank')} instead of {low if low == high else f'{low} to {high}'}"
    if ours.nodes and theirs.nodes and ours.nodes != theirs.nodes:
        emulated = " emulated" if own.emulated else ""
        yield f"{_count(ours.nodes, f'{emulated} node'.strip())} instead of {theirs.nodes}"
    elif own.emulated:
        yield "nodes emulated on one machine"
    classes: dict[str, list[str]] = {}
    for workload, size in ours.classes.items():
        printed = theirs.classes.get(workload, size)
        if workload in claim.workloads and printed != size:
            classes.setdefault(f"class {size} instead of {printed}", []).append(workload.upper())
    yield from (f"{words} ({', '.join(workloads)})" for words, workloads in classes.items())
    if ours.nodes > 1 and ours.link and theirs.link and ours.link != theirs.link:
        yield f"links of {_rate(ours.link)} instead of {_rate(theirs.link)}"
    if ours.kernel and theirs.kernel and not _same_kernel(ours.kernel, theirs.kernel):
        yield f"Linux {ours.kernel} instead of {theirs.kernel}"
    if ours.environment and theirs.environment and not _named(ours.environment, theirs.environment):
        yield f"{ours.environment} instead of {theirs.environment}"
    if own.guest:
        yield own.guest


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _rate(rate: float) -> str:
    bits = 8 * rate
    return f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"


def _same_kernel(ours: str, theirs: str) -> bool:
    """Return whether two versions agree as far as both are given: '4.0' and '4.0.9'."""
    return all(a == b for a, b in zip(ours.split("."), theirs.split("."), strict=False))


def _named(ours: str, theirs: str) -> bool:
    return ours.casefold() in theirs.casefold()
