"""The types of the keys of a study file as pydantic annotations, made from the kinds in model.keys.

Only the sections import this module, since it imports pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ..model.keys import NAME, TEXT, ValueType


@dataclass(frozen=True, eq=False)  # an annotation must be hashable, so compare by identity
class KeyType:
    """A pydantic annotation with which `kind` reads the value of a key, and describes it in the JSON
    Schema."""

    kind: ValueType

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.kind.read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return dict(self.kind.schema)


Text = Annotated[str, KeyType(TEXT)]
Name = Annotated[str, KeyType(NAME)]
