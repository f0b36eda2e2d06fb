"""YAML study files: reads them and reports every mistake with its position, writes the study that is stored
with the results, and describes the keys for people and editors.

The package is cheap to import: pydantic and ruamel are imported only when a file is read. Names of
kernels and applications are passed as a Catalog. Backends and subjects are loaded by their entry points,
when a file names them."""

from .catalog import COMMAND, Catalog
from .dump import SCHEMA_LINE, dump_study
from .explain import explain, template
from .load import load_study, load_text
from .schema import SCHEMA_NAME, json_schema
