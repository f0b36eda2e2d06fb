"""The parts of a report about a run on several nodes. No I/O; independent of the output format. All parts are
empty for a run on one node."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.design import Estimand
from ...model.node_results import NodeDeviation, NodeEvidence, NodeValue, RunNodes, SetEvidence
from ...model.result import Analysis, Cell
from ...model.study import Study
from ...units import show_effect
from ..text import enumerated, one_line, plural
from .cells import ESTIMANDS, estimate_text, label_text, metric_label, side

MOST_NAMED = 5
"""Maximum number of figures in which nodes disagree, and of metrics of one node, that sentences name."""
MOST_NODES = 8
"""Maximum number of nodes that are named one by one."""
HEADS = ("figure", *(words for words in ESTIMANDS.values()), "nodes one by one")


def scope_sentence(analysis: Analysis) -> str:
    """Return how many nodes ran how many rounds, and what the verdicts hold for."""
    found = analysis.nodes
    if found is None:
        return ""
    rounds = sorted(found.rounds.values())
    each = f"{rounds[0]}" if rounds[0] == rounds[-1] else f"{rounds[0]} to {rounds[-1]}"
    ran = f"{plural(len(rounds), 'node')} with {each} rounds each"
    if found.estimand is Estimand.THESE:
        return f"{ran}; verdicts hold for these nodes, each with the same weight"
    return f"{ran}; verdicts hold for nodes like these, and the nodes are the sample"


def alert_sentences(study: Study, analysis: Analysis) -> tuple[str, ...]:
    """Return the sentences that a reader has to see before any figure: in which figures nodes disagree, and
    which nodes, machines or links behave unlike the others."""
    found = analysis.nodes
    sets = set_sentences(analysis)
    return sets if found is None else (*_disagreements(study, analysis), *unlike_sentences(found), *sets)


def set_sentences(analysis: Analysis) -> tuple[str, ...]:
    """Return a sentence for each machine or link that is slow, with the evidence."""
    by_name: dict[tuple[str, ...], list[SetEvidence]] = {}
    for e in analysis.sets:
        by_name.setdefault(e.machines, []).append(e)
    out = []
    for names, evidence in by_name.items():
        worst = max(evidence, key=lambda e: e.ratio.low)
        r = worst.ratio
        effect = show_effect(r.centre - 1, r.low - 1, r.high - 1)
        what, where, others = f"{one_line(names[0])} is slow", "with it", "without it"
        if len(names) > 1:
            what = f"The link between {enumerated([one_line(name) for name in names])} is slow"
            where, others = "with both", "with one of them"
        rounds = f"in {plural(worst.n, 'round')} {where} than in {plural(worst.others, 'round')} {others}"
        out.append(f"{what}: the baseline takes {effect} longer {rounds}, in {_metrics(evidence, worst)}")
    return tuple(out)


def _metrics(evidence: Sequence[NodeEvidence | SetEvidence], worst: NodeEvidence | SetEvidence) -> str:
    """Return the metric with the strongest evidence, and how many further ones there are."""
    more = f" and {plural(len(evidence) - 1, 'further metric')}" if len(evidence) > 1 else ""
    return f"{label_text(worst.workload, worst.metric)}{more}"


def state_sentence(analysis: Analysis) -> str:
    """Return how kernels and CPU models of the nodes differ; '' if they do not."""
    found = analysis.nodes
    if found is None or not found.states:
        return ""
    by_state: dict[str, list[str]] = {}
    for node, state in found.states.items():
        by_state.setdefault(one_line(state), []).append(one_line(node))
    groups = "; ".join(f"{_nodes_text(names)}: {state}" for state, names in by_state.items())
    return f"The nodes differ, and each is a stratum of its own: {groups}"


def _nodes_text(names: Sequence[str]) -> str:
    return enumerated(names) if len(names) <= MOST_NODES else plural(len(names), "node")


def _figure(study: Study, cell: Cell) -> str:
    """Return the name of a figure; with its baseline if the study has several."""
    against = f" against {side(study, cell.baseline).environment}" if len(study.design.baselines) > 1 else ""
    return f"{metric_label(cell)} of {side(study, cell.arm).title}{against}"


def _disagreements(study: Study, analysis: Analysis) -> list[str]:
    cells = [c for c in analysis.cells if c.nodes is not None and c.nodes.disagree]
    if not cells:
        return []
    shown = [f"{_figure(study, c)}: {_range(c)}" for c in cells[:MOST_NAMED]]
    more = [f"and {plural(len(cells) - MOST_NAMED, 'further figure')}"] if len(cells) > MOST_NAMED else []
    of = f"{len(cells)} of {plural(len(analysis.cells), 'figure')}"
    return [f"The nodes disagree in {of}: {'; '.join([*shown, *more])}"]


def _range(cell: Cell) -> str:
    """Return the nodes with the smallest and the largest overhead."""
    assert cell.nodes is not None
    values = sorted(cell.nodes.values, key=lambda v: v.overhead)
    return f"from {value_text(values[0])} to {value_text(values[-1])}"


def value_text(value: NodeValue) -> str:
    """Return the overhead on one node: '+0.4 % on node1'."""
    overhead = show_effect(value.overhead, value.low, value.high).partition(" [")[0]
    return f"{overhead} on {one_line(value.node)}"


def unlike_sentences(found: RunNodes) -> tuple[str, ...]:
    """Return a sentence for each node that behaves unlike the others, with the evidence, and one on whether
    figures without these nodes are shown too."""
    by_node: dict[tuple[str, NodeDeviation], list[NodeEvidence]] = {}
    for e in found.evidence:
        by_node.setdefault((e.node, e.unlike), []).append(e)
    out = [_unlike(node, unlike, evidence) for (node, unlike), evidence in by_node.items()]
    named = dict.fromkeys(e.node for e in found.evidence)
    if found.left_out:
        out.append(f"Every figure is also shown without {_nodes_text([one_line(n) for n in found.left_out])}")
    elif named:
        out.append("No node is left out, because half of the nodes or more are named")
    return tuple(out)


def _unlike(node: str, unlike: NodeDeviation, evidence: Sequence[NodeEvidence]) -> str:
    worst = max(evidence, key=lambda e: e.ratio.low)
    where = f"in {_metrics(evidence, worst)}"
    others = f"on the {worst.others} other nodes"
    r = worst.ratio
    if unlike is NodeDeviation.SLOW:
        effect = show_effect(r.centre - 1, r.low - 1, r.high - 1)
        return f"{one_line(node)} is slow: the baseline takes {effect} longer there than {others} {where}"
    ratio = f"×{r.centre:.2g} [×{r.low:.2g} … ×{r.high:.2g}]"
    return (
        f"{one_line(node)} is unsteady: the baseline differs from itself {ratio} as much there as {others} "
        f"{where}"
    )


def short_sentence(analysis: Analysis) -> tuple[str, bool]:
    """Return one sentence on the nodes for the first screen, and whether it contains an alert."""
    scope = scope_sentence(analysis)
    alerts = []
    disagreeing = sum(c.nodes is not None and c.nodes.disagree for c in analysis.cells)
    if disagreeing:
        alerts.append(f"they disagree in {disagreeing} of {plural(len(analysis.cells), 'figure')}")
    named: dict[str, dict[str, None]] = {}
    for e in analysis.nodes.evidence if analysis.nodes is not None else ():
        named.setdefault(e.node, {})[e.unlike.value] = None
    alerts += [f"{one_line(node)} is {' and '.join(words)}" for node, words in named.items()]
    for names in dict.fromkeys(e.machines for e in analysis.sets):
        which = enumerated([one_line(name) for name in names])
        alerts.append(f"{which} is slow" if len(names) == 1 else f"the link between {which} is slow")
    return "; ".join([*([scope] if scope else []), *alerts]), bool(alerts)


def node_rows(study: Study, analysis: Analysis) -> list[list[str]]:
    """Return a row for each figure, with the columns HEADS."""
    rows = []
    for cell in analysis.cells:
        if cell.nodes is None:
            continue
        both = [estimate_text(cell.nodes.estimates[e]) for e in ESTIMANDS]
        if cell.nodes.without and analysis.nodes is not None:
            out = _nodes_text([one_line(n) for n in analysis.nodes.left_out])
            both = [
                f"{text}; without {out}: {estimate_text(cell.nodes.without[e])}"
                for text, e in zip(both, ESTIMANDS, strict=True)
            ]
        values = [value_text(v) for v in cell.nodes.values[:MOST_NODES]]
        more = len(cell.nodes.values) - MOST_NODES
        listed = ", ".join([*values, *([f"and {more} more"] if more > 0 else [])])
        alone = f"they disagree: {listed}" if cell.nodes.disagree else listed
        rows.append([_figure(study, cell), *both, alone])
    return rows
