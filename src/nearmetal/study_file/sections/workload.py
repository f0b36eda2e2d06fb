"""The sections of workloads: the keys that their dataclasses declare, and those of sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, Field

from ...model.keys import Key, one_word
from ...model.study import ApplicationWorkload, CommandWorkload, EventSubject, KernelWorkload
from ..catalog import subject_names
from ..workloads.entries import SUBJECT
from ..workloads.methods import METHODS, METHODS_KEY
from ..workloads.npb import NpbBinary, NpbEntry
from .keyed import section_of

_SUBJECT = Key(
    kind=one_word(subject_names()),
    doc="start: from the request to the first instruction in the last instance; stop: from the"
    " request to the end of the first process of the last one; exec: from the request to the first"
    " instruction of a command in a running instance; density: how long idle instances take to start"
    " all at once, and the memory of each; checkpoint: an instance is written to files and restored;"
    " migrate: a running instance moves to another place",
    examples=("start",),
    name=SUBJECT,
)


def _sweeps(matrix: Mapping[str, Any], together: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields of the model for the keys `matrix` and `zip`, with an example of each."""
    words = "one workload for every {}, named after its values: cg-S, cg-W"
    return {
        name: (
            dict[str, list[Any]] | None,
            Field(None, description=words.format(varied), examples=[example]),
        )
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
EventSection = section_of(
    EventSubject,
    first={SUBJECT: _SUBJECT, METHODS: METHODS_KEY},
    last=_sweeps({"count": [1, 10, 100]}, {"count": [1, 10]}),
)
# Made before the section that contains it, which takes it with the keys of sweeps.
section_of(
    NpbBinary,
    last=_sweeps({"benchmark": ["cg", "lu"]}, {"benchmark": ["cg", "lu"], "class": ["B", "A"]}),
)
NpbWorkloadSection = section_of(NpbEntry)
