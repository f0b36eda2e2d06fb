"""The subjects that study files name: entry points of the group nearmetal.subjects."""

from __future__ import annotations

from ... import plugins
from ...errors import UsageError
from ...model.study import SubjectFacts
from ...model.workloads.base import KERNELS, PROGRAMS


def subject_names() -> tuple[str, ...]:
    """Return the names of all subjects that a study file can name, in alphabetical order, without loading
    them."""
    return tuple(name for name in plugins.points(plugins.SUBJECTS) if name not in (KERNELS, PROGRAMS))


def subject_facts(name: str) -> SubjectFacts:
    """Return the facts that a subject declares about itself.

    Raises UsageError if there is none with this name, or if it does not load.
    """
    found = plugins.load_class(plugins.SUBJECTS, name, "subject", UsageError)
    facts: SubjectFacts = next(facts for facts in found.facts if facts.name == name)
    return facts
