"""What a kernel can be told in a study file, as data: the study file checks against it, help prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

Value = str | int | float

AUTO = "auto"


class Kind(StrEnum):
    """WHOLE: a whole number; BYTES: as one, '4 MiB' in a study file; WORD: one of `words`."""

    WHOLE = "whole number"
    BYTES = "bytes"
    WORD = "word"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One key of a kernel. default: a Value of the kind, or 'auto' where auto is allowed; least, most: of
    numbers; words: what a WORD may be; doc: one line for people."""

    name: str
    kind: Kind
    default: Value
    doc: str
    auto: bool = False
    least: int = 1
    most: int = 1 << 40
    words: tuple[str, ...] = ()

    def problem(self, value: object) -> str | None:
        """Why this value does not fit, or None where it does."""
        if self.auto and value == AUTO:
            return None
        also = ", or auto" if self.auto else ""
        if self.kind is Kind.WORD:
            return None if value in self.words else f"{self.name} is one of {', '.join(self.words)}{also}"
        fits = isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most
        return None if fits else f"{self.name} is a whole number from {self.least} to {self.most}{also}"


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The values of one workload over the defaults, each of the type its parameter declares."""

    values: Mapping[str, Value]

    def word(self, name: str) -> str:
        return str(self.values[name])

    def whole(self, name: str) -> int | None:
        """None for 'auto'."""
        value = self.values[name]
        return None if value == AUTO else int(value)
