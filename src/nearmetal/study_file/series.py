"""Load a series file with the study files of its parts, or raise StudyError with the position of every
mistake in any of them. No program is started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from ..errors import StudyError, StudyProblem
from ..model.environments.image import ImageDefinition
from ..model.keys import did_you_mean
from ..model.series import PER_NODE, Figure
from ..model.series_file import PartEntry, SeriesFile, SeriesFiles
from ..model.study import ApplicationWorkload, Study
from ..model.sweep import LEAST_NUMBERS, LEAST_POINTS, numbered, sweeps
from ..studies import SERIES_FILE
from .catalog import Catalog, KnownApplication
from .load import load_text
from .problems import Path, Problems
from .schema import Schema, one_schema
from .tree import Located, read_tree
from .validate import read
from .workloads.entries import metrics_of

SERIES_SCHEMA_NAME = "nearmetal-series.schema.json"
#: First line of every series file that is written, so that editors complete and check it.
SERIES_SCHEMA_LINE = f"# yaml-language-server: $schema=./{SERIES_SCHEMA_NAME}"
_TOML = ".toml"
#: Tolerance for the sum of the shares, which are decimal fractions.
_ROUNDING = 1e-9


def load_series(
    text_of: Callable[[str], str],
    name_of: Callable[[str], str],
    catalog: Catalog,
    *,
    seed: int,
    published: Container[str],
    table_problems: Callable[[str, str], Iterable[StudyProblem]],
) -> SeriesFiles:
    """Return a series and the studies of its parts.

    text_of: returns the text of a file of the series, given the name of the file. May raise OSError or
        UnicodeDecodeError.
    name_of: returns the name of such a file in messages.
    seed: seed of the studies that give none.
    published: names of the published tables that come with nearmetal.
    table_problems: returns the mistakes in a published table, given the text and the name of its file.

    Raises StudyError if a file has mistakes or is missing, OSError if the series file cannot be read.
    """
    problems = Problems(name_of(SERIES_FILE))
    top = Located(node=read_tree(text_of(SERIES_FILE), problems), path=(), problems=problems)
    head = read(SeriesFile, top)
    found: list[StudyProblem] = []
    studies: dict[str, Study] = {}
    table = ""
    if head is not None:
        catalog = _with_imports(catalog, head.narrow.imports)
        lenient = _without_placing(catalog, head.narrow.optional)
        for entry in head.parts:
            file = entry.file or f"{entry.name}.yaml"
            text = _text(text_of, file, top, ("parts", entry.name, "file"))
            if text is None:
                continue
            try:
                studies[entry.name] = load_text(text, name_of(file), lenient, seed=seed)
            except StudyError as e:
                found += e.problems
        for number, entry in enumerate(head.parts):
            if entry.name in studies:
                _check_part(entry, studies[entry.name], top, catalog)
            _check_sizes(entry, [e.name for e in head.parts[:number]], studies, head, top)
        _check_head(head, top)
        _check_names(studies, top)
        _check_rules(head, studies, top, catalog)
        if head.published.endswith(_TOML):
            text = _text(text_of, head.published, top, ("published",))
            found += () if text is None else table_problems(text, name_of(head.published))
            table = text or ""
        elif head.published and head.published not in published:
            what = f'no published table "{head.published}" comes with nearmetal; a file of your own ends '
            top.mistake(("published",), f"{what}with {_TOML}")
    found = [*(problems.error().problems if problems.found else ()), *found]
    if found or head is None:
        raise StudyError(tuple(found))
    return SeriesFiles(head=head, studies=studies, table=table)


def _with_imports(catalog: Catalog, imports: Container[str]) -> Catalog:
    """Return a catalog that accepts images that the user imports, even if they are missing. On a machine
    without an image, the environments that use it are left out later."""

    def no_image(name: str, own: Mapping[str, ImageDefinition], file: str) -> str | None:
        return None if name in imports else catalog.no_image(name, own, file)

    return replace(catalog, no_image=no_image)


def _text(text_of: Callable[[str], str], file: str, top: Located, at: Path) -> str | None:
    """Return the text of a file of a series. If it cannot be read, add a mistake and return None.

    text_of: returns the text of a file, or raises OSError or UnicodeDecodeError.
    top, at: the series file, and the path of the key in it that names the file; a mistake is reported there.
    """
    try:
        return text_of(file)
    except OSError as e:
        what = f"cannot read {file}: {e.strerror or e}"
    except UnicodeDecodeError:
        what = f"{file} is not UTF-8"
    top.mistake(at, what)
    return None


def _without_placing(catalog: Catalog, optional: Container[str]) -> Catalog:
    """Return a catalog that accepts optional workloads even if this machine cannot run them. They are left
    out later."""

    def placed(known: KnownApplication) -> KnownApplication:
        def misplaced(w: ApplicationWorkload, study: Study) -> tuple[str, ...]:
            return () if w.name in optional else known.misplaced(w, study)

        return replace(known, misplaced=misplaced)

    return replace(catalog, applications={name: placed(a) for name, a in catalog.applications.items()})


def _check_head(head: SeriesFile, top: Located) -> None:
    if not head.parts and not top.unread("parts"):
        top.mistake(("parts",), "a series has at least one part")
    whole = 0.0
    for entry in head.parts:
        whole += entry.share
        if whole > 1 + _ROUNDING:
            at: Path = ("parts", entry.name, "share")
            what = f"up to here the shares are {100 * whole:.4g} % of the time, which is above 100 %"
            top.mistake(at, what)
            return


def _check_names(studies: Mapping[str, Study], top: Located) -> None:
    """Check that the results directories of the parts have different names."""
    counted = Counter(s.name for s in studies.values())
    for key, study in studies.items():
        if counted[study.name] > 1:
            at: Path = ("parts", key)
            what = f'several parts have a study called "{study.name}"; write another name into one of them'
            top.mistake(at, what, key=True)


def _check_part(entry: PartEntry, study: Study, top: Located, catalog: Catalog) -> None:
    """Check the names of environments and placements in the entry of a part."""
    environments = tuple(e.name for e in study.environments)
    arms = tuple(a.name for a in study.arms())
    for word, named in entry.places.items():
        for name in named:
            if name not in environments and name not in arms:
                at: Path = ("parts", entry.name, "places", word)
                known = arms if "/" in name else environments
                what = f'"{name}" is not an environment or placement of the study file'
                top.mistake(at, what + did_you_mean(name, known))
    for number, name in enumerate(entry.needs):
        if name not in environments:
            at = ("parts", entry.name, "needs", number)
            what = f'no environment is called "{name}"{did_you_mean(name, environments)}'
            top.mistake(at, what)
    for figure in entry.figures:
        if why := _no_figure(figure, study, catalog):
            at = ("parts", entry.name, "figures")
            top.mistake(at, f"the chart {figure} shows {why}")
    if Figure.PACKING in entry.figures and not packed_places(entry.places):
        at = ("parts", entry.name, "figures")
        what = f'the chart {Figure.PACKING} shows places called "1{PER_NODE}", "2{PER_NODE}"; there are none'
        top.mistake(at, what)


def _check_sizes(
    entry: PartEntry, earlier: Sequence[str], studies: Mapping[str, Study], head: SeriesFile, top: Located
) -> None:
    """Check that a part takes its sizes from an earlier part, and that the results of that part can choose
    them."""
    source = entry.sizes_from
    if not source:
        return
    what = ""
    if source not in earlier:
        what = f'no part before this one is called "{source}"{did_you_mean(source, earlier)}'
    elif not head.published:
        what = "sizes are chosen by the shares in a published table; write published: FILE.toml"
    elif source in studies and not studies[source].design.profile:
        what = f"the shares are those of profiles; write profile: true into the design of {source}"
    elif source in studies and (others := _beside_baseline(studies[source])):
        what = f"sizes are chosen by the baseline alone; take {', '.join(others)} out of {source}"
    if what:
        top.mistake(("parts", entry.name, "sizes_from"), what)


def _beside_baseline(study: Study) -> list[str]:
    """Return the names of the environments of a study other than its first baseline."""
    return [e.name for e in study.environments if e.name != study.design.baselines[0]]


def _no_figure(figure: Figure, study: Study, catalog: Catalog) -> str:
    """Return '' if a study has what a chart shows. Otherwise return what that is, for the message."""
    match figure:
        case Figure.CURVE if not any(s.curved for s in sweeps(study)) and not _numbered(study, catalog):
            return "workloads that differ in one number only, three or more (of events two); there are none"
        case Figure.RANKS if len({a.placement.ranks for a in study.arms()}) < LEAST_NUMBERS:
            return "placements of different numbers of ranks; there are none"
        case Figure.STEPS if not any(w.event for w in study.workloads):
            return "the steps of events of instances; no workload has a subject"
        case _:
            return ""


def _numbered(study: Study, catalog: Catalog) -> bool:
    """Return whether a workload has metrics that differ only by a number in their names."""
    found = ((numbered(m), w.name) for w in study.workloads for m in metrics_of(w, catalog))
    counted = Counter((name, stem[0]) for stem, name in found if stem is not None)
    return max(counted.values(), default=0) >= LEAST_POINTS


def packed_places(words: Sequence[str] | Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of places that a packing chart shows, such as '2 per node'."""
    return tuple(w for w in words if w.endswith(PER_NODE) and w.removesuffix(PER_NODE).isdecimal())


