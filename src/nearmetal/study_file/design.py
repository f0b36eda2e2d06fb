"""The design: baselines, numbers of blocks and primary metrics that must fit. Adds to problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..model.keys import did_you_mean
from ..model.study import Study, Workload
from .catalog import Catalog
from .problems import Path, Problems
from .tree import MapNode, Node, mark_of
from .validate import broken
from .workloads import metrics_of

if TYPE_CHECKING:
    from .sections import DesignSection

#: Fewer blocks have no 95 % interval at all: 2/2^n > 5 % for n < 6.
LEAST_BLOCKS = 6


def check_design(
    section: DesignSection,
    node: Node,
    environments: Iterable[str],
    workloads: Mapping[str, Workload | None],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    """Baselines, numbers of blocks and primary metrics."""
    path: Path = ("design",)
    names = tuple(environments)
    if section.baseline is not None and section.baselines is not None:
        problems.add(
            mark_of(node, ("baselines",), key=True), path, "baseline and baselines: one of them is enough"
        )
    elif not baselines_of(section) and not any(broken(section, node, k) for k in ("baseline", "baselines")):
        problems.add(node.mark, path, f"no baseline; write baseline: {names[0] if names else 'native'}")
    for at, name in baselines_of(section):
        if name not in names:
            what = f'no environment is called "{name}"{did_you_mean(name, names)}'
            problems.add(mark_of(node, at), path + at, what)
    if section.baselines is not None and len(set(section.baselines)) < len(section.baselines):
        problems.add(mark_of(node, ("baselines",)), (*path, "baselines"), "an environment given twice")
    if catalog is not None:
        _check_blocks(section, node, problems)
    _check_primary(section, node, workloads, catalog, problems)


def baselines_of(section: DesignSection) -> tuple[tuple[Path, str], ...]:
    """Each baseline with where it stands below `design`."""
    if section.baselines is not None:
        return tuple((("baselines", i), name) for i, name in enumerate(section.baselines))
    return ((("baseline",), section.baseline),) if section.baseline is not None else ()


def _check_blocks(section: DesignSection, node: Node, problems: Problems) -> None:
    if any(broken(section, node, key) for key in ("min_blocks", "max_blocks")):
        return
    if section.max_blocks < LEAST_BLOCKS:
        what = f"{section.max_blocks} blocks carry no interval; write 8 or more"
        problems.add(mark_of(node, ("max_blocks",)), ("design", "max_blocks"), what)
    elif section.max_blocks < section.min_blocks:
        least = section.min_blocks
        what = f"{section.max_blocks} is less than min_blocks, {least}: there would be no verdict"
        problems.add(mark_of(node, ("max_blocks",)), ("design", "max_blocks"), what)


def _check_primary(
    section: DesignSection,
    node: Node,
    workloads: Mapping[str, Workload | None],
    catalog: Catalog | None,
    problems: Problems,
) -> None:
    seen: set[str] = set()
    for number, text in enumerate(section.primary):
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


def check_arms(frame: Study, root: MapNode, problems: Problems) -> None:
    """Every arm has something to be compared with, and every baseline something that is compared with it.

    frame: the study, its workloads may be missing.
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
    used = {c.baseline for c in frame.comparisons()}
    own = {a.name: a.environment.name for a in frame.arms()}
    for number, name in enumerate(further, 1):
        if name not in {own[u] for u in used}:
            at = ("design", "baselines", number)
            what = f'nothing is compared with "{name}": no other arm has as many ranks and the same transport'
            problems.add(mark_of(root, at), at, what)
