"""Sections made from dataclasses whose fields are declared as keys (model.keys)."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from pydantic import Field, create_model

from ...model.environments.environment import BackendSettings
from ...model.keys import Each, Key, Kind, keys_of
from ..fields import Taken
from .base import Section

Own = tuple[type[BackendSettings], ...]
_MADE: dict[tuple[type[Any], Own], type[Section]] = {}


def section_of(kind: type[Any], own: Own = (), *, first: dict[str, Key] | None = None) -> type[Section]:
    """Return the section with the keys that a dataclass declares.

    own: settings of backends, if the dataclass has a field for them.
    first: further keys, which no field has; they come before the others.
    """
    if (kind, own) not in _MADE:
        fields: dict[str, Any] = {
            name: (_optional(key.kind), Field(None, description=key.doc, examples=list(key.examples)))
            for name, key in (first or {}).items()
        }
        for f, key in keys_of(kind):
            fields |= _own(own) if key.kind is BackendSettings else {f.name: _field(f, key)}
        _MADE[kind, own] = create_model(kind.__name__, __base__=Section, **fields)
        _MADE[kind, own].stands_for = kind
    return _MADE[kind, own]


def _own(own: Own) -> dict[str, Any]:
    return {
        s.section: (section_of(s) | None, Field(None, description=s.doc, examples=[s.example])) for s in own
    }


def _taken(kind: Kind | Each | type[Any]) -> Any:
    if isinstance(kind, Kind):
        return Annotated[Any, Taken(kind)]
    return list[Annotated[Any, Taken(kind.item)]] if isinstance(kind, Each) else section_of(kind)


def _optional(kind: Kind | Each | type[Any]) -> Any:
    return _taken(kind) | None


def _field(f: dataclasses.Field[Any], key: Key) -> tuple[Any, Any]:
    more: dict[str, Any] = {"description": key.doc, "examples": list(key.examples)}
    if key.name != f.name:
        more["alias"] = key.name
    if isinstance(key.kind, Each) and key.kind.least:
        more["min_length"] = key.kind.least
    if key.optional or (f.default == () and more.get("min_length")):
        return _optional(key.kind), Field(None, **more)
    taken = _taken(key.kind)
    if f.default == ():
        return taken, Field(default_factory=list, **more)
    if f.default_factory is not dataclasses.MISSING:
        return taken, Field(default_factory=lambda: taken.model_validate({}), **more)
    if f.default is dataclasses.MISSING:
        return taken, Field(**more)
    words = key.usual
    if words is None and isinstance(key.kind, Kind) and key.kind.unit and f.default is not None:
        words = key.kind.write(f.default)
    if words is not None:
        more["json_schema_extra"] = {"default": words}
    return (_optional(key.kind) if f.default is None else taken), Field(f.default, **more)


def made(section: Section, **given: Any) -> Any:
    """Return the dataclass with the values of a section.

    given: values of fields that no key fills, or that replace the value of a key.
    """
    values: dict[str, Any] = {}
    for f, key in keys_of(section.stands_for):
        value = _own_of(section) if key.kind is BackendSettings else getattr(section, f.name)
        if isinstance(value, Section):
            values[f.name] = made(value)
        elif value is not None:
            values[f.name] = tuple(value) if isinstance(key.kind, Each) else value
    return section.stands_for(**(values | given))


def _own_of(section: Section) -> Section | None:
    """Return the settings of a backend; the first ones if a section has those of several."""
    values = [getattr(section, name) for name in type(section).model_fields]
    own = (v for v in values if isinstance(v, Section) and issubclass(v.stands_for, BackendSettings))
    return next(own, None)
