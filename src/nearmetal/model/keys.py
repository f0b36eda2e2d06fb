"""Keys of study files, series files and files of papers: accepted values, documentation and examples. They
are declared at the dataclass fields that they fill.

The parser, the JSON Schema, the writer and the documentation are all generated from these declarations."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from ..units import Dimension, UnitError, exact, parse, parse_size, pattern

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}|0x[0-9a-fA-F]{1,16}")
T = TypeVar("T")
_KEY = "key"
"""Key of a field's metadata."""


class ValueMistake(ValueError):
    """A value that a key does not accept. The message says why."""


@dataclass(frozen=True, eq=False)
class ValueType:
    """The type of values that a key accepts.

    read: converts the text, number or truth value of a file. Raises ValueMistake.
    schema: JSON Schema of the values in a file.
    write: converts a value to text; `read` converts this text back to the same value.
    plain: whether that text needs no quotes in YAML.
    words: all accepted texts, if the set is fixed.
    dimension: dimension of a quantity, whose text has a unit; None for other values.
    """

    read: Callable[[object], Any]
    schema: Mapping[str, Any]
    write: Callable[[Any], str] = str
    plain: bool = True
    words: tuple[str, ...] = ()
    dimension: Dimension | None = None


@dataclass(frozen=True, eq=False)
class ListOf:
    """A list of values.

    item: type of its items.
    least: smallest number of items.
    """

    item: ValueType
    least: int = 0


@dataclass(frozen=True, eq=False)
class Pairs:
    """A mapping from texts to values.

    names: type of its keys.
    values: type of its values.
    """

    names: ValueType
    values: ValueType | ListOf


@dataclass(frozen=True, eq=False)
class Named:
    """A mapping from names to entries. The field contains a tuple of dataclasses, each with a field `name`.

    entry: the dataclass of an entry, which declares the keys of the entry.
    names: type of the names; NAME if None.
    """

    entry: type[Any]
    names: ValueType | None = None


@dataclass(frozen=True, eq=False)
class Entries:
    """A list of entries without names. The field contains a tuple of dataclasses.

    entry: the dataclass of an entry, which declares the keys of the entry.
    """

    entry: type[Any]


