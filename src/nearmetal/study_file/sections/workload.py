"""The sections of workloads: the keys that their dataclasses declare, and those of sweeps."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import ConfigDict, Field

from ...errors import UsageError
from ...model.keys import Key, one_word
from ...model.study import ApplicationWorkload, CommandWorkload, EventSubject, KernelWorkload
from ..catalog import subject_facts, subject_names
from ..workloads.entries import SUBJECT
from ..workloads.methods import METHODS, METHODS_KEY
from ..workloads.npb import NpbBinary, NpbEntry
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


def _sweeps(matrix: Mapping[str, Any], together: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields of the model for the keys `matrix` and `zip`, with an example of each."""
    words = "one workload for every {}, named after its values: cg-S, cg-W"
    return {
        name: (dict[str, list[Any]] | None, Field(None, description=words.format(varied), examples=[example]))
        for name, varied, example in (
            ("matrix", "combination of values", matrix),
            ("zip", "row of values, lists of equal length", together),
        )
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
    subject = Key(kind=one_word(subject_names()), doc=_subject_doc(), examples=("start",), name=SUBJECT)
    return section_of(
        EventSubject,
        first={SUBJECT: subject, METHODS: METHODS_KEY},
        last=_sweeps({"count": [1, 10, 100]}, {"count": [1, 10]}),
    )


# Made before the section that contains it, which takes it with the keys of sweeps.
section_of(
    NpbBinary, last=_sweeps({"benchmark": ["cg", "lu"]}, {"benchmark": ["cg", "lu"], "class": ["B", "A"]})
)
NpbWorkloadSection = section_of(NpbEntry)