def _check_rules(head: SeriesFile, studies: Mapping[str, Study], top: Located, catalog: Catalog) -> None:
    # A part with mistakes of its own may have the names that are missing.
    parts = top.get("parts")
    whole = parts is not None and len(studies) == len(parts.entries)
    environments = [e for s in studies.values() for e in s.environments]
    workloads = {w.name for s in studies.values() for w in s.applications}
    used, images, names = ({getattr(e, of) for e in environments} for of in ("backend", "image", "name"))
    narrow = head.narrow
    for key, entries, known, what in (
        ("optional", narrow.optional, workloads, "no application workload is called"),
        ("backends", narrow.backends, used, "no environment has the backend"),
        ("imports", narrow.imports, images, "no environment has the image"),
        ("own_backend", narrow.own_backend, names, "no environment is called"),
        ("containers", narrow.containers, names, "no environment is called"),
    ):
        keyed = isinstance(entries, Mapping)
        for number, name in enumerate(entries):
            if whole and name not in known:
                at: Path = ("narrow", key, name if keyed else number)
                top.mistake(at, f'{what} "{name}"{did_you_mean(name, known)}', key=keyed)
    for name, preferred in narrow.backends.items():
        for other in preferred:
            if other not in catalog.backends:
                what = f'unknown backend "{other}"{did_you_mean(other, catalog.backends)}'
                top.mistake(("narrow", "backends", name), what)
    for study in studies.values():
        own = [e.name for e in study.environments]
        renamed = [narrow.containers.get(name, name) for name in own]
        for name, other in narrow.containers.items():
            if name in own and renamed.count(other) > 1:
                at = ("narrow", "containers", name)
                top.mistake(at, f'two environments of a part would be called "{other}"')


def series_schema() -> Schema:
    """Return the JSON Schema of series files, for editors."""
    from .sections import section_of

    return one_schema(section_of(SeriesFile), "A study in parts of nearmetal")
