"""The subjects that study files name: entry points of the group nearmetal.subjects."""

from __future__ import annotations

from .. import plugins
from ..errors import UsageError
from ..model.study import SubjectFacts


def subject_names() -> tuple[str, ...]:
    """In order of the alphabet; loads none."""
    return tuple(plugins.points(plugins.SUBJECTS))


def subject_facts(name: str) -> SubjectFacts:
    """What a subject says of itself. Raises UsageError if there is none of that name, or it does not load."""
    found = plugins.load_class(plugins.SUBJECTS, name, "subject", UsageError)
    facts: SubjectFacts = next(facts for facts in found.facts if facts.name == name)
    return facts
