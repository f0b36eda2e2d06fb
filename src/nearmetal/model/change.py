"""Copies of values with some fields changed, for dataclasses and for the records of trials."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")


def replace(value: T, /, **changes: Any) -> T:
    """Return a copy with these fields changed.

    Raises TypeError for a field that the value does not have.
    """
    if isinstance(value, msgspec.Struct):
        return cast("T", msgspec.structs.replace(value, **changes))
    return cast("T", dataclasses.replace(cast("Any", value), **changes))
