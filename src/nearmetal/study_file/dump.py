"""Study -> a study file that loads back to an equal Study: the frozen study of a results directory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError
from ..model.guest import GuestSettings
from ..model.image import ImageDefinition
from ..model.keys import Kind, keys_of, usual
from ..model.network import NetworkSettings
from ..model.study import (
    ApplicationWorkload,
    Bounds,
    CommandWorkload,
    Companion,
    Design,
    Environment,
    EventSubject,
    KernelWorkload,
    Limits,
    MetricSpec,
    NodeLink,
    Placement,
    Storage,
    Study,
    VerifySpec,
    Workload,
)
from ..units import Dimension, exact
from .catalog import Catalog
from .guest import TEXTS, guest_words
from .kernels import Known, write_number
from .tree import MAX_BYTES, MAX_TEXT

#: First line of every study file that is written, so that editors complete and check it.
SCHEMA_LINE = "# yaml-language-server: $schema=./nearmetal.schema.json"

# YAML text by key; what is None or empty is left out.
Tree = Mapping[str, "str | Tree | None"]
_SAFE = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*|[1-9][0-9]*x[0-9]+")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "nan", "inf"})


def dump_study(study: Study, catalog: Catalog) -> str:
    """The text; values with units, the seed always. catalog: tells which kernel parameters are sizes, times
    or shares. Loads back with the same catalogue or with none. Raises UsageError for what no file can hold.
    """
    tree: Tree = {
        "name": _text(study.name),
        "question": _text(study.question) if study.question else None,
        "environments": {e.name: _environment(e) for e in study.environments},
        "images": {i.name: _image(i) for i in study.images},
        "placements": {p.name: _placement(p) for p in study.placements},
        "workloads": {w.name: _workload(w, catalog) for w in study.workloads},
        "design": _design(study.design),
    }
    text = "\n".join([SCHEMA_LINE, *_lines(tree, "")]) + "\n"
    if len(text.encode()) > MAX_BYTES:
        raise UsageError(f"the study is larger than {MAX_BYTES >> 20} MiB")
    return text


def _environment(e: Environment) -> Tree:
    return {
        "backend": _text(e.backend),
        "image": _text(e.image),
        "attachment": str(e.attachment),
        "network": _network(e.network),
        "limits": _limits(e.limits),
        "guest": None if e.guest is None or e.inside is not None else _guest(e.guest),
        "inside": None if e.inside is None else _text(e.inside),
        **({} if e.own is None else {e.own.section: _keyed(e.own)}),
        "beside": None if e.beside is None else _beside(e.beside),
        "storage": None if e.storage is None else _storage(e.storage),
        "placements": _list(e.placements),
        "workloads": _list(e.workloads) if e.workloads else None,
        "transport": str(e.transport) if e.transport is not Environment.transport else None,
        "share": _list(tuple(e.share)) if e.share else None,
        "extra_work": exact(e.extra_work, Dimension.SHARE) if e.extra_work else None,
        "emulated": _text(e.emulated) if e.emulated else None,
    }


def _limits(limits: Limits) -> Tree:
    quota, shares, memory = limits.cpu_quota, limits.cpu_shares, limits.memory
    return {
        "cpu": None if quota is None else exact(quota, Dimension.SHARE),
        "cpu_shares": None if shares is None else str(shares),
        "memory": None if memory is None else exact(memory, Dimension.SIZE),
    }


def _beside(c: Companion) -> Tree:
    return {
        "backend": _text(c.backend),
        "command": _list(c.argv),
        "limits": _limits(c.limits),
        "cpus": _numbers(c.cpus) if c.cpus else None,
    }


def _guest(g: GuestSettings) -> Tree:
    """Keys as usual are left out; of a guest that is as usual in all, one that says so."""
    own = {k: v for k, v in guest_words(g).items() if v is not None} or {"accelerator": str(g.accelerator)}
    return {k: _text(v) if k in TEXTS else v for k, v in own.items()}


def _keyed(told: object) -> Tree:
    """What is declared as keys: what is as usual is left out, but for one key where all is."""
    every = {key.name: (f, key.kind) for f, key in keys_of(type(told))}
    given = {name: (f, kind) for name, (f, kind) in every.items() if getattr(told, f.name) != usual(f)}
    return {
        name: _value(kind, getattr(told, f.name))
        for name, (f, kind) in (given or dict([next(iter(every.items()))])).items()
    }


def _value(kind: Kind | type[Any], value: Any) -> str | Tree:
    if not isinstance(kind, Kind):
        return _keyed(value)
    return kind.write(value) if kind.plain else _text(kind.write(value))


def _storage(s: Storage) -> Tree:
    return {
        "kind": str(s.kind),
        "path": None if s.path is None else _text(s.path),
        "size": None if s.size is None else exact(s.size, Dimension.SIZE),
        "overwrite": "true" if s.overwrite else None,
    }


def _network(s: NetworkSettings) -> Tree:
    return {
        "mode": None if s.mode is None else _text(s.mode),
        "devices": _list(s.devices) if s.devices else None,
        "subnet": None if s.subnet is None else _text(s.subnet),
        "mtu": None if s.mtu is None else str(s.mtu),
        "rto_min": None if s.rto_min is None else exact(s.rto_min, Dimension.TIME),
        "congestion_control": None if s.congestion_control is None else _text(s.congestion_control),
        "rate": None if s.rate is None else exact(s.rate, Dimension.RATE),
        "queue_length": None if s.queue_length is None else str(s.queue_length),
        "offloads": {name: "on" if on else "off" for name, on in s.offloads.items()},
    }


def _image(i: ImageDefinition) -> Tree:
    return {
        "suite": _text(i.suite),
        "packages": _list(i.packages) if i.packages else None,
        "variant": str(i.variant),
        "mirror": None if i.mirror is None else _text(i.mirror),
        "sources": _list(i.sources) if i.sources else None,
    }


def _placement(p: Placement) -> Tree:
    return {
        "nodes": str(p.nodes) if p.nodes > 1 else None,
        "link": _link(p.link) if p.link != NodeLink() else None,
        "instances": str(p.instances),
        "tasks": str(p.tasks),
        "cpus": _numbers(p.cpus) if p.cpus else None,
        "pinning": str(p.pinning),
        "oversubscribe": "true" if p.oversubscribe else None,
    }


def _link(link: NodeLink) -> Tree:
    return {
        "rate": exact(link.rate, Dimension.RATE),
        "delay": exact(link.delay, Dimension.TIME),
        "queue": exact(link.queue, Dimension.SIZE),
    }


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


def _design(d: Design) -> Tree:
    return {
        "baselines": _list(d.baselines),
        "margin": exact(d.margin, Dimension.SHARE),
        "confidence": exact(d.confidence, Dimension.SHARE),
        "mode": str(d.mode),
        "expected_blocks": None if d.expected_blocks is None else str(d.expected_blocks),
        "min_blocks": str(d.min_blocks),
        "max_blocks": str(d.max_blocks),
        "max_time": None if d.max_time is None else exact(d.max_time, Dimension.TIME),
        "target_width": None if d.target_width is None else exact(d.target_width, Dimension.SHARE),
        "seed": str(d.seed),
        "warm_up": str(d.warm_up),
        "runs": str(d.runs),
        "slices": None if d.slices is None else str(d.slices),
        "starts": str(d.starts),
        "profile": "true" if d.profile else "false",
        "perf_events": "true" if d.perf_events else "false",
        "sample_every": exact(d.sample_every, Dimension.TIME),
        "instance_counters": "true" if d.instance_counters else "false",
        "mpi": None if d.mpi is None else str(d.mpi),
        "reach": str(d.reach),
        "single_copy": str(d.single_copy),
        "primary": _list(d.primary) if d.primary else None,
    }


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
    """Plain where nobody could take it for anything but a text, else in double quotes."""
    if len(text) > MAX_TEXT:
        raise UsageError(f"a text of {len(text)} characters; a study holds at most {MAX_TEXT}")
    if _SAFE.fullmatch(text) and text.casefold() not in _WORDS:
        return text
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise UsageError(f"a study file cannot hold {text[:60]!r}: it is not valid Unicode text")
    # JSON's escapes are YAML's, save that YAML takes fewer characters as they are.
    return "".join(c if c.isprintable() else _escape(c) for c in json.dumps(text, ensure_ascii=False))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
