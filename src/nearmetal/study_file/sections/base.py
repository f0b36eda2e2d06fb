"""The base class of all sections. Unknown keys are mistakes."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """stands_for: the dataclass whose keys it has."""

    stands_for: ClassVar[type[Any]]

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
