"""Describe all keys and units of a study file as text for people, from the sections and the unit tables, and
return the commented study file that `nearmetal init` writes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from ..model.environments.image import ImageDefinition
from ..model.series_file import SeriesFile
from ..model.study import Design, Environment, Placement
from ..units import EXAMPLES, Dimension, units_of
from .catalog import Catalog, ParamType
from .dump import SCHEMA_LINE
from .environments.backends import every_settings, with_backends
from .validate import inline, keys_of, required

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_WIDTH, _COLUMN = 100, 18


def explain(catalog: Catalog | None = None) -> str:
    """Return a text that describes every key with its meaning, its default and an example, and every unit.

    catalog: kernels and applications that the text also describes; None for none.
    """
    from . import sections as s

    workload_kinds = (
        ("a kernel of nearmetal's", s.KernelSection),
        ("a program that nearmetal knows", s.ApplicationSection),
        ("a program of your own", s.CommandSection),
        ("NAS benchmarks of your own", s.NpbWorkloadSection),
        ("an event of the instances", s.event_section()),
    )
    below = {
        "environments": ["    <name>", *_keys(s.section_of(Environment, every_settings()), "      ")],
        "images": ["    <name>", *_keys(s.section_of(ImageDefinition), "      ")],
        "placements": ["    <name>", *_keys(s.section_of(Placement), "      ")],
        "workloads": [
            line
            for words, model in workload_kinds
            for line in (f"    <name>: {words}", *_keys(model, "      "))
        ],
        "design": _keys(s.section_of(Design), "    "),
    }
    out = ["Keys"]
    for name, field in s.TopSection.model_fields.items():
        out += [*_key(name, field, "  ", example=name not in below), *below.get(name, ())]
    out += ["", "Keys of a series file (series.yaml)", *_keys(s.section_of(SeriesFile), "  ")]
    out += ["", "Units"]
    for dimension in Dimension:
        known = ", ".join(units_of(dimension)) or "none"
        out.append(f"  {dimension:<8}{known}; for example {', '.join(EXAMPLES[dimension])}")
    if catalog is not None:
        out += ["", "Kernels and their parameters", *kernel_lines(catalog)]
        out += ["", "Applications and their parameters", *application_lines(catalog)]
    return "\n".join(out) + "\n"


def _keys(model: type[BaseModel], indent: str) -> list[str]:
    from pydantic import BaseModel

    out = []
    for name, field in keys_of(model).items():
        inner = required(field.annotation)
        entries = get_origin(inner) is dict and get_args(inner)[-1]
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            out += [*_key(name, field, indent, example=False), *_keys(inner, indent + "  ")]
        elif isinstance(entries, type) and issubclass(entries, BaseModel):
            out += _key(name, field, indent, example=False)
            out += [f"{indent}  <name>", *_keys(entries, indent + "    ")]
        else:
            out += _key(name, field, indent, example=True)
    return out


def _key(name: str, field: FieldInfo, indent: str, *, example: bool) -> list[str]:
    words = with_backends(field.description or "")
    known = _known_words(field)
    if known:
        words += f".  One of {', '.join(known)}"
    elif example and field.examples:
        words += f".  Example: {' or '.join(inline(e) for e in field.examples)}"
    default = _default(field)
    words += f"  ({default})" if default else ""
    return _wrapped(name, words, indent)


def _known_words(field: FieldInfo) -> tuple[str, ...]:
    """Return all texts that a key accepts; empty if they are not a fixed set."""
    from .fields import KeyType

    return next((m.kind.words for m in field.metadata if isinstance(m, KeyType)), ())


def _wrapped(name: str, words: str, indent: str) -> list[str]:
    """Return the lines of a name with its description in a column beside it."""
    head = f"{indent}{name} ".ljust(len(indent) + _COLUMN)
    lines = textwrap.wrap(
        re.sub(r"(\d) (?=\S)", "\\1\u00a0", words),  # a number stays with its unit
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    extra: Any = field.json_schema_extra
    value = extra.get("default", field.default) if isinstance(extra, dict) else field.default
    if value is None or value == "" or field.default_factory is not None:
        return ""
    return f"default {inline(value)}"


def application_lines(catalog: Catalog) -> list[str]:
    """Return the lines that describe every application with its parameters."""
    out = []
    for name, entry in catalog.applications.items():
        out += [f"  {name}", *_parameter_lines(entry.parameters)]
    return out


def _parameter_lines(parameters: Mapping[str, tuple[str, str]]) -> list[str]:
    out = []
    for name, (type_text, doc) in parameters.items():
        out += _wrapped(name, f"{ParamType.of(type_text).sentence}.  {doc}", "    ")
    return out


def kernel_lines(catalog: Catalog) -> list[str]:
    """Return the lines that describe every kernel with its parameters and metrics."""
    out = []
    for kernel, params in catalog.kernels.items():
        out += [f"  {kernel}", *_parameter_lines(params)]
        if catalog.metrics.get(kernel):
            out += _wrapped("metrics", ", ".join(catalog.metrics[kernel]), "    ")
    return out


def template(catalog: Catalog) -> str:
    """Return a commented study file. It loads without mistakes with nearmetal's own catalogue, and can be run
    as it is or changed."""
    text = Path(__file__).with_name("first.yaml").read_text("utf-8")  # trusted: part of nearmetal
    before, heading, after = text.partition("  # Kernels and their parameters:\n")
    kernels = "".join(f"  # {line}\n" for line in kernel_lines(catalog))
    return f"{SCHEMA_LINE}\n{before}{heading}{kernels}{after}"