KeyKind = ValueType | ListOf | Pairs | Named | Entries | type[Any]


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key of a study file.

    kind: type of its value; a dataclass with its own keys if the value is a mapping.
    beside: whether the keys of that dataclass are at the same level of the file, not nested below a key. This
        key then has no name in the file, and the field keeps its default if the first of these keys is
        missing.
    doc, examples: documentation for people and editors.
    name: name in the file; the name of the field if empty.
    usual: the default as shown to users, if it differs from the text of the default.
    optional: whether the key may be omitted although the field has no default. The reader of the file then
        provides the value.
    always: whether the key is written even if it has its default value.
    written: whether it is written into a study file at all.
    written_before: the field before which it is written, if the order of the file differs from that of the
        fields.
    single: for a list, the key that may give its only value instead; the list is empty without both.
    unlimited: the value of a quantity that means no limit, and words for it; None if there is no such value.
    """

    kind: KeyKind
    doc: str
    examples: tuple[Any, ...]
    name: str = ""
    beside: bool = False
    usual: Any = None
    optional: bool = False
    always: bool = False
    written: bool = True
    written_before: str = ""
    single: Key | None = None
    unlimited: tuple[float, str] | None = None


def key(kind: KeyKind, doc: str, *examples: Any, **more: Any) -> dict[str, Key]:
    """Return the metadata of a field that a study file fills; the arguments are those of Key."""
    return {_KEY: Key(kind=kind, doc=doc, examples=examples, **more)}


def key_or(default: T, kind: KeyKind, doc: str, *examples: Any, **more: Any) -> T:
    """Return a field that a study file may fill, with its default; the other arguments are those of Key."""
    filled: T = dataclasses.field(default=default, metadata=key(kind, doc, *examples, **more))
    return filled


def key_made(made: Callable[[], T], kind: KeyKind, doc: str, *examples: Any, **more: Any) -> T:
    """Declare a dataclass field that a study file may fill, with a default factory.

    made: returns the default.
    kind, doc, examples, more: as for Key.
    """
    filled: T = dataclasses.field(default_factory=made, metadata=key(kind, doc, *examples, **more))
    return filled


def beside(kind: type[Any]) -> dict[str, Key]:
    """Return the metadata of a field whose keys stand in the file at the same level as the other keys of the
    dataclass."""
    return key(kind, "", beside=True)


def keys_of(kind: type[Any]) -> Iterator[tuple[dataclasses.Field[Any], Key]]:
    """Return the fields of a dataclass that a study file fills, each with its key."""
    for f in dataclasses.fields(kind):
        found = f.metadata.get(_KEY)
        if found is not None:
            yield f, found if found.name else dataclasses.replace(found, name=f.name)


def usual(f: dataclasses.Field[Any]) -> Any:
    """Return the default of a field; dataclasses.MISSING if the field has none."""
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


def alternatives(words: Sequence[str]) -> str:
    """Return words as alternatives in a sentence: 'a, b or c'; '' for no words."""
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def did_you_mean(word: str, known: Iterable[str], *, also: str = "") -> str:
    """Return '; did you mean "x"?' if a known word is similar, else '; known: a, b'; '' if no word is known.

    Only a limited number of words is compared, since difflib takes quadratic time.

    also: another word that is listed, but not compared.
    """
    import difflib  # imported here, since most files have no mistake

    names = list(dict.fromkeys(known))
    if len(word) <= 64:
        cutoff = 0.7 if len(word) > 4 else 0.6
        near = difflib.get_close_matches(word.casefold(), {n.casefold(): n for n in names[:200]}, 1, cutoff)
        if near:
            return f'; did you mean "{next(n for n in names if n.casefold() == near[0])}"?'
    shown = [*names[:20], *([f'"{also}"'] if also else [])]
    return f"; known: {', '.join(shown)}{' …' if len(names) > 20 else ''}" if shown else ""


def scalar(value: object) -> str:
    """Return a value of a file as text.

    Raises ValueMistake if the value is missing, or is a list or a mapping.
    """
    if value is None:
        raise ValueMistake("a value is missing here")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float, Decimal)):
        return str(value)
    raise ValueMistake("expected one value, found a list or keys")


def _some_text(value: object) -> str:
    text = scalar(value)
    if not text.strip():
        raise ValueMistake("an empty text")
    return text


def _texts(value: object) -> tuple[str, ...]:
    texts = tuple(_some_text(v) for v in (value if isinstance(value, list) else [value]))
    if not texts:
        raise ValueMistake("a value is missing here")
    return texts


def matching(expression: str, what: str, *, numbers: bool = False, shown: bool = True) -> ValueType:
    """Return the type of a key whose value is a text that matches a regular expression.

    what: description of such a text, for messages.
    numbers: whether a text that looks like a number is accepted too.
    shown: whether the pattern is part of the schema.
    """
    compiled = re.compile(expression)

    def read(value: object) -> str:
        text = scalar(value)
        if not compiled.search(text) or text.endswith("\n"):
            raise ValueMistake(f'"{text[:60]}" is not {what}')
        return text

    kind: dict[str, Any] = {"type": ["string", "integer"] if numbers else "string"}
    return ValueType(read, kind | ({"pattern": expression} if shown else {}), plain=False)


def whole(low: int, high: int) -> ValueType:
    """Return the type of a key whose value is a whole number between two limits, in decimal or hexadecimal
    digits."""

    def read(value: object) -> int:
        text = scalar(value).strip()
        if not _WHOLE.fullmatch(text):
            raise ValueMistake(f'"{text[:40]}" is not a whole number')
        found = int(text, 16) if text.startswith("0x") else int(text)
        if not low <= found <= high:
            raise ValueMistake(f"{found} is not between {low} and {high}")
        return found

    return ValueType(read, {"type": "integer", "minimum": low, "maximum": high})


def quantity(dimension: Dimension, low: float, high: float, *, open_ends: bool = False) -> ValueType:
    """Return the type of a key whose value is a number with a unit, converted to base units.

    open_ends: whether low and high themselves are excluded.
    """

    def read(value: object) -> float:
        text = scalar(value)
        try:
            found = parse_size(text) if dimension is Dimension.SIZE else parse(text, dimension)
        except UnitError as e:
            raise ValueMistake(str(e)) from e
        inside = low < found < high if open_ends else low <= found <= high
        if not inside:
            limits = f"{exact(low, dimension)} and {exact(high, dimension)}"
            raise ValueMistake(f'"{text[:40]}" is not between {limits}')
        return found

    def write(value: float) -> str:
        return exact(value, dimension)

    return ValueType(read, {"type": "string", "pattern": pattern(dimension)}, write, dimension=dimension)


def number(value: object, low: float = -math.inf, high: float = math.inf) -> float:
    """Read a finite number without a unit between two limits.

    Raises ValueMistake.
    """
    text = scalar(value)
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueMistake(f'"{text[:40]}" is not a plain number, such as 0.5 or -1e-6')
    if not low <= found <= high:
        raise ValueMistake(f'"{text[:40]}" is not between {low:g} and {high:g}')
    return found


def number_between(low: float, high: float) -> ValueType:
    """Return the type of a key whose value is a number without a unit between two limits."""
    schema = {"type": "number", "minimum": low, "maximum": high}
    return ValueType(lambda value: number(value, low, high), schema, repr)


def one_of(words: type[StrEnum]) -> ValueType:
    """Return the type of a key whose value is a word of an enumeration."""
    return one_word(tuple(words), words)


def one_word(known: Sequence[str], made: Callable[[str], Any] = str) -> ValueType:
    """Return the type of a key whose value is one of these words.

    made: converts the word to its value.
    """
    names = tuple(map(str, known))

    def read(value: object) -> Any:
        text = scalar(value)
        if text not in names:
            raise ValueMistake(f'unknown value "{text[:40]}"{did_you_mean(text, names)}')
        return made(text)

    return ValueType(read, {"enum": list(names)}, words=names)


def either(yes: str, no: str, schema: Mapping[str, Any]) -> ValueType:
    """Return the type of a key whose value is true or false.

    yes, no: the words for true and false in a file.
    schema: JSON Schema of the value.
    """

    def read(value: object) -> bool:
        text = scalar(value)
        if text not in (yes, no):
            raise ValueMistake(f'"{text[:40]}": write {yes} or {no}')
        return text == yes

    return ValueType(read, schema, lambda value: yes if value else no)


NAME_PATTERN = r"^\w[\w-]{0,199}$"
"""Pattern of all names."""
_ANY_TEXT = {"type": ["string", "number", "boolean"]}
TEXT = ValueType(scalar, _ANY_TEXT, plain=False)
SOME_TEXT = ValueType(_some_text, {**_ANY_TEXT, "minLength": 1}, plain=False)
TEXTS = ValueType(
    _texts, {"anyOf": [_ANY_TEXT, {"type": "array", "items": _ANY_TEXT, "minItems": 1}]}, ", ".join
)
NAME = matching(NAME_PATTERN, "a name: letters, digits, - and _, not starting with -", numbers=True)
TRUTH = either("true", "false", {"type": "boolean"})
REAL = ValueType(number, {"type": "number"}, repr)
SWITCH = either("on", "off", {"enum": ["on", "off"]})
COUNT = whole(1, 100_000)
COUNT_OR_NONE = whole(0, 100_000)
CPU = whole(0, 65_535)
SIZE = quantity(Dimension.SIZE, 1, 2**60)
WIRE_RATE = quantity(Dimension.RATE, 1e3, 4e9)
SECONDS = quantity(Dimension.TIME, 0, 1e9, open_ends=True)
INTERFACE = matching(
    r"^(?!\.{1,2}$)[!-.0-9;-~]{1,15}$", "the name of a network interface: 1 to 15 characters, no / or :"
)
