"""YAML study files: read with every mistake at its place, written frozen, described to people and editors.

Cheap to import: pydantic and ruamel come in only where a file is read. Knows no workload and no backend; what
a study may name is handed in as a Catalog.
"""

from .catalog import COMMAND, Catalog
from .dump import SCHEMA_LINE, dump_study
from .explain import explain
from .load import load_study, load_text
from .schema import SCHEMA_NAME, json_schema
from .template import template

__all__ = [
    "COMMAND",
    "SCHEMA_LINE",
    "SCHEMA_NAME",
    "Catalog",
    "dump_study",
    "explain",
    "json_schema",
    "load_study",
    "load_text",
    "template",
]
