"""Read and check the design: baselines, numbers of blocks and primary metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath

from ..model.inventory import is_service
from ..model.keys import did_you_mean
from ..model.study import Design, RealNodes, Study, Workload
from .catalog import Catalog
from .problems import Path
from .tree import Located, mark_of
from .validate import validate
from .workloads.entries import metrics_of

#: Least number of blocks. With fewer there is no 95 % confidence interval: 2/2^n > 5 % for n < 6.
LEAST_BLOCKS = 6


def read_design(found: Located, seed: int | None) -> Design | None:
    """Read the design of a study; None if it cannot be read.

    seed: seed if the file gives none.
    """
    from .sections import made, section_of

    section = validate(section_of(Design), found)
    if section is None:
        return None
    own = vars(section)["seed"]
    if own is None and seed is None and not found.unread("seed"):
        found.mistake((), "no seed; write seed: 1, or let the command draw one")
    out: Design = made(section, seed=own if own is not None else seed or 0)
    return out if out.nodes is None else replace(out, nodes=_with_absolute_path(out.nodes))


def _with_absolute_path(nodes: RealNodes) -> RealNodes:
    """Return the machines of a study; the path of their inventory is made absolute if that is a file, since a
    run may be resumed from another directory."""
    file = FilePath(nodes.inventory)
    if is_service(nodes.inventory) and not file.exists():
        return nodes
    return replace(nodes, inventory=str(file.absolute()))


def check_design(
    design: Design,
    found: Located,
    environments: Iterable[str],
    workloads: Mapping[str, Workload | None],
    catalog: Catalog | None,
) -> None:
    """Check the baselines, the numbers of blocks and the primary metrics."""
    names = tuple(environments)
    given = [k for k in ("baseline", "baselines") if k in found.entries]
    read = [k for k in given if not found.unread(k)]
    if len(read) > 1:
        mark = mark_of(found.node, ("baselines",), key=True)
        found.problems.add(mark, found.path, "baseline and baselines: one of them is enough")
    elif not design.baselines and given == read:  # `baselines: null` means the same as no key
        found.mistake((), f"no baseline; write baseline: {names[0] if names else 'native'}")
    for number, name in enumerate(design.baselines):
        at: Path = ("baselines", number) if "baselines" in read else ("baseline",)
        if name not in names:
            found.mistake(at, f'no environment is called "{name}"{did_you_mean(name, names)}')
    if len(set(design.baselines)) < len(design.baselines):
        found.mistake(("baselines",), "an environment given twice")
    if catalog is not None:
        _check_blocks(design, found)
    _check_primary(design, found, workloads, catalog)


def _check_blocks(design: Design, found: Located) -> None:
    if found.unread("min_blocks") or found.unread("max_blocks"):
        return
    if design.max_blocks < LEAST_BLOCKS:
        found.mistake(("max_blocks",), f"{design.max_blocks} rounds give no interval; write 8 or more")
    elif design.max_blocks < design.min_blocks:
        least = design.min_blocks
        what = f"{design.max_blocks} is less than min_blocks, {least}: there would be no verdict"
        found.mistake(("max_blocks",), what)


def _check_primary(
    design: Design, found: Located, workloads: Mapping[str, Workload | None], catalog: Catalog | None
) -> None:
    seen: set[str] = set()
    for number, text in enumerate(design.primary):
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
            found.mistake(("primary", number), what)


def check_arms(frame: Study, by_method: Study, top: Located) -> None:
    """Check that every arm is compared with a baseline, and that every baseline is used in a comparison.

    frame: the study; its workloads may be missing.
    by_method: the study after workloads.methods.by_method().
    """
    first, *further = frame.design.baselines
    for arm in frame.arms():
        if arm.environment.name != first and frame.baseline_arm(first, arm) is None:
            what = (
                f'"{arm.placement.name}" has {arm.placement.ranks} ranks, and the baseline "{first}" '
                "has no placement with as many; there is nothing to compare it with"
            )
            top.mistake(("environments", arm.environment.name, "placements"), what)
    used = {c.baseline for c in by_method.comparisons()}
    own = {a.name: a.environment.name for a in by_method.arms()}
    for number, name in enumerate(further, 1):
        if by_method.design.baselines[number] not in {own[u] for u in used}:
            other = "no other environment has as many ranks and the same transport"
            top.mistake(("design", "baselines", number), f'nothing is compared with "{name}": {other}')
