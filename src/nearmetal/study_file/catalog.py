"""The names that a study may use: backends, kernels with their parameters, applications and metrics. The
packages that call this one provide them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .. import plugins
from ..errors import UsageError
from ..model.environments.image import ImageDefinition
from ..model.keys import alternatives, did_you_mean
from ..model.study import ApplicationWorkload, Study, SubjectFacts
from ..model.workloads.base import KERNELS, PROGRAMS
from ..units import BASE, EXAMPLES, Dimension, UnitError, exact, parse, parse_count, parse_size, pattern

#: The key in Catalog.metrics under which the metrics of every command are.
COMMAND = "command"
#: The field for what the subject of a workload declares.
FACTS = "facts"
#: The type of a parameter that takes any text, such as a path.
TEXT = "text"
ParamValue = str | int | float


@dataclass(frozen=True, kw_only=True)
class KnownApplication:
    """The keys and rules of an application in study files.

    parameters: (type, documentation) of each parameter, by name; types as in Catalog.
    misfit: given a parameter and a value of the right type, returns why the value is not accepted, or None.
    metrics: returns the names of the metrics of a workload whose keys have no mistakes.
    misplaced: returns why such a workload cannot run on arms of the study, one text for each cause.
    needs_storage: returns whether the environments of such a workload must have storage.
    """

    parameters: Mapping[str, tuple[str, str]]
    misfit: Callable[[str, ParamValue], str | None]
    metrics: Callable[[ApplicationWorkload], tuple[str, ...]]
    misplaced: Callable[[ApplicationWorkload, Study], tuple[str, ...]]
    needs_storage: Callable[[ApplicationWorkload], bool]


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The names that study files may use.

    The type of a parameter is a list of alternatives separated by '|'. An alternative is a dimension
    ('count', 'size', 'time', 'share', 'rate'), 'text', or a literal word. Examples: 'size', 'count | auto',
    'S | W | A | B'.

    backends: names of the entry points.
    kernels: (type, documentation) of each parameter, by kernel and parameter.
    metrics: names of the metrics, by kernel and COMMAND. A kernel that is missing here may have any metric.
    writers: kernels that need storage.
    applications: applications by name.
    misfit: given a kernel, a parameter and a value of the right type, returns why the value is not accepted,
        or None.
    no_image: given the name of an image, the study's own definitions and the file of the study, returns why
        no instance can use the image, or None.
    """

    backends: tuple[str, ...]
    kernels: Mapping[str, Mapping[str, tuple[str, str]]]
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    writers: frozenset[str] = frozenset()
    applications: Mapping[str, KnownApplication] = field(default_factory=dict)
    misfit: Callable[[str, str, ParamValue], str | None] = lambda _kernel, _name, _value: None
    no_image: Callable[[str, Mapping[str, ImageDefinition], str], str | None] = lambda _name, _own, _file: (
        None
    )


@dataclass(frozen=True, kw_only=True)
class ParamType:
    """The type of a parameter, parsed from its text in a Catalog.

    dimension: dimension of its numbers; None if it accepts no numbers.
    words: the literal words that it accepts.
    text: whether it accepts any text.
    """

    dimension: Dimension | None
    words: tuple[str, ...]
    text: bool = False

    @classmethod
    def of(cls, text: str) -> ParamType:
        """Parse a type such as 'count | auto'."""
        parts = [p.strip() for p in text.split("|")]
        known = {d.value: d for d in Dimension}
        found = [known[p] for p in parts if p in known]
        words = tuple(p for p in parts if p not in known and p != TEXT)
        return cls(dimension=found[0] if found else None, words=words, text=TEXT in parts)

    def read(self, text: str) -> ParamValue:
        """Return the value of a text: a number in base units, or the text itself.

        Raises UnitError if the text is not accepted.
        """
        if text in self.words or self.text:
            return text
        if self.dimension is None:
            raise UnitError(f'unknown value "{text[:40]}"{did_you_mean(text, self.words)}')
        if not any(c.isdigit() for c in text) and self.words:
            hint = did_you_mean(text, self.words, also=self.examples[0])
            raise UnitError(f'"{text[:40]}" is not a {self.dimension}{hint}')
        value: int | float
        if self.dimension is Dimension.COUNT:
            value = parse_count(text)
        elif self.dimension is Dimension.SIZE:
            value = parse_size(text)
        else:
            value = parse(text, self.dimension)
        may_be_zero = self.dimension in (Dimension.SIZE, Dimension.RATE)  # an empty message; no fixed rate
        if value < 0 or (value == 0 and not may_be_zero):
            raise UnitError(f'"{text[:40]}" is not above zero')
        return value

    def write(self, value: ParamValue) -> str:
        """Return the text for a value; read() converts it back to exactly this value."""
        if isinstance(value, str) or self.dimension is None:
            return str(value)
        return exact(value, self.dimension)

    @property
    def examples(self) -> tuple[str, ...]:
        own = EXAMPLES[self.dimension] if self.dimension is not None else ()
        return (*own, *self.words, *(["..."] if self.text else []))

    @property
    def sentence(self) -> str:
        """The accepted values as a text for people, such as 'S, W, A or B'."""
        own = []
        if self.dimension is not None:
            unit = BASE[self.dimension]
            own = [
                f"{self.dimension} (for example {EXAMPLES[self.dimension][0]})" if unit else "whole number"
            ]
        names = [*own, *self.words, *([TEXT] if self.text else [])]
        return alternatives(names)

    def schema(self) -> dict[str, object]:
        """Return the JSON Schema of the values."""
        if self.text:
            return {"type": ["string", "number"]}
        either: list[dict[str, object]] = []
        if self.words:
            either.append({"enum": list(self.words)})
        if self.dimension is not None:
            either.append({"type": "string", "pattern": pattern(self.dimension)})
        if self.dimension is Dimension.COUNT:
            either.append({"type": "integer", "minimum": 1})
        return either[0] if len(either) == 1 else {"anyOf": either}


def subject_names() -> tuple[str, ...]:
    """Return the names of all subjects that a study file can name, in alphabetical order, without loading
    them."""
    return tuple(name for name in plugins.points(plugins.SUBJECTS) if name not in (KERNELS, PROGRAMS))


def loaded_subjects() -> list[SubjectFacts]:
    """Return the declared facts of all subjects. Subjects that cannot be loaded are left out."""
    found = []
    for name in subject_names():
        with contextlib.suppress(UsageError):
            found.append(subject_facts(name))
    return found


def subject_facts(name: str) -> SubjectFacts:
    """Return the facts that a subject declares about itself.

    Raises UsageError if there is none with this name, or if it does not load.
    """
    found = plugins.load_class(plugins.SUBJECTS, name, "subject", UsageError)
    own: tuple[SubjectFacts, ...] = found.facts
    for facts in own:
        if facts.name == name:
            return facts
    named = " or ".join(facts.name for facts in own) or "none"
    raise UsageError(
        f"subject {name}: its class {found.__name__} has the facts of {named}",
        remedy="give the entry point and the facts one name",
    )
