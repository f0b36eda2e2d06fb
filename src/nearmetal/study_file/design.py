"""Read and check the design: baselines, numbers of blocks and primary metrics. Mistakes are added to
problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..model.keys import NAME, Key, did_you_mean
from ..model.study import Design, Study, Workload
from .catalog import Catalog
from .problems import Path, Problems
from .tree import MapNode, Node, mark_of
from .validate import validate
from .workloads.entries import metrics_of

if TYPE_CHECKING:
    from .sections.keyed import Section

#: Least number of blocks. With fewer there is no 95 % confidence interval: 2/2^n > 5 % for n < 6.
LEAST_BLOCKS = 6


BASELINE = Key(
    kind=NAME,
    doc="the environment that the others are compared with",
    examples=("native",),
    name="baseline",
    optional=True,
)
"""Key that may replace `baselines` if there is only one."""


def design_section() -> type[Section]:
    """Return the section with the keys of a design."""
    from .sections import section_of

    return section_of(Design, first={BASELINE.name: BASELINE})


def read_design(node: Node | None, seed: int | None, problems: Problems) -> Design | None:
    """Read the design of a study; None if it cannot be read.

    seed: seed if the file gives none.
    """
    if not isinstance(node, MapNode):
        return None
    from .sections import made

    path: Path = ("design",)
    section = validate(design_section(), node, path, problems)
    if section is None:
        return None
    one, several, own = (getattr(section, name) for name in ("baseline", "baselines", "seed"))
    if own is None and seed is None and (*path, "seed") not in problems.unread:
        problems.add(node.mark, path, "no seed; write seed: 1, or let the command draw one")
    names = tuple(several) if several is not None else () if one is None else (one,)
    out: Design = made(section, baselines=names, seed=own if own is not None else seed or 0)
    return out


def check_design(
    design: Design,
    node: MapNode,
    environments: Iterable[str],
    workloads: Mapping[str, Workload | None],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    """Check the baselines, the numbers of blocks and the primary metrics."""
    path: Path = ("design",)
    names = tuple(environments)
    given = [k for k in ("baseline", "baselines") if k in node.entries]
    read = [k for k in given if (*path, k) not in problems.unread]
    if len(read) > 1:
        problems.add(
            mark_of(node, ("baselines",), key=True), path, "baseline and baselines: one of them is enough"
        )
    elif not design.baselines and given == read:  # `baselines: null` means the same as no key
        problems.add(node.mark, path, f"no baseline; write baseline: {names[0] if names else 'native'}")
    for number, name in enumerate(design.baselines):
        at: Path = ("baselines", number) if "baselines" in read else ("baseline",)
        if name not in names:
            what = f'no environment is called "{name}"{did_you_mean(name, names)}'
            problems.add(mark_of(node, at), path + at, what)
    if len(set(design.baselines)) < len(design.baselines):
        problems.add(mark_of(node, ("baselines",)), (*path, "baselines"), "an environment given twice")
    if catalog is not None:
        _check_blocks(design, node, problems)
    _check_primary(design, node, workloads, catalog, problems)


def _check_blocks(design: Design, node: Node, problems: Problems) -> None:
    if any(("design", key) in problems.unread for key in ("min_blocks", "max_blocks")):
        return
    if design.max_blocks < LEAST_BLOCKS:
        what = f"{design.max_blocks} rounds give no interval; write 8 or more"
        problems.add(mark_of(node, ("max_blocks",)), ("design", "max_blocks"), what)
    elif design.max_blocks < design.min_blocks:
        least = design.min_blocks
        what = f"{design.max_blocks} is less than min_blocks, {least}: there would be no verdict"
        problems.add(mark_of(node, ("max_blocks",)), ("design", "max_blocks"), what)


def _check_primary(
    design: Design,
    node: Node,
    workloads: Mapping[str, Workload | None],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    seen: set[str] = set()
    for number, text in enumerate(design.primary):
        at: Path = ("primary", number)
        name, dot, metric = text.partition(".")
        what = ""
        if not dot or not metric:
            what = f'"{text[:60]}": write workload.metric, such as cg.rate'
        elif text in seen:
            what = f'"{text[:60]}" given twice'
        elif name not in workloads:
            what = f'no workload is called "{name[:60]}"{did_you_mean(name, workloads)}'
        else:
            workload = workloads[name]
            known = metrics_of(workload, catalog) if workload is not None else ()
            if known and metric not in known:
                what = f'workload "{name}" has no metric "{metric[:60]}"{did_you_mean(metric, known)}'
        seen.add(text)
        if what:
            problems.add(mark_of(node, at), ("design", *at), what)


def check_arms(frame: Study, by_method: Study, root: MapNode, problems: Problems) -> None:
    """Check that every arm is compared with a baseline, and that every baseline is used in a comparison.

    frame: the study; its workloads may be missing.
    by_method: the same with an environment for each method that its workloads compare.
    """
    first, *further = frame.design.baselines
    for arm in frame.arms():
        if arm.environment.name != first and frame.baseline_arm(first, arm) is None:
            at: Path = ("environments", arm.environment.name, "placements")
            what = (
                f'"{arm.placement.name}" has {arm.placement.ranks} ranks, and the baseline "{first}" '
                "has no placement with as many; there is nothing to compare it with"
            )
            problems.add(mark_of(root, at), at, what)
    used = {c.baseline for c in by_method.comparisons()}
    own = {a.name: a.environment.name for a in by_method.arms()}
    for number, name in enumerate(further, 1):
        if by_method.design.baselines[number] not in {own[u] for u in used}:
            at = ("design", "baselines", number)
            other = "no other environment has as many ranks and the same transport"
            what = f'nothing is compared with "{name}": {other}'
            problems.add(mark_of(root, at), at, what)
