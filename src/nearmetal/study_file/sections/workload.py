"""The sections of workloads: the keys that their dataclasses declare, and those of sweeps."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import ConfigDict, Field

from ...errors import UsageError
from ...model.keys import keys_of, one_word
from ...model.study import ApplicationWorkload, CommandWorkload, EventSubject, KernelWorkload
from ..catalog import subject_facts, subject_names
from ..workloads.npb import NpbBinary, NpbEntry
from ..workloads.sweep import SWEEPS
from .keyed import Section, section_of


def _subject_doc() -> str:
    """Return what each subject says about its event. Subjects of other packages that cannot be loaded are
    left out."""
    found = []
    for name in subject_names():
        with contextlib.suppress(UsageError):
            if doc := subject_facts(name).doc:
                found.append(f"{name}: {doc}")
    return "; ".join(found)


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
    """Return the section of workloads with a subject. Loads all subjects, since each documents its event."""
    (declared,) = (key for f, key in keys_of(EventSubject) if f.name == "facts")
    subject = replace(declared, kind=one_word(subject_names(), subject_facts), doc=_subject_doc())
    return section_of(
        EventSubject,
        instead={"facts": subject},
        last=_sweeps({"count": [1, 10, 100]}, {"count": [1, 10]}),
    )


# Made before the section that contains it, which takes it with the keys of sweeps.
section_of(
    NpbBinary, last=_sweeps({"benchmark": ["cg", "lu"]}, {"benchmark": ["cg", "lu"], "class": ["B", "A"]})
)
NpbWorkloadSection = section_of(NpbEntry)
