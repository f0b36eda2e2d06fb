"""Values with some of their fields changed, whatever makes them: dataclasses, and the records of trials."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")


def replace(value: T, /, **changes: Any) -> T:
    """A copy with these fields changed. Raises TypeError for a field that it does not have."""
    if isinstance(value, msgspec.Struct):
        return cast("T", msgspec.structs.replace(value, **changes))
    return cast("T", dataclasses.replace(cast("Any", value), **changes))
