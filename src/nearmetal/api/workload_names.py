"""Parses workloads on a command line (cg, npb:ep.S, hpl:nb=32..512), and lists the keys of applications in
study files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..errors import UsageError
from ..host import LocalHost
from ..lifecycle import Method
from ..model.keys import ValueMistake, ValueType, did_you_mean, keys_of
from ..model.study import ApplicationWorkload, Attachment, KernelWorkload, LifecycleSubject, Study, Workload
from ..node.machine import hardware_of
from ..study_file.catalog import KnownApplication, ParamType, subject_facts, subject_names
from ..study_file.workloads.methods import METHOD, METHODS
from ..units import UnitError
from ..workloads.applications.registry import application_names, metric_names, needs_storage, parameters
from ..workloads.parameter import AUTO, Kind

if TYPE_CHECKING:
    from ..study_file.catalog import Catalog, KnownApplication, ParamValue
    from ..workloads.parameter import Parameter

NPB = "npb"


def named_workloads(texts: Sequence[str], known: Catalog, quick: Study) -> tuple[Workload, ...]:
    """Parse the values of --workload. A value is a list of workload names, separated by commas.

    A name may be followed by ':' and its keys: name:key=value,key=value. npb:ep.S, ep.S and ep:S are all the
    kernel ep of class S.

    quick: the study whose workloads can be selected by their names in it.

    Raises UsageError for an unknown workload, or one that is named twice.
    """
    found: dict[str, Workload] = {}
    for word in _words(texts):
        workload = _named(word, known, quick)
        if workload.name in found:
            raise UsageError(f"--workload: {word} is named twice")
        found[workload.name] = workload
    return tuple(found.values())


def lifecycles() -> tuple[str, ...]:
    """Return the names of the subjects that checkpoint or move instances by different methods."""
    return tuple(
        name for name in subject_names() if issubclass(subject_facts(name).workload, LifecycleSubject)
    )


def named_lifecycle(text: str, memory: int | None) -> LifecycleSubject:
    """Parse the value of --lifecycle: the name of a subject, and its keys, as in migrate:load=idle,count=4.

    memory: value of the key `memory`, in bytes; None to leave it out.

    Raises UsageError for an unknown subject or key, or a wrong value.
    """
    name, _, rest = text.partition(":")
    if name not in lifecycles():
        raise UsageError(f'--lifecycle: unknown "{name[:40]}"{did_you_mean(name, lifecycles())}')
    facts = subject_facts(name)
    workload = cast("type[LifecycleSubject]", facts.workload)
    without = ("subject", METHOD, METHODS)
    readers = {key.name: (f.name, key.kind) for f, key in keys_of(workload) if key.name not in without}
    values: dict[str, object] = {} if memory is None else {"memory": memory}
    for key, value in _given(rest, text, "--lifecycle").items():
        if key not in readers:
            raise UsageError(f"--lifecycle {name}: no key {key[:40]!r}{did_you_mean(key, readers)}")
        if key in values:
            raise UsageError(f"--lifecycle {name}: {key} is given by its option too")
        field, kind = readers[key]
        assert isinstance(kind, ValueType)
        try:
            values[field] = kind.read(value)
        except ValueMistake as e:
            raise UsageError(f"--lifecycle {name}: {key}: {e}") from e
    event = workload(name=name, facts=facts, **cast("dict[str, Any]", values))
    if (what := event.misfit) is not None:
        raise UsageError(f"--lifecycle {name}: {what[0]} {what[1]}")
    return event


def named_methods(words: Sequence[str]) -> tuple[Method, ...]:
    """Parse the values of --methods: lists of methods, separated by commas. Raises UsageError."""
    return tuple(map(Method, _known_names("--methods", words, tuple(Method))))


def named_attachments(words: Sequence[str]) -> tuple[Attachment, ...]:
    """Parse the values of --attachment: lists of attachments, separated by commas. Raises UsageError."""
    # An attachment that uses devices needs their names, and there is no option for them.
    known = [a for a in Attachment if not a.on_device]
    return tuple(map(Attachment, _known_names("--attachment", words, known)))


def _known_names(option: str, texts: Sequence[str], known: Sequence[str]) -> list[str]:
    """Split lists at commas. Raises UsageError if a name is unknown, or is given twice."""
    found: list[str] = []
    for word in (w.strip() for text in texts for w in text.split(",")):
        if word not in known:
            raise UsageError(f'{option}: unknown "{word[:40]}"{did_you_mean(word, known)}')
        if word in found:
            raise UsageError(f"{option}: {word} is named twice")
        found.append(word)
    return found


def _words(texts: Sequence[str]) -> list[str]:
    """Split 'a,b:x=1,y=2' into 'a' and 'b:x=1,y=2'. A piece that is only key=value belongs to the workload
    before it."""
    out: list[str] = []
    for piece in (p.strip() for text in texts for p in text.split(",")):
        if "=" in piece and ":" not in piece.partition("=")[0] and out and ":" in out[-1]:
            out[-1] += f",{piece}"
        else:
            out.append(piece)
    return out


def _named(word: str, known: Catalog, quick: Study) -> Workload:
    name, _, rest = word.partition(":")
    if (benchmark := _nas_benchmark(word, known)) is not None:
        name, size = benchmark
        rest = f"class={size}"
    given = _given(rest, word)
    if name in known.kernels and given:
        values = read_values(name, given, known.kernels[name])
        texts = [value if isinstance(value, str) else given[key] for key, value in values.items()]
        title = "-".join([name, *("".join(c if c.isalnum() else "-" for c in text) for text in texts)])
        return KernelWorkload(name=title[:60], kernel=name, params=values)
    if name in known.applications:
        entry = known.applications[name]
        params = read_values(name, given, entry.parameters)
        for key, value in params.items():
            if (what := entry.misfit(key, value)) is not None:
                raise UsageError(f"{name}: {key}: {what}")
        return ApplicationWorkload(name=name, application=name, params=params)
    if given:
        raise UsageError(f"--workload: {name} takes no keys", remedy="name:key=value is for kernels")
    return _plain(name, known, quick)


def _nas_benchmark(word: str, known: Catalog) -> tuple[str, str] | None:
    """Return the kernel and the class for cg.A, cg:A and npb:cg.A, in upper or lower case; None for other
    words.

    Raises UsageError if there is no such kernel or class.
    """
    text = word.removeprefix(f"{NPB}:")
    name, size = (*re.split("[.:]", text, maxsplit=1), "")[:2]
    name = name.lower()
    classes = {
        n: ParamType.of(keys["class"][0]).words for n, keys in known.kernels.items() if "class" in keys
    }
    if name not in classes:
        if text == word:
            return None
        raise UsageError(
            f"--workload {word}: no NAS benchmark {name!r}",
            remedy=f"one of {', '.join(f'{NPB}:{n}.S' for n in classes)}",
        )
    if "=" in size or word.lower() == name:
        return None
    if size.upper() not in classes[name]:
        raise UsageError(
            f"--workload {word}: {name} has no class {size!r}" if size else f"--workload {word}: no class",
            remedy=f"one of {', '.join(f'{name}:{c}' for c in classes[name])}",
        )
    return name, size.upper()


def _plain(name: str, known: Catalog, quick: Study) -> Workload:
    usual = {w.name: w for w in quick.kernels}
    if name in usual:
        return usual[name]
    if name in known.kernels:
        return KernelWorkload(name=name, kernel=name, params={})
    events = subject_names()
    if name in events:
        facts = subject_facts(name)
        return facts.workload(name=name, facts=facts)
    names = ", ".join(dict.fromkeys([*usual, *known.kernels, *known.applications, *events]))
    raise UsageError(f"no workload {name}", remedy=f"one of {names}")


def _given(text: str, word: str, option: str = "--workload") -> dict[str, str]:
    out: dict[str, str] = {}
    for piece in text.split(",") if text else ():
        key, equals, value = piece.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise UsageError(f"{option} {word}: {piece!r} is not key=value")
        if key.strip() in out:
            raise UsageError(f"{option} {word}: {key.strip()} is given twice")
        out[key.strip()] = value.strip()
    return out


def read_values(
    owner: str, texts: Mapping[str, str], known: Mapping[str, tuple[str, str]]
) -> dict[str, ParamValue]:
    """Convert the texts of a command line to values in base units.

    owner: name of the kernel or application that has these keys, for messages.
    texts: text of the value, by key.
    known: (type, purpose) by key.

    Raises UsageError for an unknown key or a wrong value.
    """
    out: dict[str, ParamValue] = {}
    for key, text in texts.items():
        if key not in known:
            raise UsageError(f"{owner} has no key {key}{did_you_mean(key, known)}")
        kind = ParamType.of(known[key][0])
        try:
            out[key] = kind.read(next((w for w in kind.words if w.casefold() == text.casefold()), text))
        except UnitError as e:
            raise UsageError(f"{owner}: {key}: {e}") from e
    return out


def type_of(parameter: Parameter) -> str:
    """Return the type of a parameter as a text in the form of Catalog, such as 'S | W | A | B', 'count |
    auto' or 'size'."""
    words = {
        Kind.WHOLE: ("count",),
        Kind.BYTES: ("size",),
        Kind.RATE: ("rate",),
        Kind.SECONDS: ("time",),
        Kind.SHARE: ("share",),
        Kind.WORD: parameter.words,
        Kind.TEXT: ("text",),
    }
    return " | ".join([*words[parameter.kind], *([AUTO] if parameter.takes_auto else [])])


def known_applications() -> dict[str, KnownApplication]:
    """Return the keys of each application in study files, and the rules for them, by name of the
    application."""

    def misfit(application: str, name: str, value: ParamValue) -> str | None:
        return parameters(application)[name].problem(value)

    return {
        name: KnownApplication(
            parameters={p.name: (type_of(p), p.doc) for p in parameters(name).values()},
            misfit=partial(misfit, name),
            metrics=metric_names,
            misplaced=misplaced,
            needs_storage=needs_storage,
        )
        for name in application_names()
    }


def misplaced(workload: ApplicationWorkload, study: Study) -> tuple[str, ...]:
    """Return why a workload cannot run on some arms of a study, one text for each reason; empty if it can run
    on all."""
    from ..node.survey.programs import problems_of

    return problems_of(workload, study, hardware_of(LocalHost()))
