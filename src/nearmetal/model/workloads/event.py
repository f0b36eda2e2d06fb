"""Events of the instances themselves, as workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..design import Design, Mode
from ..keys import COUNT, ValueType, key, key_or, keys_of, scalar
from .base import WorkloadBase

#: Starts, stops or commands in a block, if the study does not state a number.
USUAL_EVENTS = 8


@dataclass(frozen=True, kw_only=True)
class SubjectFacts:
    """Declarations of a subject that measures events of instances; see subjects.contract.

    name: name in study files.
    doc: what the event is, in one line of the documentation of the key `subject`; empty for none.
    event: the event with its article, as in 'Which is fastest at a move?'; the name if empty.
    metrics: names of its metrics.
    quantiles: the metrics for which quantiles are shown, with a chart of the distribution.
    plurals: plural noun of the events whose times a metric gives, as in 'Share of starts'; 'events' for a
        metric that is missing.
    usual: default number of events or instances in a block. None: the number of slices of a kernel or, in
        plain trials, the number of runs of a program.
    floor_group: group in the noise floor; the name if empty.
    counted: what the key `count` counts, as in 'how many idle instances', if not how often the event takes
        place.
    workload: the class of its workloads. A subject with keys of its own derives one from EventSubject, and
        declares each key at its field, with a default (model.keys).
    """

    name: str
    doc: str = ""
    event: str = ""
    metrics: tuple[str, ...]
    quantiles: frozenset[str] = frozenset()
    plurals: Mapping[str, str] = field(default_factory=dict)
    usual: int | None = None
    floor_group: str = ""
    counted: str = ""
    workload: type[EventSubject] = field(default_factory=lambda: EventSubject)


_SUBJECT = ValueType(scalar, {}, lambda facts: str(facts.name))
"""The name of a subject. The module study_file finds the installed subjects: it reads the name, and documents
them."""


@dataclass(frozen=True, kw_only=True)
class EventSubject(WorkloadBase):
    """Events of the instances themselves, measured by a subject.

    facts: declarations of its subject.
    count: how many events or instances; None for the usual number.
    """

    event: ClassVar[bool] = True

    name: str
    facts: SubjectFacts = field(metadata=key(_SUBJECT, "", "start", name="subject"))
    count: int | None = key_or(
        None,
        COUNT,
        "how often in each round, as many times as slices (in mode plain: runs) if omitted",
        20,
    )

    @property
    def mpi(self) -> bool:
        return False

    @property
    def subject(self) -> str:
        return self.facts.name

    @property
    def floor_group(self) -> str:
        return self.facts.floor_group or self.facts.name

    @property
    def ran(self) -> str:
        return self.facts.name

    @property
    def quantiles(self) -> frozenset[str]:
        return self.facts.quantiles

    @property
    def misfit(self) -> tuple[str, str] | None:
        """The first key whose value contradicts that of another key, and the contradiction as text; None if
        there is none."""
        return None

    def processes(self, ranks: int) -> int:
        """Return 0, since it starts no processes of its own."""
        return 0

    def count_in(self, design: Design) -> int:
        """Return how many events or instances there are in a block."""
        if self.count is not None:
            return self.count
        if self.facts.usual is not None:
            return self.facts.usual
        return (design.slices or USUAL_EVENTS) if design.mode is Mode.SLICES else design.runs


def own_keys(kind: type[EventSubject]) -> tuple[str, ...]:
    """Return the names of the fields for the keys that only the workloads of some subjects have."""
    shared = {f.name for f, _ in keys_of(EventSubject)}
    return tuple(f.name for f, _ in keys_of(kind) if f.name not in shared)
