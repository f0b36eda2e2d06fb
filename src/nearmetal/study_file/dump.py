"""Write a Study as a study file that loads back to an equal Study, for the frozen study of a results
directory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import UsageError
from ..model.environments.environment import BackendSettings
from ..model.keys import Each, Kind, keys_of, usual
from ..model.study import (
    ApplicationWorkload,
    Bounds,
    CommandWorkload,
    EventSubject,
    KernelWorkload,
    MetricSpec,
    Study,
    VerifySpec,
    Workload,
)
from ..units import Dimension, exact
from .catalog import Catalog
from .tree import MAX_BYTES, MAX_TEXT
from .workloads.kernels import Known, write_number

#: First line of every study file that is written, so that editors complete and check it.
SCHEMA_LINE = "# yaml-language-server: $schema=./nearmetal.schema.json"

# YAML text by key. Values that are None or empty are left out.
Tree = Mapping[str, "str | Tree | None"]
_SAFE = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*|[1-9][0-9]*x[0-9]+")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "nan", "inf"})


def dump_study(study: Study, catalog: Catalog) -> str:
    """Return the text of a study file. Values have units, and the seed is always written.

    catalog: says which kernel parameters are sizes, times or shares. The file loads back with the same
        catalogue or without one.
    Raises UsageError if the study contains something that a file cannot hold.
    """
    tree: Tree = {
        "name": _text(study.name),
        "question": _text(study.question) if study.question else None,
        "environments": {
            e.name: _keyed(e if e.inside is None else replace(e, guest=None)) for e in study.environments
        },
        "images": {i.name: _keyed(i) for i in study.images},
        "placements": {p.name: _keyed(p) for p in study.placements},
        "workloads": {w.name: _workload(w, catalog) for w in study.workloads},
        "design": _keyed(study.design),
    }
    text = "\n".join([SCHEMA_LINE, *_lines(tree, "")]) + "\n"
    if len(text.encode()) > MAX_BYTES:
        raise UsageError(f"the study is larger than {MAX_BYTES >> 20} MiB")
    return text


def _keyed(told: object) -> Tree:
    """Return the values of the fields that are declared as keys. Defaults are left out; if all values are
    defaults, the first key is written."""
    every = {f.name: (f, key) for f, key in keys_of(type(told))}
    for name, (_, key) in list(every.items()):
        if key.written_before:
            names = [n for n in every if n != name]
            names.insert(names.index(key.written_before), name)
            every = {n: every[n] for n in names}
    given = {
        key.name: (key.kind, getattr(told, name))
        for name, (f, key) in every.items()
        if key.always or getattr(told, name) != usual(f)
    }
    if not given:
        f, key = next(iter(every.values()))
        given = {key.name: (key.kind, getattr(told, f.name))}
    return dict(_item(name, kind, value) for name, (kind, value) in given.items())


def _item(name: str, kind: Kind | Each | type[Any], value: Any) -> tuple[str, str | Tree | None]:
    if isinstance(value, BackendSettings):
        return value.section, _keyed(value)
    if value is None:
        return name, None
    if isinstance(kind, Each):
        return name, f"[{', '.join(_scalar(kind.item, v) for v in value)}]"
    return name, _scalar(kind, value) if isinstance(kind, Kind) else _keyed(value)


def _scalar(kind: Kind, value: Any) -> str:
    return kind.write(value) if kind.plain else _text(kind.write(value))


def _workload(w: Workload, catalog: Catalog) -> Tree:
    match w:
        case KernelWorkload():
            known = catalog.kernels.get(w.kernel, {})
            params = _params(w.params, known)
            metrics = _list(w.metrics) if w.metrics else None
            return {"kernel": _text(w.kernel), **params, "pages": str(w.pages), "metrics": metrics}
        case ApplicationWorkload():
            entry = catalog.applications.get(w.application)
            types = {} if entry is None else entry.parameters
            return {
                "application": _text(w.application),
                **_params(w.params, types),
                "time_limit": exact(w.time_limit, Dimension.TIME),
            }
        case CommandWorkload():
            return {
                "command": _list(w.argv) if w.argv else None,
                "script": None if w.script is None else _text(w.script),
                "files": {path: _text(name) for path, name in w.files.items()},
                "mpi": "true" if w.mpi else "false",
                "per_task": "true" if w.per_task else None,
                "env": {k: _text(v) for k, v in w.env.items()},
                "metrics": {m.name: _metric(m) for m in w.metrics},
                "verify": _verify(w.verify) if w.verify is not None else None,
                "exit_codes": _numbers(w.exit_codes) if w.exit_codes != CommandWorkload.exit_codes else None,
                "time_limit": exact(w.time_limit, Dimension.TIME),
            }
        case EventSubject():
            return {"subject": w.facts.name, "count": None if w.count is None else str(w.count)}


def _params(params: Mapping[str, str | int | float], known: Known) -> dict[str, str]:
    return {
        name: _text(value) if isinstance(value, str) else write_number(name, value, known)
        for name, value in params.items()
    }


def _metric(m: MetricSpec) -> Tree:
    return {
        "regex": None if m.regex is None else _text(m.regex),
        "json_path": None if m.json_path is None else _text(m.json_path),
        "file": None if m.file is None else _text(m.file),
        "unit": _text(m.unit),
        "scale": repr(m.scale) if m.scale != 1 else None,
        "better": str(m.better),
        **_bounds(m.bounds),
    }


def _verify(v: VerifySpec) -> Tree:
    reference = v.reference
    return {
        "file": None if v.file is None else _text(v.file),
        "regex": None if v.regex is None else _text(v.regex),
        "expected": None if v.expected is None else _text(v.expected),
        **_bounds(v.bounds),
        "reference": None if reference is None else _text(reference.path),
        "tolerance": None if reference is None else _real(reference.tolerance),
        "absolute": None if reference is None else _real(reference.absolute),
    }


def _bounds(bounds: Bounds) -> Tree:
    return {"min": _real(bounds.least), "max": _real(bounds.most)}


def _real(value: float | None) -> str | None:
    return None if value is None else repr(value)


def _lines(tree: Tree, indent: str) -> list[str]:
    out = []
    for key, value in tree.items():
        if isinstance(value, str):
            out.append(f"{indent}{_text(key)}: {value}")
        elif value:
            below = _lines(value, indent + "  ")
            out += [f"{indent}{_text(key)}:", *below] if below else []
    return out


def _list(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(_text(t) for t in texts)}]"


def _numbers(numbers: Sequence[int]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _text(text: str) -> str:
    """Return a text in YAML: plain if it cannot be mistaken for another type, else in double quotes."""
    if len(text) > MAX_TEXT:
        raise UsageError(f"a text of {len(text)} characters; a study holds at most {MAX_TEXT}")
    if _SAFE.fullmatch(text) and text.casefold() not in _WORDS:
        return text
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise UsageError(f"a study file cannot hold {text[:60]!r}: it is not valid Unicode text")
    # YAML has the same escapes as JSON, but more characters must be escaped.
    return "".join(c if c.isprintable() else _escape(c) for c in json.dumps(text, ensure_ascii=False))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
