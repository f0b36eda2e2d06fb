"""Parameters of kernels and applications, as data. Study files are checked against them, and the help prints
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

Value = str | int | float

AUTO = "auto"


class Kind(StrEnum):
    """The type of a parameter's value.

    WHOLE: a whole number.
    BYTES: a whole number of bytes; '4 MiB' in a study file.
    RATE: B/s; '12.5 MB/s' in a study file.
    SECONDS: seconds; '1.5 s' in a study file.
    SHARE: a fraction of 1; '80 %' in a study file.
    WORD: one of Parameter.words.
    TEXT: any text, such as a path.
    """

    WHOLE = "whole number"
    BYTES = "bytes"
    RATE = "rate"
    SECONDS = "time"
    SHARE = "share"
    WORD = "word"
    TEXT = "text"


@dataclass(frozen=True)
class Parameter:
    """One key of a kernel or an application.

    default: a value of this kind, or 'auto'.
    auto: whether 'auto' is accepted although it is not the default.
    least, most: limits of a number.
    multiple: a whole number must be divisible by it.
    words: accepted values of a WORD.
    """

    name: str
    kind: Kind
    default: Value
    doc: str
    _: KW_ONLY
    auto: bool = False
    least: float = 1
    most: float = 1 << 40
    multiple: int = 1
    words: tuple[str, ...] = ()

    @property
    def takes_auto(self) -> bool:
        """Whether 'auto' is accepted."""
        return self.auto or self.default == AUTO

    def problem(self, value: object) -> str | None:
        """Return why this value is not accepted; None if it is."""
        if self.takes_auto and value == AUTO:
            return None
        also = ", or auto" if self.takes_auto else ""
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
    """The values of one workload's parameters, with the defaults filled in. Each has the type that its
    parameter declares."""

    values: Mapping[str, Value]

    def word(self, name: str) -> str:
        return str(self.values[name])

    def whole(self, name: str) -> int | None:
        """Return the value of a whole number; None for 'auto'."""
        value = self.values[name]
        return None if value == AUTO else int(value)

    def real(self, name: str) -> float:
        return float(self.values[name])
