"""The sections of workloads: the keys that their dataclasses declare, and those of sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import ConfigDict, Field

from ...errors import UsageError
from ...model.keys import Key, keys_of, one_word
from ...model.study import ApplicationWorkload, CommandWorkload, EventSubject, KernelWorkload, SubjectFacts
from ..catalog import FACTS, loaded_subjects, subject_facts, subject_names
from ..workloads.npb import NpbBinary, NpbEntry
from ..workloads.sweep import SWEEPS
from .keyed import Section, section_of


def _require_one_meaning(subjects: Sequence[SubjectFacts]) -> None:
    """Raise UsageError if two subjects declare the same key differently."""
    known: dict[str, tuple[str, Key]] = {}
    for facts in subjects:
        for _, key in keys_of(facts.workload):
            other, found = known.setdefault(key.name, (facts.name, key))
            if found != key:
                raise UsageError(
                    f"the subjects {other} and {facts.name} declare the key {key.name} differently",
                    remedy="rename it in one of them, or uninstall the package",
                )


def _sweeps(*examples: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields of the model for the keys of sweeps, with an example of each."""
    words = "one workload for every {}, named after its values: cg-S, cg-W"
    return {
        name: (dict[str, list[Any]] | None, Field(None, description=words.format(varied), examples=[example]))
        for (name, varied), example in zip(SWEEPS.items(), examples, strict=True)
    }


_OWN_PARAMETERS = ConfigDict(extra="allow")  # the keys of sweeps are at the same level as the other keys
_KERNEL_SWEEPS = _sweeps({"class": ["S", "W"]}, {"class": ["S", "W"], "iterations": [15, 5]})

KernelSection = section_of(KernelWorkload, last=_KERNEL_SWEEPS, config=_OWN_PARAMETERS)
ApplicationSection = section_of(
    ApplicationWorkload,
    last=_sweeps({"block": ["4 KiB", "1 MiB"]}, {"n": [1000, 2000]}),
    config=_OWN_PARAMETERS,
)
CommandSection = section_of(
    CommandWorkload,
    config=ConfigDict(json_schema_extra={"anyOf": [{"required": ["command"]}, {"required": ["script"]}]}),
)


@cache
def event_section() -> type[Section]:
    """Return the section of workloads with a subject. Loads all subjects, since each documents its event and
    declares its keys.

    Raises UsageError if two subjects declare the same key differently.
    """
    subjects = loaded_subjects()
    _require_one_meaning(subjects)
    declared = {f.name: key for f, key in keys_of(EventSubject)}
    docs = "; ".join(f"{facts.name}: {facts.doc}" for facts in subjects if facts.doc)
    counts = [f"{s.name}: {s.counted}, {s.usual} if omitted" for s in subjects if s.counted]
    subject = replace(declared[FACTS], kind=one_word(subject_names(), subject_facts), doc=docs)
    count = replace(declared["count"], doc="; ".join((declared["count"].doc, *counts)))
    return section_of(
        EventSubject,
        also=tuple(dict.fromkeys(facts.workload for facts in subjects)),
        instead={FACTS: subject, "count": count},
        last=_sweeps({"count": [1, 10, 100]}, {"count": [1, 10]}),
    )


# Made before the section that contains it, which takes it with the keys of sweeps.
section_of(
    NpbBinary, last=_sweeps({"benchmark": ["cg", "lu"]}, {"benchmark": ["cg", "lu"], "class": ["B", "A"]})
)
NpbWorkloadSection = section_of(NpbEntry)
