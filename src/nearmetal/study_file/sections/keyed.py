"""Sections made from dataclasses whose fields are declared as keys (model.keys)."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from pydantic import Field, create_model

from ...model.keys import Key, Kind, keys_of
from ..fields import Taken
from .base import Section

_MADE: dict[type[Any], type[Section]] = {}


def section_of(kind: type[Any]) -> type[Section]:
    """The section whose keys a dataclass declares."""
    if kind not in _MADE:
        fields: dict[str, Any] = {f.name: _field(f, key) for f, key in keys_of(kind)}
        _MADE[kind] = create_model(kind.__name__, __base__=Section, **fields)
    return _MADE[kind]


def _field(f: dataclasses.Field[Any], key: Key) -> tuple[Any, Any]:
    taken: Any = Annotated[Any, Taken(key.kind)] if isinstance(key.kind, Kind) else section_of(key.kind)
    more: dict[str, Any] = {"description": key.doc, "examples": list(key.examples)}
    if key.name != f.name:
        more["alias"] = key.name
    if f.default_factory is not dataclasses.MISSING:
        return taken, Field(default_factory=lambda: taken.model_validate({}), **more)
    if f.default is dataclasses.MISSING:
        return taken, Field(**more)
    return (taken | None if f.default is None else taken), Field(f.default, **more)


def made(kind: type[Any], section: Section) -> Any:
    """What a section stands for."""
    values = {f.name: getattr(section, f.name) for f, _ in keys_of(kind)}
    inner = {f.name: key.kind for f, key in keys_of(kind) if isinstance(key.kind, type)}
    return kind(
        **{
            name: made(inner[name], value) if name in inner and value is not None else value
            for name, value in values.items()
        }
    )
