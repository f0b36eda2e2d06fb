"""Finds the subject that measures a workload. All subjects, also those of other packages, are entry points of
the group nearmetal.subjects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .. import plugins
from ..environments import Backend
from ..errors import UnavailableError, UsageError
from ..host import Host
from ..lifecycle import Method
from ..model.study import Environment, LifecycleSubject, Study, Workload
from .contract import Subject


def subject_of(workload: Workload) -> type[Subject]:
    """Return the subject that measures a workload.

    Raises UsageError if no installed subject does, or if it cannot be loaded.
    """
    found: type[Subject] = plugins.load_class(plugins.SUBJECTS, workload.subject, "subject", UsageError)
    return found


def subjects_of(workloads: Sequence[Workload]) -> list[tuple[type[Subject], list[Workload]]]:
    """Return the subjects of these workloads in the order in which they run (Subject.order), each with its
    workloads in the given order."""
    found: dict[type[Subject], list[Workload]] = {}
    for w in workloads:
        found.setdefault(subject_of(w), []).append(w)
    return sorted(found.items(), key=lambda pair: pair[0].order)


def by_environment(workload: Workload, environment: Environment) -> Workload:
    return workload.by(environment.method) if isinstance(workload, LifecycleSubject) else workload


def methods_of(study: Study, backends: Mapping[str, Backend]) -> tuple[Method, ...]:
    """Return the methods by which a study moves or checkpoints instances: those that it names, the default
    ones, and those among which AUTO chooses.

    backends: backends by name; environments with another backend are left out.
    """
    found: dict[Method, None] = {}
    for w in study.lifecycles:
        subject = subject_of(w)
        for e in study.environments:
            if e.takes(w.name) and e.backend in backends:
                method = subject.method(w.by(e.method), backends[e.backend])
                every = subject.methods(backends[e.backend]) if method is Method.AUTO else (method,)
                found |= dict.fromkeys(m for m in every if m is not None)
    return tuple(found)


def _reason(workload: Workload, environment: Environment, backend: Backend, host: Host | None) -> str | None:
    """Return why an environment cannot run a workload; None if it can."""
    subject = subject_of(workload)
    if (why := subject.unable(workload, backend)) is not None or host is None:
        return why
    refused = subject.refused(workload, environment, backend, host)
    return None if refused is None else f"{refused.reason}; {refused.remedy}"


def without_unable(
    study: Study, backends: Mapping[str, Backend], host: Host | None = None
) -> tuple[Study, dict[str, str]]:
    """Remove from each environment the workloads that cannot measure its instances.

    An environment is removed if it has no workload left. An environment with a method of its own is also
    removed if no workload is left that would use this method. A baseline that is removed is replaced by the
    next environment that differs from it only in the method.

    backends: backends by name.
    host: this machine; None to apply only the rules that hold on every machine.
    Return the reduced study, and the reasons by name of the environment.
    Raises UnavailableError if the first baseline has nothing left to run, and nothing replaces it.
    """
    reasons: dict[str, str] = {}
    left: dict[str, tuple[str, ...]] = {}
    for e in study.environments:
        taken = [w for w in study.workloads if e.takes(w.name)]
        unable = {
            w.name: why
            for w in taken
            if (why := _reason(by_environment(w, e), e, backends[e.backend], host)) is not None
        }
        moved = {w.name for w in taken if by_environment(w, e) != w}
        able = tuple(w.name for w in taken if w.name not in unable)
        if able and not (moved and moved <= unable.keys()):
            left[e.name] = able if unable else e.workloads
            if unable:
                reasons[e.name] = "; ".join(f"does not run {name}: {why}" for name, why in unable.items())
        else:
            reasons[e.name] = "; ".join(dict.fromkeys(unable.values()))
    arms = [arm.name for arm in study.arms() if arm.environment.name in left]
    first = study.design.baselines[0]
    alone = replace(study, design=replace(study.design, baselines=(first,))).with_arms(arms)
    if not alone.design.baselines:
        raise UnavailableError(f"the baseline {first} has nothing to run: {reasons[first]}")
    kept = study.with_arms(arms)
    environments = tuple(replace(e, workloads=left[e.name]) for e in kept.environments)
    return replace(kept, environments=environments), reasons
