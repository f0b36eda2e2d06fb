"""Finds the subject that measures a workload. All subjects, also those of other packages, are entry points of
the group nearmetal.subjects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .. import plugins
from ..environments import Backend
from ..errors import UnavailableError, UsageError
from ..model.study import Study, Workload
from .contract import Subject


def subject_of(workload: Workload) -> type[Subject]:
    """Return the subject that measures a workload.

    Raises UsageError if there is none, or if it does not load.
    """
    found: type[Subject] = plugins.load_class(plugins.SUBJECTS, workload.subject, "subject", UsageError)
    return found


def subjects_of(workloads: Sequence[Workload]) -> list[tuple[type[Subject], list[Workload]]]:
    """Return the subjects of these workloads in the order of their turns, each with its workloads in the
    study's order."""
    found: dict[type[Subject], list[Workload]] = {}
    for w in workloads:
        found.setdefault(subject_of(w), []).append(w)
    return sorted(found.items(), key=lambda pair: pair[0].order)


def without_unable(study: Study, backends: Mapping[str, Backend]) -> tuple[Study, list[str]]:
    """Remove workloads that cannot measure the instances of an environment. Returns the study and a sentence
    for each of them.

    An environment that has nothing left to run is removed.
    backends: by name.
    Raises UnavailableError if the first baseline has nothing left to run.
    """
    reasons: list[str] = []
    environments = []
    for e in study.environments:
        unable = {
            w.name: why
            for w in study.workloads
            if e.takes(w.name) and (why := subject_of(w).unable(w, backends[e.backend])) is not None
        }
        reasons += [f"{e.name} does not run {name}: {why}" for name, why in unable.items()]
        able = tuple(w.name for w in study.workloads if e.takes(w.name) and w.name not in unable)
        if able:
            environments.append(replace(e, workloads=able) if unable else e)
    first = study.design.baselines[0]
    if first not in {e.name for e in environments}:
        raise UnavailableError(f"the baseline {first} has nothing to run: {'; '.join(reasons)}")
    left = replace(study, environments=tuple(environments))
    return left.with_arms([arm.name for arm in left.arms()]), reasons
