"""A frozen study loads back to an equal one, with the catalogue and without."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearmetal.errors import UsageError
from nearmetal.lifecycle import Method
from nearmetal.model.change import replace
from nearmetal.model.environments.image import ImageDefinition, Variant
from nearmetal.model.environments.network import NetworkSettings, Offloads
from nearmetal.model.keys import keys_of
from nearmetal.model.study import (
    STORAGE,
    STORAGE_VARIABLE,
    Attachment,
    Better,
    Bounds,
    CommandWorkload,
    Companion,
    DecimalMark,
    Design,
    Environment,
    EventSubject,
    KernelWorkload,
    Limits,
    Load,
    MetricSpec,
    Mode,
    Mpi,
    Pages,
    Pinning,
    Placement,
    Reach,
    Reference,
    Shared,
    SingleCopy,
    Starts,
    Storage,
    StorageKind,
    Stream,
    Study,
    TransportWish,
    VerifySpec,
    Workload,
)
from nearmetal.model.workloads.moves import Extent
from nearmetal.studies import builtin, names
from nearmetal.study_file import SCHEMA_LINE, Catalog, dump_study, load_text
from nearmetal.study_file.catalog import subject_facts, subject_names

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,12}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
#: A word with a name of the storage is refused, and rightly, where an environment has none.
WORDS = TEXTS.filter(lambda text: STORAGE not in text and STORAGE_VARIABLE not in text)
SHARES = st.floats(1e-6, 0.999)
SECONDS = st.floats(1e-9, 9e8)
COMPANIONS = (
    None,
    Companion(backend="namespaces", argv=("vmstat", "1 s")),
    Companion(backend="native", argv=("a",), limits=Limits(cpu_quota=0.1), cpus=(1, 0)),
)
STORAGES = (
    Storage(),
    Storage(kind=StorageKind.BIND, path="/data/a b"),
    Storage(kind=StorageKind.TMPFS),
    Storage(kind=StorageKind.LOOP, size=3 << 20),
    Storage(kind=StorageKind.BLOCK, path="/dev/vdb", overwrite=True),
    Storage(kind=StorageKind.NFS, path="server:/export"),
)
IMAGES = (
    ImageDefinition(name="", suite="host", packages=()),
    ImageDefinition(
        name="",
        suite="trixie",
        packages=("gcc", "libc6-dev:amd64", "cmake=3.25.1-1"),
        variant=Variant.ESSENTIAL,
        mirror="file:/srv/debian",
        sources=("deb [trusted=yes] file:/srv/own ./",),
    ),
)
IMAGE_NAMES = st.lists(NAMES.filter(lambda n: n != "host"), unique=True, max_size=2)
RATES = st.just(0.0) | st.floats(1e-3, 1e15)
COUNTS = st.integers(1, 2**62)

KERNELS: dict[str, dict[str, st.SearchStrategy[str | int | float]]] = {
    "stream": {"elements": st.one_of(COUNTS, st.just("auto")), "sweeps": COUNTS},
    "cg": {"class": st.sampled_from("SWAB"), "iterations": COUNTS},
    "pingpong": {
        "bytes": COUNTS,
        "measure": st.sampled_from(["latency", "bandwidth"]),
        "gap": SECONDS,
        "jitter": SHARES,
        "pace": RATES,
    },
}


@st.composite
def kernel_workloads(draw: st.DrawFn, name: str) -> KernelWorkload:
    kernel = draw(st.sampled_from(sorted(KERNELS)))
    chosen = draw(st.lists(st.sampled_from(sorted(KERNELS[kernel])), unique=True))
    metrics = draw(st.sampled_from([(), ("copy",), ("triad", "add")])) if kernel == "stream" else ()
    return KernelWorkload(
        name=name,
        kernel=kernel,
        params={p: draw(KERNELS[kernel][p]) for p in chosen},
        pages=draw(st.sampled_from(Pages)),
        metrics=metrics,
    )


@st.composite
def metric_specs(draw: st.DrawFn, name: str) -> MetricSpec:
    regex = draw(st.sampled_from([None, r"time: ([\d.]+) s", '"x": "(\\S+)"', "(?:é|#) (.*): &*!", "'(a)\n"]))
    path = draw(st.from_regex(r"[a-z0-9_]{1,5}(\.[a-z0-9_]{1,5}){0,3}", fullmatch=True))
    file = draw(st.none() | st.sampled_from(["log.txt", "a/b c"]))
    return MetricSpec(
        name=name,
        stream=draw(st.sampled_from(Stream)) if file is None else Stream.STDOUT,
        decimal=draw(st.none() | st.sampled_from(DecimalMark)),
        unit=draw(st.sampled_from(["s", "B/s", "Mop/s total", "%", "1", "ns/day"])),
        better=draw(st.sampled_from(Better)),
        regex=regex,
        json_path=path if regex is None else None,
        file=file,
        scale=draw(st.just(1.0) | st.floats(1e-30, 1e30)),
        bounds=draw(st.sampled_from([Bounds(), Bounds(least=-1e-9), Bounds(least=0.1, most=3.0)])),
    )


def verify_specs() -> st.SearchStrategy[VerifySpec]:
    references = st.sampled_from(
        [Reference(path="/etc/passwd"), Reference(path="/etc/group", tolerance=0.0, absolute=1e-9)]
    )
    files = st.none() | st.just("out")
    return st.one_of(
        st.builds(VerifySpec, regex=st.just("^(.*)$"), expected=st.none() | TEXTS, file=files),
        st.builds(VerifySpec, regex=st.just("(a)"), bounds=st.just(Bounds(most=-2.5)), file=files),
        st.builds(VerifySpec, regex=st.none() | st.just("a"), reference=references, file=files),
    )


@st.composite
def command_workloads(draw: st.DrawFn, name: str) -> CommandWorkload:
    keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
    mpi = draw(st.booleans())
    # A relative path of a program is made a whole one where files are put beside it.
    program = WORDS.filter(lambda word: word.strip() and "/" not in word)
    script = draw(st.none() | st.just("#!/bin/sh -e\necho '{ranks}' \"$1\"\n"))
    return CommandWorkload(
        name=name,
        argv=() if script is not None else (draw(program), *draw(st.lists(WORDS, max_size=4))),
        script=script,
        files=draw(st.sampled_from([{}, {"/etc/passwd": "in put.txt", "/etc": "etc/all"}])),
        exit_codes=draw(st.sampled_from([(0,), (0, 3), (255,)])),
        mpi=mpi,
        env=draw(st.dictionaries(keys, TEXTS, max_size=3)),
        metrics=tuple(draw(metric_specs(n)) for n in draw(st.lists(NAMES, unique=True, max_size=3))),
        verify=draw(st.none() | verify_specs()),
        time_limit=draw(SECONDS),
        per_task=draw(st.booleans()) and not mpi,
    )


FACTS = [subject_facts(name) for name in subject_names()]


@st.composite
def event_subjects(draw: st.DrawFn, name: str) -> EventSubject:
    facts = draw(st.sampled_from(FACTS))
    values = {
        "method": st.sampled_from(Method),
        "memory": st.integers(1 << 20, 1 << 50),
        "load": st.just(Load.DIRTY),
        "working_set": st.integers(4096, 1 << 20),
        "dirty_rate": st.floats(0, 1e12),
        "bandwidth": st.floats(1e3, 1e12),
        "downtime_limit": st.floats(1e-3, 2000),
        "time_limit": st.floats(1, 86400),
        "of": st.sampled_from(Extent),
        "ranks": st.integers(2, 64),
    }
    own = {f.name for f, _ in keys_of(facts.workload)} - {"facts", "methods", "count"}
    assert values.keys() >= own, "every key of a subject comes back"
    given: dict[str, Any] = {name: draw(st.none() | values[name]) for name in sorted(own)}
    found = facts.workload(name=name, facts=facts, count=draw(st.none() | st.integers(1, 1000)), **given)
    while found.misfit is not None:  # no file can hold a key that contradicts another one
        found = replace(found, **{found.misfit[0]: None})
    return found


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Workload, ...]:
    return tuple(
        draw(st.one_of(kernel_workloads(name), command_workloads(name), event_subjects(name)))
        for name in draw(st.lists(NAMES, unique=True, min_size=1, max_size=4))
    )


@st.composite
def designs(draw: st.DrawFn, baselines: tuple[str, ...], mode: Mode) -> Design:
    least = draw(st.integers(0, 50))
    most = draw(st.integers(max(6, least), 100_000))
    return Design(
        baselines=baselines,
        margin=draw(SHARES),
        confidence=draw(st.floats(0.5, 0.9999)),
        seed=draw(st.integers(0, 2**63 - 1)),
        mode=mode,
        min_blocks=least,
        expected_blocks=draw(st.none() | st.integers(1, 100_000)),
        max_blocks=most,
        max_time=draw(st.none() | SECONDS),
        target_width=draw(st.none() | SHARES),
        slices=draw(st.none() | st.integers(1, 1000)),
        runs=draw(st.integers(1, 1000)),
        warm_up=draw(st.integers(0, 1000)),
        profile=draw(st.booleans()),
        starts=draw(st.sampled_from(Starts)),
        mpi=draw(st.none() | st.sampled_from(Mpi)),
        reach=draw(st.sampled_from(Reach)),
        single_copy=draw(st.sampled_from(SingleCopy)),
    )


def networks() -> st.SearchStrategy[NetworkSettings]:
    switch = st.none() | st.booleans()
    return st.builds(
        NetworkSettings,
        mode=st.none() | st.sampled_from(Attachment.MACVLAN.modes),
        subnet=st.none() | st.just("10.7.0.0/16"),
        mtu=st.none() | st.integers(68, 65535),
        rto_min=st.none() | st.integers(1, 120_000).map(lambda ms: ms / 1000),
        congestion_control=st.none() | st.sampled_from(["cubic", "on", "0"]),
        rate=st.none() | st.floats(1e3, 4e9),
        queue_length=st.none() | st.integers(0, 100_000),
        offloads=st.builds(Offloads, tso=switch, gso=switch, gro=switch),
    )


@st.composite
def studies(draw: st.DrawFn) -> Study:
    """Any study that a file can hold; every environment has the ranks of the baseline's placement."""
    ranks = draw(st.sampled_from([1, 2, 4, 6]))
    mode = draw(st.sampled_from(Mode))
    shapes = [(i, ranks // i) for i in range(1, ranks + 1) if ranks % i == 0]
    place_names = draw(st.lists(NAMES, unique=True, min_size=len(shapes), max_size=len(shapes)))
    placements = [
        Placement(
            name=n,
            instances=i,
            tasks=t,
            cpus=tuple(range(ranks)) if draw(st.booleans()) else (),
            pinning=draw(st.sampled_from([Pinning.RANK, Pinning.INSTANCE])),
            oversubscribe=draw(st.booleans()),
        )
        for n, (i, t) in zip(place_names, shapes, strict=True)
    ]
    named = draw(workloads())
    first, *others = draw(st.lists(NAMES, unique=True, min_size=1, max_size=4))
    environments = [Environment(name=first, backend="native", placements=(placements[0].name,))]
    for name in others:
        backend = draw(st.sampled_from(["namespaces", "handicap"]))
        bridged = backend == "namespaces" and draw(st.booleans())
        usable = placements if bridged else placements[:1]
        environments.append(
            Environment(
                name=name,
                backend=backend,
                image=draw(st.sampled_from(["host", "debian-mpi", "0"])),
                attachment=Attachment.MACVLAN if bridged else Attachment.LOOPBACK,
                network=draw(networks()) if bridged else NetworkSettings(),
                limits=Limits(
                    cpu_quota=draw(st.none() | st.floats(1e-6, 100)),
                    memory=draw(st.none() | st.integers(1, 2**60)),
                    cpu_shares=draw(st.none() | st.integers(2, 262_144)),
                ),
                beside=draw(st.sampled_from(COMPANIONS)) if mode is Mode.PLAIN else None,
                storage=draw(st.none() | st.sampled_from(STORAGES)),
                placements=tuple(
                    p.name for p in draw(st.lists(st.sampled_from(usable), min_size=1, unique=True))
                ),
                workloads=tuple(draw(st.lists(st.sampled_from([w.name for w in named]), unique=True))),
                transport=draw(st.sampled_from(TransportWish)) if not bridged else TransportWish.AUTO,
                share=(Shared.PID, Shared.IPC) if backend == "namespaces" and draw(st.booleans()) else (),
                method=draw(st.none() | st.sampled_from(Method)),
                extra_work=draw(st.just(0.0) | st.floats(0, 10)) if backend == "handicap" else 0.0,
            )
        )
    return Study(
        name=draw(NAMES),
        question=draw(TEXTS),
        environments=tuple(environments),
        placements=tuple(placements),
        workloads=named,
        design=draw(designs((first,), mode)),
        images=tuple(replace(i, name=n) for i, n in zip(IMAGES, draw(IMAGE_NAMES), strict=False)),
    )


@given(study=studies())
@settings(max_examples=100)
def test_a_frozen_study_loads_back_equal(catalog: Catalog, study: Study) -> None:
    text = dump_study(study, catalog)
    assert text.startswith(f"{SCHEMA_LINE}\n")
    assert load_text(text, "study.yaml", catalog) == study
    assert load_text(text, "study.yaml", None) == study
    assert dump_study(load_text(text, "study.yaml", None), catalog) == text


@pytest.mark.parametrize("name", names())
def test_the_built_in_studies_load_back_equal(catalog: Catalog, name: str) -> None:
    study = load_text(builtin(name), name, catalog, seed=7)
    assert load_text(dump_study(study, catalog), name, catalog) == study


def test_parameters_unknown_to_the_catalogue_come_back_without_it(catalog: Catalog) -> None:
    study = load_text(builtin("quick"), "quick", catalog, seed=7)
    odd = KernelWorkload(name="lu", kernel="lu", params={"n": 3, "tol": 1e-9, "size": "4 MiB", "how": "a: b"})
    environments = tuple(replace(e, workloads=()) for e in study.environments)
    frozen = replace(study, environments=environments, workloads=(odd,))
    assert load_text(dump_study(frozen, catalog), "study.yaml", None) == frozen


@pytest.mark.parametrize("argument", ["a\0b", "\udc80", "x" * 9000])
def test_argument_that_yaml_cannot_hold_is_refused(catalog: Catalog, argument: str) -> None:
    study = load_text(builtin("quick"), "quick", catalog, seed=7)
    own = CommandWorkload(name="own", argv=("echo", argument))
    with pytest.raises(UsageError):
        dump_study(replace(study, workloads=(own,)), catalog)
