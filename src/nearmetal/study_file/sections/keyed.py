"""Sections made from dataclasses whose fields are declared as keys (model.keys)."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, create_model

from ...model.environments.environment import BackendSettings
from ...model.keys import Entries, Key, KeyKind, ListOf, Named, Pairs, ValueType, keys_of
from ..fields import KeyType, Name


class Section(BaseModel):
    """The base class of all sections. Unknown keys are mistakes.

    stands_for: the dataclass that the section corresponds to.
    """

    stands_for: ClassVar[type[Any]]

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


Own = tuple[type[BackendSettings], ...]
_MADE: dict[tuple[type[Any], ...], type[Section]] = {}


def section_of(
    kind: type[Any],
    own: Own = (),
    *,
    also: tuple[type[Any], ...] = (),
    instead: Mapping[str, Key] | None = None,
    last: Mapping[str, tuple[Any, Any]] | None = None,
    config: ConfigDict | None = None,
) -> type[Section]:
    """Return the section with the keys that a dataclass declares. It is made only once for the same
    dataclasses.

    own: settings of backends, if the dataclass has a field for them.
    also: dataclasses derived from it, whose keys the section has too; see made().
    instead: keys that replace those declared at fields, by name of the field.
    last: further fields of the model, which come after the others.
    config: configuration of the model, in addition to that of Section.
    """
    sources = (kind, *own, *also)
    if sources not in _MADE:
        fields: dict[str, Any] = {}
        for keyed in (kind, *also):
            fields = _fields(keyed, own, instead or {}) | fields
        fields |= dict(last or {})
        base = _configured(config) if config is not None else Section
        _MADE[sources] = create_model(kind.__name__, __base__=base, **fields)
        _MADE[sources].stands_for = kind
        _MADE[sources].__doc__ = _description(kind)
    return _MADE[sources]


def _description(kind: type[Any]) -> str | None:
    """Return the description of a dataclass in the JSON Schema: the first sentence of its docstring.

    None if the dataclass has no docstring.
    """
    text = " ".join((inspect.getdoc(kind) or "").split())
    if not text or text.startswith(f"{kind.__name__}("):  # dataclasses make one from the fields
        return None
    return re.split(r"[.:;](?: |$)", text)[0] + "."


def _configured(config: ConfigDict) -> type[Section]:
    return type("Section", (Section,), {"model_config": config, "__module__": __name__})


def _fields(kind: type[Any], own: Own, instead: Mapping[str, Key]) -> dict[str, Any]:
    """Return the fields of the model for the keys of a dataclass. They include the keys of nested dataclasses
    that a file has at the same level (Key.beside)."""
    fields: dict[str, Any] = {}
    for f, key in keys_of(kind):
        if key.kind is BackendSettings:
            fields |= _own(own)
        elif key.beside:
            assert isinstance(key.kind, type)
            optional = {i.name: dataclasses.replace(k, optional=True) for i, k in keys_of(key.kind)}
            fields |= {name: _further(name, k) for name, k in optional.items()}
        else:
            if key.single is not None:
                fields[key.single.name] = _further(key.single.name, key.single)
            fields[f.name] = _field(f, instead.get(f.name, key))
    return fields


def _own(own: Own) -> dict[str, Any]:
    return {
        s.section: (section_of(s) | None, Field(None, description=s.doc, examples=[s.example])) for s in own
    }


def _annotation(kind: KeyKind) -> Any:
    match kind:
        case ValueType():
            return Annotated[Any, KeyType(kind)]
        case ListOf():
            return list[Annotated[Any, KeyType(kind.item)]]
        case Pairs():
            names: Any = Annotated[str, KeyType(kind.names)]
            return GenericAlias(dict, (names, _annotation(kind.values)))
        case Named():
            names = Name if kind.names is None else Annotated[str, KeyType(kind.names)]
            return GenericAlias(dict, (names, section_of(kind.entry)))
        case Entries():
            return GenericAlias(list, (section_of(kind.entry),))
        case _:
            return section_of(kind)


def _further(name: str, key: Key) -> tuple[Any, Any]:
    """Return the field of the model for a key that no field of a dataclass has."""
    annotation, more = _annotation(key.kind), _described(name, key)
    return (annotation | None, Field(None, **more)) if key.optional else (annotation, Field(**more))


def _described(name: str, key: Key) -> dict[str, Any]:
    more: dict[str, Any] = {"description": key.doc}
    if key.examples:
        more["examples"] = list(key.examples)
    return more if key.name == name else more | {"alias": key.name}


def _field(f: dataclasses.Field[Any], key: Key) -> tuple[Any, Any]:
    annotation, more = _annotation(key.kind), _described(f.name, key)
    if isinstance(key.kind, ListOf) and key.kind.least:
        more["min_length"] = key.kind.least
    if key.optional or (f.default == () and more.get("min_length")):
        return annotation | None, Field(None, **more)
    if isinstance(key.kind, Pairs) and f.default_factory is dataclasses.MISSING:
        return annotation, Field(min_length=1, **more)
    if isinstance(key.kind, (Pairs, Named)):
        return annotation, Field(default_factory=dict, **more)
    if f.default == ():
        return annotation, Field(default_factory=list, **more)
    if f.default_factory is not dataclasses.MISSING:
        return annotation, Field(default_factory=lambda: annotation.model_validate({}), **more)
    if f.default is dataclasses.MISSING:
        return annotation, Field(**more)
    words = key.usual
    if words is None and isinstance(key.kind, ValueType) and key.kind.dimension and f.default is not None:
        words = key.kind.write(f.default)
    if words is not None:
        more["json_schema_extra"] = {"default": words}
    return (annotation | None if f.default is None else annotation), Field(f.default, **more)


def made(section: Section, kind: type[Any] | None = None, **given: Any) -> Any:
    """Return an instance of the dataclass with the values of a section.

    kind: the dataclass, if it is not the one that the section corresponds to.
    given: values of fields that no key fills, or that replace the value of a key.
    """
    kind = kind or section.stands_for
    return kind(**(_values(section, kind) | given))


def _values(section: Section, kind: type[Any]) -> dict[str, Any]:
    """Return the values of the fields of a dataclass that the section fills. Fields are left out if their
    keys are not given."""
    values: dict[str, Any] = {}
    for f, key in keys_of(kind):
        if key.beside:
            assert isinstance(key.kind, type)
            below = _values(section, key.kind)
            needed = [g.name for g, _ in keys_of(key.kind) if g.default is dataclasses.MISSING]
            if below and all(name in below for name in needed):
                values[f.name] = key.kind(**below)
            continue
        value = _own_of(section) if key.kind is BackendSettings else getattr(section, f.name)
        if value is None and key.single is not None:
            only = getattr(section, key.single.name)
            value = () if only is None else (only,)
        if value is None:
            continue
        if isinstance(value, Section):
            values[f.name] = made(value)
        elif isinstance(key.kind, Named):
            values[f.name] = tuple(made(entry, name=name) for name, entry in value.items())
        elif isinstance(key.kind, Entries):
            values[f.name] = tuple(made(entry) for entry in value)
        elif isinstance(key.kind, Pairs) and isinstance(key.kind.values, ListOf):
            values[f.name] = {name: tuple(items) for name, items in value.items()}
        else:
            values[f.name] = tuple(value) if isinstance(key.kind, ListOf) else value
    return values


def _own_of(section: Section) -> Section | None:
    """Return the settings of a backend; the first ones if a section has those of several."""
    values = [getattr(section, name) for name in type(section).model_fields]
    own = (v for v in values if isinstance(v, Section) and issubclass(v.stands_for, BackendSettings))
    return next(own, None)
