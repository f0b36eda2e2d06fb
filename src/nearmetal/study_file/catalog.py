"""What a study may name: backends, kernels with their parameters, metrics. Handed in by the upper rooms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..model.environments.image import ImageDefinition
from ..model.keys import did_you_mean
from ..model.study import ApplicationWorkload, Study
from ..units import BASE, EXAMPLES, Dimension, UnitError, exact, parse, parse_count, parse_size, pattern

#: The key of Catalog.metrics for what every command is measured by.
COMMAND = "command"
#: The type of a parameter that takes any text, such as a path.
TEXT = "text"
ParamValue = str | int | float


@dataclass(frozen=True, kw_only=True)
class KnownApplication:
    """What study files may say of an application.

    parameters: (type, what it is for) by name, types as in Catalog.
    misfit: (parameter, value) -> why the value does not fit although its type does, or None. Of a workload
        whose keys are sound: metrics: the names of what it measures.
    misplaced: why it does not run on arms of the study, one text for each cause.
    needs_storage: whether its environments must have storage.
    """

    parameters: Mapping[str, tuple[str, str]]
    misfit: Callable[[str, ParamValue], str | None]
    metrics: Callable[[ApplicationWorkload], tuple[str, ...]]
    misplaced: Callable[[ApplicationWorkload, Study], tuple[str, ...]]
    needs_storage: Callable[[ApplicationWorkload], bool]


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """What study files may name.

    A type of a parameter is a list of alternatives divided by '|': a dimension ('count', 'size', 'time',
    'share', 'rate'), 'text', or a word that stands for itself: 'size', 'count | auto', 'S | W | A | B'.

    backends: names of entry points.
    kernels: by kernel and parameter, the type and what it is for.
    metrics: names of what is measured, by kernel, event of the instances ('start', ...) and COMMAND; a kernel
        that is missing may have any metric.
    writers: kernels that need storage.
    applications: by name.
    misfit: (kernel, parameter, value) -> why the value does not fit although its type does, or None.
    no_image: (name of an image, the study's own definitions, file of the study) -> why no instance can have
        the image, or None.
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
    """A parameter's type, read from a Catalog. dimension: None where only words are taken, or, with text, any
    text at all."""

    dimension: Dimension | None
    words: tuple[str, ...]
    text: bool = False

    @classmethod
    def of(cls, text: str) -> ParamType:
        """From 'count | auto'."""
        parts = [p.strip() for p in text.split("|")]
        known = {d.value: d for d in Dimension}
        found = [known[p] for p in parts if p in known]
        words = tuple(p for p in parts if p not in known and p != TEXT)
        return cls(dimension=found[0] if found else None, words=words, text=TEXT in parts)

    def read(self, text: str) -> ParamValue:
        """A value in base units, or one of the words. Raises UnitError."""
        if text in self.words or self.text:
            return text
        if self.dimension is None:
            raise UnitError(f'unknown value "{text[:40]}"{did_you_mean(text, self.words)}')
        if not any(c.isdigit() for c in text) and self.words:
            raise UnitError(
                f'"{text[:40]}" is no {self.dimension}{did_you_mean(text, self.words, also=self.examples[0])}'
            )
        value: int | float
        if self.dimension is Dimension.COUNT:
            value = parse_count(text)
        elif self.dimension is Dimension.SIZE:
            value = parse_size(text)
        else:
            value = parse(text, self.dimension)
        may_be_zero = self.dimension in (Dimension.SIZE, Dimension.RATE)  # an empty message, no set rate
        if value < 0 or (value == 0 and not may_be_zero):
            raise UnitError(f'"{text[:40]}" is not above zero')
        return value

    def write(self, value: ParamValue) -> str:
        """The text that reads back as exactly this value."""
        if isinstance(value, str) or self.dimension is None:
            return str(value)
        return exact(value, self.dimension)

    @property
    def examples(self) -> tuple[str, ...]:
        own = EXAMPLES[self.dimension] if self.dimension is not None else ()
        return (*own, *self.words, *(["..."] if self.text else []))

    @property
    def sentence(self) -> str:
        """For people: 'size with unit B', 'S, W, A or B'."""
        own = []
        if self.dimension is not None:
            unit = BASE[self.dimension]
            own = [
                f"{self.dimension} (for example {EXAMPLES[self.dimension][0]})" if unit else "whole number"
            ]
        names = [*own, *self.words, *([TEXT] if self.text else [])]
        return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]

    def schema(self) -> dict[str, object]:
        """JSON Schema of the values."""
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
