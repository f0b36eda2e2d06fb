"""What a kernel can be told in a study file, as data: the study file checks against it, help prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

Value = str | int | float

AUTO = "auto"


class Kind(StrEnum):
    """WHOLE: a whole number; BYTES: as one, '4 MiB' in a study file; RATE: bytes a second, '12.5 MB/s' there;
    SECONDS: '1.5 s' there; SHARE: of 1, '80 %' there; WORD: one of `words`; TEXT: any, such as a path."""

    WHOLE = "whole number"
    BYTES = "bytes"
    RATE = "rate"
    SECONDS = "time"
    SHARE = "share"
    WORD = "word"
    TEXT = "text"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One key of a kernel or an application.

    default: a Value of the kind, or 'auto' where auto is allowed.
    least, most: of numbers.
    multiple: what a whole one is divisible by.
    words: what a WORD may be.
    doc: one line for people.
    """

    name: str
    kind: Kind
    default: Value
    doc: str
    auto: bool = False
    least: float = 1
    most: float = 1 << 40
    multiple: int = 1
    words: tuple[str, ...] = ()

    def problem(self, value: object) -> str | None:
        """Why this value does not fit, or None where it does."""
        if self.auto and value == AUTO:
            return None
        also = ", or auto" if self.auto else ""
        if self.kind is Kind.WORD:
            return None if value in self.words else f"{self.name} is one of {', '.join(self.words)}{also}"
        if self.kind is Kind.TEXT:
            return None if isinstance(value, str) and value.strip() else f"{self.name} is a text"
        real = self.kind in (Kind.RATE, Kind.SECONDS, Kind.SHARE)
        kinds, what = ((int, float), "number") if real else (int, Kind.WHOLE.value)
        if not isinstance(value, kinds) or isinstance(value, bool) or not self.least <= value <= self.most:
            return f"{self.name} is a {what} from {self.least} to {self.most}{also}"
        if not real and value % self.multiple:
            return f"{self.name} is a multiple of {self.multiple}{also}"
        return None


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

    def real(self, name: str) -> float:
        return float(self.values[name])
