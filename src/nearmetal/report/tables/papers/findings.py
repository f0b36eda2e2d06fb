"""The numbers and claims of papers, and the statements that do not follow from a paper's own numbers, as
tables, text and JSON. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from ....analysis.papers.check import Inconsistency, check_paper, checks_of
from ....model.papers.published import Bound, PaperClaim, Published, Quantity, Relation
from ....model.record import JsonValue
from ....records.json_files import finite
from ...sheet import Grid, Words
from ...text import one_line, plural


def follows_text(f: Inconsistency) -> str:
    """Return the value that follows from a paper's other numbers, as text: '48.3555 to 48.5303 %', 't = 4.3
    to 5.5'."""
    if f.low is None or f.high is None:
        return f.by
    low, high = f"{f.low:.6g}", f"{f.high:.6g}"
    band = low if low == high else f"{low} to {high}"
    if f.unit == "t":
        return f"t = {band}; {f.by}"
    relation = "" if f.relation is Relation.EQUAL else f"{f.relation} "
    return f"{relation}{band} {f.unit}".rstrip()


def findings_blocks(paper: Published) -> list[Grid | Words]:
    """Return a table of the statements in a paper that its own numbers contradict."""
    found = check_paper(paper)
    if not found:
        return [Words(text="Every number of the paper that can be checked follows from its others.")]
    return [
        Grid(
            title="What does not follow from the paper's own numbers",
            heads=("check", "statement", "printed", "follows", "where", "note"),
            rows=tuple((f.rule.value, f.what, f.printed, follows_text(f), f.source, f.note) for f in found),
        )
    ]


def finding_json(f: Inconsistency) -> dict[str, JsonValue]:
    return {
        "rule": f.rule.value,
        "what": f.what,
        "where": f.source,
        "printed": f.printed,
        "unit": f.unit,
        "low": f.low,
        "high": f.high,
        "limits": None if f.limits is None else [finite(x) for x in f.limits],
        "relation": f.relation.value,
        "by": f.by,
        "note": f.note,
    }


def claim_text(claim: PaperClaim) -> str:
    """Return what a claim states: 'at most 13.04 %', 'loss of rate 8.7 %', 'slower'."""
    if not claim.printed:
        return claim.direction.value
    quantity = "" if claim.quantity is Quantity.OVERHEAD else f"{claim.quantity} "
    bound = "" if claim.bound is Bound.ABOUT else f"{claim.bound} "
    return f"{quantity}{bound}{claim.printed}"


def paper_json(paper: Published, *, findings: bool) -> dict[str, JsonValue]:
    """Return a paper as JSON.

    findings: whether to return the statements that do not follow, instead of all numbers and claims.
    """
    p = paper.paper
    head: dict[str, JsonValue] = {
        **{k: getattr(p, k) for k in ("key", "title", "authors", "year", "where", "setting")},
        "checked": checks_of(paper),
    }
    if findings:
        return {**head, "findings": [finding_json(f) for f in check_paper(paper)]}
    return {
        **head,
        "numbers": [
            {
                "name": n.name,
                "what": n.what,
                "printed": n.text,
                "value": n.value,
                "rounding": n.rounding,
                "unit": n.unit,
                "where": n.source,
            }
            for n in paper.numbers.values()
        ],
        "claims": [claim_json(c) for c in paper.claims],
    }


def claim_json(c: PaperClaim) -> dict[str, JsonValue]:
    return {
        "what": c.what,
        "where": c.source,
        "part": c.part,
        "quantity": c.quantity.value,
        "direction": c.direction.value,
        "bound": c.bound.value if c.printed else None,
        "printed": c.printed or None,
        "low": c.low,
        "high": c.high,
        "workloads": list(c.workloads),
        "above": list(c.above),
        "arm": c.arm,
        "baseline": c.baseline,
    }


def head_lines(paper: Published) -> Iterator[str]:
    """Yield the lines that name a paper and count its numbers, claims and checkable statements."""
    p = paper.paper
    yield f"{p.key}: {one_line(p.title)} ({p.year})"
    yield (
        f"  {plural(len(paper.numbers), 'number')}, {plural(len(paper.claims), 'claim')}, "
        f"{plural(checks_of(paper), 'statement')} that can be checked"
    )


def finding_lines(paper: Published) -> Iterator[str]:
    found, checked = check_paper(paper), plural(checks_of(paper), "statement")
    if found:
        yield f"  {len(found)} of {checked} {'does' if len(found) == 1 else 'do'} not follow"
    else:
        yield f"  {checked} checked: every one follows"
    for f in found:
        yield f"\n  {one_line(f.source)}, {f.rule}: {one_line(f.what)}"
        limits = f.limits
        rounding = ""
        if limits is not None and f.unit != "t" and limits[0] < limits[1]:
            rounding = f" ({limits[0]:.6g} to {limits[1]:.6g} with its rounding)"
        yield f"    printed {one_line(f.printed)}{rounding}"
        by = "" if f.unit == "t" or f.low is None else f", from {one_line(f.by)}"
        yield f"    follows {one_line(follows_text(f))}{by}"
        if f.note:
            yield f"    note    {one_line(f.note)}"


def content_lines(paper: Published) -> Iterator[str]:
    """Yield the numbers and claims of a paper as lines for a terminal."""
    yield "\n  numbers"
    for n in paper.numbers.values():
        around = f" ± {n.rounding:g}" if n.rounding else ""
        value = f"{n.text}{around} {n.unit}".rstrip()
        yield f"    {one_line(value)}  {one_line(n.what)}; {one_line(n.source)}"
    yield "\n  claims"
    for c in paper.claims:
        yield f"    {one_line(claim_text(c))}  {one_line(c.what)}; {one_line(c.source)}"
