"""Workloads that compare methods: every environment that runs one becomes an environment for each method."""

from __future__ import annotations

from dataclasses import replace

from ...lifecycle import Method
from ...model.study import Environment, LifecycleSubject, Study
from ..tree import ListNode, Located, MapNode
from .sweep import MATRIX

METHOD, METHODS = "method", "methods"


def with_methods_apart(entry: Located) -> Located:
    """Move `method` from the matrix of a subject to the key `methods`. The workloads of a sweep are not
    compared with each other, but methods are."""
    node, sweep = entry.node, entry.get(MATRIX)
    if not isinstance(node, MapNode) or "subject" not in node.entries:
        return entry
    matrix = None if sweep is None else sweep.node
    if not isinstance(matrix, MapNode) or METHOD not in matrix.entries:
        return entry
    mark, values = matrix.entries[METHOD]
    if not isinstance(values, ListNode):
        return entry
    rest = {key: found for key, found in matrix.entries.items() if key != METHOD}
    entries = {key: found for key, found in node.entries.items() if key != MATRIX}
    if rest:
        entries[MATRIX] = (node.entries[MATRIX][0], MapNode(mark=matrix.mark, entries=rest))
    if METHODS in entries:
        entry.mistake((MATRIX, METHOD), f"given as {METHODS} too", key=True)
    return replace(entry, node=MapNode(mark=node.mark, entries={METHODS: (mark, values)} | entries))


def by_method(study: Study) -> Study:
    """Replace every environment that runs a workload with methods by one environment for each method. The new
    environment runs the workloads that have its method, and those without methods. The workloads then have
    no methods.

    If the replaced environment was a baseline, the environment of its first method becomes the baseline.
    """
    methods = {w.name: w.methods for w in study.lifecycles if w.methods}
    environments: list[Environment] = []
    first: dict[str, str] = {}
    for e in study.environments:
        compared = compared_methods(e, study.lifecycles)
        for method in compared:
            taken = tuple(
                w.name
                for w in study.workloads
                if e.takes(w.name) and (w.name not in methods or method in methods[w.name])
            )
            workloads = () if len(taken) == len(study.workloads) else taken
            environments.append(replace(e, name=f"{e.name}-{method}", method=method, workloads=workloads))
            first.setdefault(e.name, environments[-1].name)
        if not compared:
            environments.append(e)
    baselines = tuple(first.get(b, b) for b in study.design.baselines)
    plain = {w.name: replace(w, methods=()) for w in study.lifecycles}
    without = tuple(plain.get(w.name, w) for w in study.workloads)
    design = replace(study.design, baselines=baselines)
    return replace(study, environments=tuple(environments), workloads=without, design=design)


def compared_methods(environment: Environment, workloads: tuple[LifecycleSubject, ...]) -> tuple[Method, ...]:
    """Return the methods of the workloads that an environment runs, without repetition; none if it has a
    method of its own."""
    if environment.method is not None:
        return ()
    return tuple(dict.fromkeys(m for w in workloads if environment.takes(w.name) for m in w.methods))


def check_methods(study: Study, top: Located) -> None:
    """Check the environments that will be replaced by one environment per method: the new names must be free,
    and no other environment may run inside a replaced one."""
    names = {e.name for e in study.environments}
    around = {e.inside: e.name for e in study.environments if e.inside is not None}
    for e in study.environments:
        for method in compared_methods(e, study.lifecycles):
            what = ""
            if f"{e.name}-{method}" in names:
                what = f'"{e.name}-{method}" is the environment that {METHODS} of a workload make; rename one'
            elif e.name in around:
                what = f'"{around[e.name]}" runs inside it, so it cannot become one for each of {METHODS}'
            if what:
                top.mistake(("environments", e.name), what, key=True)
