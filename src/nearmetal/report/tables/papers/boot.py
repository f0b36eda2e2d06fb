"""Boot times of guests by step. The node's own records of its boots, and the boot times that papers printed,
are shown beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

from ....model.papers.published import Published, PublishedFigure, Quantity
from ....model.record import START, STEP, JsonValue, TrialRecord, section
from ....model.study import Study
from ....published import paper_keys, published
from ....study_file.environments.backends import capabilities_of
from ...record_index import RecordIndex
from ...sheet import Block, Grid, Leaf, Words
from ...text import one_line
from ..cells import side

HEADS = ("s", "minimum", "median", "maximum", "mean", "standard deviation", "n")
WHOLE, FIRST_COMMAND, READY = "first_instruction", "first_command", "agent"
_STEPS = {
    "prepare": "until the hypervisor was called",
    "program": "program of the hypervisor",
    "restore": "restore",
    "firmware": "firmware",
    "kernel": "kernel",
    "modules": "init: modules",
    "root": "init: root",
    "network": "network up",
    READY: "agent ready",
    WHOLE: "in all, until ready",
    FIRST_COMMAND: "first command",
}
_SEVERAL = (
    "If an environment has several guests, a workload of starts shows the sum of their seconds if they start "
    "one after the other, and the seconds of the last one to be ready if they start side by side. Other "
    "trials show their last guest."
)
_PHYSICAL = {"whole": "in all, as systemd reports for this boot"}


def boot_leaf(study: Study, records: RecordIndex, provenance: Mapping[str, JsonValue]) -> Leaf | None:
    """Return the section on boot times; None if no guest was booted."""
    blocks = boot_blocks(study, records)
    if not blocks:
        return None
    blocks += _physical(section(provenance, "boots"))
    papers = (published(key) for key in paper_keys())
    blocks += [b for paper in papers if paper is not None for b in printed_boots(paper, paper.figures)]
    return Leaf(key="boots", title="Boot times", blocks=tuple(blocks))


def boot_blocks(study: Study, records: RecordIndex) -> list[Block]:
    """Return a table of the steps of a start for each arm whose guests were booted; nothing if there are
    none."""
    blocks: list[Block] = []
    several = False
    for arm in study.arms():
        found = steps_of(records.trials(arm.name))
        if READY in found:
            several |= arm.placement.all_instances > 1
            blocks.append(
                Grid(
                    title=one_line(f"Start of {side(study, arm.name).title}"),
                    heads=HEADS,
                    rows=tuple(
                        _row(words, found[k])
                        for k, words in _steps(arm.environment.backend).items()
                        if k in found
                    ),
                    numbers=True,
                )
            )
    if several:
        blocks.append(Words(text=_SEVERAL, quiet=True))
    return blocks


def _steps(backend: str) -> dict[str, str]:
    """Return a description of each step of a start, in order. The steps of the backend follow the first."""
    can = capabilities_of(backend)
    own = {} if can is None else can.steps
    first, *others = _STEPS.items()
    return dict([first, *own.items(), *(step for step in others if step[0] not in own)])


def steps_of(trials: Sequence[TrialRecord]) -> dict[str, list[float]]:
    """Return the duration of each step of all recorded starts, in seconds, by step.

    If starting the instance was the workload of a trial, all its starts are returned, else the last start of
    the trial.
    """
    out: dict[str, list[float]] = {}
    for t in trials:
        steps = {k.removeprefix(START): v for k, v in t.phases.items() if k.startswith(START)}
        row = next((r for r in t.rows if r.metric == "start" and READY in _parts(r.parts)), None)
        if row is not None:
            for name, values in {**_parts(row.parts), WHOLE: row.values}.items():
                out.setdefault(name, []).extend(values)
            steps = {k: v for k, v in steps.items() if k == FIRST_COMMAND}
        for name, value in steps.items():
            out.setdefault(name, []).append(value)
    return out


def _parts(parts: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    return {k.removeprefix(STEP): v for k, v in parts.items() if k.startswith(STEP)}


def _row(what: str, values: Sequence[float]) -> tuple[str, ...]:
    spread = f"{stdev(values):.3g}" if len(values) > 1 else "not known"
    middle = (min(values), median(values), max(values), fmean(values))
    return (what, *(f"{v:.4g}" for v in middle), spread, str(len(values)))


def _physical(boots: Mapping[str, JsonValue]) -> list[Block]:
    """Return the table of this node's own boots."""
    rows = [
        _row(_PHYSICAL.get(name, one_line(name)), [float(value)])
        for name, value in section(boots, "phases").items()
        if isinstance(value, int | float)
    ]
    reboots = boots.get("reboots")
    gaps = [float(g) for g in reboots if isinstance(g, int | float)] if isinstance(reboots, list) else []
    if gaps:
        rows.append(_row(f"physical reboot, by its {boots.get('source')}", gaps))
    out: list[Block] = []
    if rows:
        out.append(Grid(title="This node itself", heads=HEADS, rows=tuple(rows), numbers=True))
    absent = section(boots, "absent")
    if absent:
        reasons = "; ".join(one_line(f"{name}: {why}") for name, why in absent.items())
        out.append(Words(text=f"Records of this node's own boots that are absent: {reasons}.", quiet=True))
    return out


def printed_boots(paper: Published, shown: Sequence[PublishedFigure]) -> list[Block]:
    """Return the boot times among the figures of a paper as a table; nothing if there are none."""
    figures = [f for f in shown if f.quantity is Quantity.BOOT]
    rows: dict[str, dict[str, str]] = {}
    for f in figures:
        rows.setdefault(f.arm, {})[f.phase.partition(".")[2]] = f"{f.low:g}"
    if not rows:
        return []
    names = HEADS[1:-1]
    one = figures[0]
    return [
        Grid(
            title=f"As printed in {paper.paper.year}: {one.source}",
            heads=HEADS[:-1],
            rows=tuple((arm, *(steps.get(n, "") for n in names)) for arm, steps in rows.items()),
            numbers=True,
        ),
        Words(
            text=f"{paper.paper.authors}: {paper.paper.title}. {paper.paper.setting}. "
            f"Differs: {one.differs}.",
            quiet=True,
        ),
    ]
