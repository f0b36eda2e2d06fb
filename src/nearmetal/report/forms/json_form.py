"""The `--json` form: the cells as strict JSON, in shares and base units.

Infinite or unknown values are null.
"""

from __future__ import annotations

from dataclasses import fields

from ...model.node_results import NodeEstimate, NodeValue
from ...model.record import JsonValue
from ...model.result import Analysis, Cell
from ...model.study import Study
from ...records.json_files import to_json
from ..tables.answer import answer
from ..tables.cells import SYMBOLS, question_text
from ..tables.emulation import emulation_warnings
from ..tables.floors import Floor, floors
from ..tables.inside import NOTHING, InsideRecord
from ..tables.nodes import alert_sentences, scope_sentence, set_sentences, state_sentence
from ..tables.trust import trust_in
from ..text import one_line

FORMAT = 2
MEANING = (
    "answer has the word (slower, faster, equal, undecided, unsure) and the sentence of each environment; "
    "noise_floor.grade is low, high, not trustworthy or not known, cause is why, sentence says both; "
    "overhead, low, high, margin, smallest_material and half_width are shares of the baseline's time "
    "(0.03 = +3 %); looks, d, sign and mean are logs of time ratios; values and difference are in `unit`. "
    "null as an end of an interval, a half_width or smallest_material: not bounded yet (infinite); "
    "null elsewhere: unknown or not estimable. n counts rounds (blocks), those included in which one side "
    "failed (failed_blocks, baseline_failed_blocks) and counts as infinitely slow; d and values are of the "
    "others. decided_block, decided_seconds: the round after which the verdict was first reached, and "
    "seconds of the run at its end."
)
NODES_MEANING = (
    "estimand: what the verdicts hold for; nodes of a cell: both estimands, without: the same without the "
    "nodes of left_out, values: each node alone, disagree: whether the overhead differs between nodes, "
    "withheld: whether there is no verdict for that reason; evidence: nodes that behave unlike the others, "
    "ratio: time of the baseline, or its difference from itself, over that on the other nodes."
)
_BY_BLOCK = ("blocks", "d", "baseline_values", "values")


def cell_json(cell: Cell, *, by_block: bool = True) -> dict[str, JsonValue]:
    """Return one cell with the field names of model.result.Cell, and its symbol.

    by_block: whether to include the values of every block (the arrays blocks, d, baseline_values, values).
    """
    out = {
        f.name: to_json(getattr(cell, f.name))
        for f in fields(cell)
        if f.name not in ("nodes", "events") and (by_block or f.name not in _BY_BLOCK)
    }
    if cell.nodes is not None:
        out["nodes"] = {
            "estimand": cell.nodes.estimand.value,
            "disagree": cell.nodes.disagree,
            "withheld": cell.nodes.withheld,
            "estimates": {e.value: _with_ends(x) for e, x in cell.nodes.estimates.items()},
            "without": {e.value: _with_ends(x) for e, x in cell.nodes.without.items()},
            "values": [_with_ends(v) for v in cell.nodes.values],
        }
    if cell.low <= -1:  # exp(-inf) - 1: nothing is known about this end
        out["low"] = None
    return {**out, "symbol": SYMBOLS[cell.verdict]}


def json_form(
    study: Study,
    analysis: Analysis,
    *,
    results_dir: str,
    report: str | None = None,
    inside: InsideRecord = NOTHING,
) -> dict[str, JsonValue]:
    """Return the result of a run as JSON values: the answer, the noise floor, every cell, and what was not
    used.

    report: path of the HTML page; None if there is none.
    inside: counters that were read during the run.
    """
    noise = analysis.noise_floor
    found = trust_in(study, noise)
    return {
        "format": FORMAT,
        "meaning": MEANING,
        "study": analysis.study,
        "question": question_text(study, analysis),
        "answer": _answer(study, analysis),
        "results_dir": results_dir,
        "report": report,
        "seed": analysis.seed,
        "blocks": analysis.blocks,
        "torn_blocks": analysis.torn_blocks,
        "failed_trials": analysis.failed_trials,
        "elapsed": to_json(analysis.elapsed),
        "block_seconds": to_json(analysis.block_seconds),
        "disturbance": to_json(dict(analysis.disturbance)),
        "noise_floor": {
            "grade": found.grade.value,
            "sentence": found.sentence,
            "cause": found.cause,
            "groups": [_floor(f) for f in floors(study, noise)],
            "cells": [cell_json(c, by_block=False) for c in noise.cells],
        },
        **_nodes(study, analysis),
        "warnings": list(emulation_warnings(analysis)),
        "cells": [cell_json(c) for c in analysis.cells],
        "inside": inside.as_json(),
        "unused": [{"what": u.what, "reason": u.reason, "count": u.count} for u in analysis.unused],
    }


def _nodes(study: Study, analysis: Analysis) -> dict[str, JsonValue]:
    found = analysis.nodes
    sets: dict[str, JsonValue] = {}
    if analysis.sets:
        evidence = [to_json(e) for e in analysis.sets]
        sets = {"sets": {"evidence": evidence, "sentences": list(set_sentences(analysis))}}
    if found is None:
        return sets
    said = (scope_sentence(analysis), *alert_sentences(study, analysis), state_sentence(analysis))
    of_run = to_json(found)
    assert isinstance(of_run, dict)
    texts: list[JsonValue] = [text for text in said if text]
    return {"nodes": {"meaning": NODES_MEANING, **of_run, "sentences": texts}, **sets}


def _with_ends(found: NodeEstimate | NodeValue) -> dict[str, JsonValue]:
    out = to_json(found)
    assert isinstance(out, dict)
    return {**out, "low": None} if found.low <= -1 else out


def _answer(study: Study, analysis: Analysis) -> list[JsonValue]:
    """Return the word and the sentence of each arm; an empty list if nothing could be compared yet."""
    found = answer(study, analysis)
    arms = found.arms if found is not None else ()
    return [{"arm": a.arm, "word": a.word, "sentence": a.sentence} for a in arms]


def _floor(floor: Floor) -> dict[str, JsonValue]:
    apart: list[JsonValue] = [one_line(c.label) for c in floor.apart]
    return {"group": floor.group, "half_width": to_json(floor.half_width), "wider": apart}
