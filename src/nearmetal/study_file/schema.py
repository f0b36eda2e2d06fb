"""Make the JSON Schema (draft 2020-12) of study files, for editors, from the sections and the catalogue."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..model.environments.image import ImageDefinition
from ..model.keys import NAME_PATTERN
from ..model.study import Design, Environment, Placement
from .catalog import Catalog, ParamType
from .environments.backends import every_settings, with_backends

if TYPE_CHECKING:
    from pydantic import BaseModel

SCHEMA_NAME = "nearmetal.schema.json"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def json_schema(catalog: Catalog) -> Schema:
    """Return the schema. It describes every key with examples, has patterns for units, and contains the names
    of the catalogue: backends, applications, kernels with their parameters, and metrics."""
    from . import sections as s

    models = (
        s.TopSection,
        s.section_of(Environment, every_settings()),
        s.section_of(ImageDefinition),
        s.section_of(Placement),
        s.KernelSection,
        s.ApplicationSection,
        s.CommandSection,
        s.NpbWorkloadSection,
        s.event_section(),
        s.section_of(Design),
    )
    defs = _definitions(models)
    top: Schema = defs.pop("TopSection")
    kernel = defs.pop("KernelWorkload")
    for name in catalog.kernels:
        defs[f"Kernel_{name}"] = _kernel(kernel, name, catalog)
    application = defs.pop("ApplicationWorkload")
    for name, known in catalog.applications.items():
        defs[f"Application_{name}"] = _own_keys(application, "application", name, known.parameters)
    defs["Environment"]["properties"]["backend"]["enum"] = list(catalog.backends)
    kinds = [
        *(f"Kernel_{n}" for n in catalog.kernels),
        *(f"Application_{n}" for n in catalog.applications),
        "CommandWorkload",
        "NpbEntry",
        "EventSubject",
    ]
    defs["NpbBinary"]["required"] = ["bin"]  # a sweep may provide the other required keys
    entries: dict[str, Schema] = {
        "environments": {"$ref": "#/$defs/Environment"},
        "images": {"$ref": "#/$defs/ImageDefinition"},
        "placements": {"$ref": "#/$defs/Placement"},
        "workloads": {"anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in kinds]},
    }
    for key, entry in entries.items():
        section = top["properties"][key]
        section.pop("patternProperties", None)
        section |= {"propertyNames": {"pattern": NAME_PATTERN}, "additionalProperties": entry}
    design = {k: v for k, v in top["properties"]["design"].items() if k in ("description", "examples")}
    top["properties"]["design"] = design | {"$ref": "#/$defs/Design"}
    top["title"] = "A study of nearmetal"
    return {"$schema": DRAFT, **top, "$defs": defs}


def _definitions(models: Sequence[type[BaseModel]]) -> Schema:
    """Return the schema of each model, and of the models inside it, by name."""
    from pydantic.json_schema import models_json_schema

    _, whole = models_json_schema([(m, "validation") for m in models])
    return {name: _tidy(d) for name, d in whole["$defs"].items()}


def one_schema(model: type[BaseModel], title: str) -> Schema:
    defs = _definitions([model])
    top: Schema = defs.pop(model.__name__)
    return {"$schema": DRAFT, **top, "title": title, "$defs": defs}


def _kernel(general: Schema, name: str, catalog: Catalog) -> Schema:
    out = _own_keys(general, "kernel", name, catalog.kernels[name])
    known = catalog.metrics.get(name)
    if known:
        out["properties"]["metrics"] |= {"items": {"enum": list(known)}, "examples": [[known[0]]]}
    return out


def _own_keys(general: Schema, key: str, name: str, parameters: Mapping[str, tuple[str, str]]) -> Schema:
    """Return the schema of a workload with the kernel or application `name`.

    key: 'kernel' or 'application'.
    """
    out = copy.deepcopy(general)
    properties: Schema = out["properties"]
    properties[key] |= {"const": name, "examples": [name]}
    out["title"], out["additionalProperties"] = f"{key} {name}", False
    for param, (type_text, doc) in parameters.items():
        kind = ParamType.of(type_text)
        properties[param] = {**kind.schema(), "description": doc, "examples": list(kind.examples)}
    return out


def _tidy(node: Any) -> Any:
    """Return a schema without pydantic's titles and without null: an optional key is omitted, not null."""
    if isinstance(node, list):
        return [_tidy(n) for n in node]
    if not isinstance(node, dict):
        return node
    out = {k: _tidy(v) for k, v in node.items() if not (k == "title" and isinstance(v, str))}
    if isinstance(out.get("description"), str):
        out["description"] = with_backends(out["description"])
    if "default" in out and out["default"] is None:
        del out["default"]
    either = out.get("anyOf")
    if isinstance(either, list) and {"type": "null"} in either:
        rest = [e for e in either if e != {"type": "null"}]
        if len(rest) == 1:
            del out["anyOf"]
            out = {**rest[0], **out}
    return out
