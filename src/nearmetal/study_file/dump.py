"""Write a Study as a study file that loads back to an equal Study, for the frozen study of a results
directory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import UsageError
from ..model.environments.environment import BackendSettings
from ..model.keys import KeyKind, ListOf, Named, Pairs, ValueType, keys_of, usual
from ..model.study import ApplicationWorkload, CommandWorkload, EventSubject, KernelWorkload, Study, Workload
from .catalog import Catalog, ParamType
from .problems import MAX_BYTES
from .tree import MAX_TEXT
from .workloads.kernels import Known

#: First line of every study file that is written, so that editors complete and check it.
SCHEMA_LINE = "# yaml-language-server: $schema=./nearmetal.schema.json"

# YAML text by key. Values that are None or empty are left out.
Tree = Mapping[str, "str | Tree | None"]
_SAFE = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*|[1-9][0-9]*x[0-9]+")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "nan", "inf"})


def dump_study(study: Study, catalog: Catalog) -> str:
    """Return the text of a study file. Values have units, and the seed is always written.

    catalog: gives the types of parameters: sizes, times or shares. The file loads back with the same
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


def _keyed(value: object) -> Tree:
    """Return the values of the fields that are declared as keys. Defaults are left out; if all values are
    defaults, the first key is written."""
    every = {f.name: (f, key) for f, key in keys_of(type(value)) if key.written}
    for name, (_, key) in list(every.items()):
        if key.written_before:
            names = [n for n in every if n != name]
            names.insert(names.index(key.written_before), name)
            every = {n: every[n] for n in names}
    given: dict[str, str | Tree | None] = {}
    for name, (f, key) in every.items():
        own = getattr(value, name)
        if key.always or own != usual(f):
            given |= _keyed(own) if key.beside else dict([_item(key.name, key.kind, own)])
    if not given:
        f, key = next(iter(every.values()))
        given = dict([_item(key.name, key.kind, getattr(value, f.name))])
    return given


def _item(name: str, kind: KeyKind, value: Any) -> tuple[str, str | Tree | None]:
    if isinstance(value, BackendSettings):
        return value.section, _keyed(value)
    if value is None:
        return name, None
    match kind:
        case ListOf():
            return name, f"[{', '.join(_scalar(kind.item, v) for v in value)}]"
        case Pairs():
            return name, dict(_item(key, kind.values, own) for key, own in value.items())
        case Named():
            return name, {entry.name: _keyed(entry) for entry in value}
        case ValueType():
            return name, _scalar(kind, value)
        case _:
            return name, _keyed(value)


def _scalar(kind: ValueType, value: Any) -> str:
    return kind.write(value) if kind.plain else _text(kind.write(value))


def _workload(w: Workload, catalog: Catalog) -> Tree:
    match w:
        case KernelWorkload():
            return _with_params(w, w.params, catalog.kernels.get(w.kernel, {}))
        case ApplicationWorkload():
            entry = catalog.applications.get(w.application)
            return _with_params(w, w.params, {} if entry is None else entry.parameters)
        case CommandWorkload() | EventSubject():
            return _keyed(w)


def _with_params(w: Workload, params: Mapping[str, str | int | float], known: Known) -> Tree:
    """Return the keys of a workload. Its parameters come directly after the first key."""
    (name, value), *others = _keyed(w).items()
    return {name: value, **_params(params, known), **dict(others)}


def _params(params: Mapping[str, str | int | float], known: Known) -> dict[str, str]:
    """Return parameters as texts that read back as the same values with or without the catalogue."""
    out = {}
    for name, value in params.items():
        if isinstance(value, str):
            out[name] = _text(value)
        else:
            out[name] = ParamType.of(known[name][0]).write(value) if name in known else repr(value)
    return out


def _lines(tree: Tree, indent: str) -> list[str]:
    out = []
    for key, value in tree.items():
        if isinstance(value, str):
            out.append(f"{indent}{_text(key)}: {value}")
        elif value:
            below = _lines(value, indent + "  ")
            out += [f"{indent}{_text(key)}:", *below] if below else []
    return out


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
