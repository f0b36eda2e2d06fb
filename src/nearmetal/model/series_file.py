"""The contents of a series file: the parts of a study, and the rules by which a machine narrows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..units import Dimension
from .keys import (
    NAME,
    SECONDS,
    SOME_TEXT,
    TEXTS,
    ListOf,
    Named,
    Pairs,
    key,
    key_made,
    key_or,
    matching,
    one_of,
    quantity,
)
from .series import Figure, Scale
from .study import Study


class RankChoice(StrEnum):
    """Which of the placements that fit on the machine are used: those with the most ranks, or all."""

    LARGEST = "largest"
    EVERY = "every"


class CpuNumbers(StrEnum):
    """The meaning of the CPU numbers of a placement.

    NUMBER: CPU numbers of Linux.
    ORDER: positions in the list of usable CPUs, in the order in which ranks are placed.
    """

    NUMBER = "number"
    ORDER = "order"


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """Rules by which a machine narrows the parts of a series.

    backends: backends that may take the place of a backend in the files of the parts, preferred ones first.
    containers: by name of an environment with guests, its new name if containers replace the guests.
    optional: workloads that are left out if the machine lacks their programs or devices.
    host_images: by image, the program for which the image is needed. If the machine has the program, its own
        root file system is used instead of the image, unless guests boot the image.
    imports: by image that nearmetal cannot build, how the user makes it. Without the image, its environments
        are left out.
    own_backend: environments that are left out if their backend would be replaced by another.
    """

    ranks: RankChoice = key_or(
        RankChoice.LARGEST,
        one_of(RankChoice),
        "of the placements with at most as many ranks as the machine has cores: those with the most ranks"
        " (largest), or all (every)",
        "every",
    )
    cpus: CpuNumbers = key_or(
        CpuNumbers.NUMBER,
        one_of(CpuNumbers),
        "the cpus of placements are Linux's numbers (number), or positions among the usable CPUs, one for"
        " each core first (order)",
        "order",
    )
    backends: Mapping[str, tuple[str, ...]] = key_made(
        dict,
        Pairs(NAME, TEXTS),
        "by the backend in the files of the parts: the backends that are tried, the preferred one first",
        {"lxc": ["lxc", "namespaces"]},
    )
    containers: Mapping[str, str] = key_made(
        dict,
        Pairs(NAME, NAME),
        "new names of environments if containers take the place of guests",
        {"two-vms": "two-containers"},
    )
    optional: tuple[str, ...] = key_or(
        (),
        ListOf(NAME),
        "workloads that are left out, with the reason, where the machine lacks their programs or devices;"
        " for applications",
        ["rdma"],
    )
    host_images: Mapping[str, str] = key_made(
        dict,
        Pairs(NAME, SOME_TEXT),
        "by image: a program. Where the machine has the program, its own files take the place of the"
        " image, unless a guest boots the image",
        {"debian-lammps": "lmp"},
    )
    imports: Mapping[str, str] = key_made(
        dict,
        Pairs(NAME, SOME_TEXT),
        "by image that nearmetal cannot build: how to make and import it. Its environments are left out"
        " where it is missing",
        {"ocean": "nearmetal image import TREE --name ocean"},
    )
    own_backend: tuple[str, ...] = key_or(
        (),
        ListOf(NAME),
        "environments that are left out where another backend would take the place of theirs",
        ["vm-lvm"],
    )


_FILE = matching(r"^\w[\w.-]{0,199}\.ya?ml$", "the name of a YAML file in the same directory")
_TABLE = matching(
    r"^\w[\w.-]{0,199}$", "the name of a published table, or of a TOML file in the same directory"
)


@dataclass(frozen=True, kw_only=True)
class ExcludedQuestion:
    """A question that belongs to a part but that no study file can ask, with the reason.

    name: the question.
    """

    name: str
    reason: str = field(metadata=key(SOME_TEXT, "why it is not asked", "it needs a batch system"))
    remedy: str = key_or("", SOME_TEXT, "what the user can do about it", "nearmetal migrate, by hand")


@dataclass(frozen=True, kw_only=True)
class PartEntry:
    """A part as its series file describes it.

    file: name of its study file; '' for '<key of the part>.yaml'.
    places: for each environment of the paper, the arms that may correspond to it. The first one that the
        machine can run is used. An environment without a placement stands for its first arm.
    needs: environments without which the part is not measured.
    ranks: overrides Narrowing.ranks for this part; None uses that of the series.
    """

    name: str
    title: str = field(metadata=key(SOME_TEXT, "heading of the part in the report", "Memory"))
    share: float = field(
        metadata=key(
            quantity(Dimension.SHARE, 0.001, 1),
            "fraction of the time that is left when every part has a round",
            "25 %",
        )
    )
    file: str = key_or("", _FILE, "its study file, in the same directory", "memory.yaml", usual="<part>.yaml")
    notes: tuple[str, ...] = key_or(
        (), ListOf(SOME_TEXT), "sentences for the reader of the part", ["One node."]
    )
    places: Mapping[str, tuple[str, ...]] = key_made(
        dict,
        Pairs(SOME_TEXT, TEXTS),
        "by the name of an environment in the published table: an environment of the study file, or"
        " environment/placement; of a list, the first that this machine can run",
        {"container": ["container/4x1", "container/2x1"]},
    )
    needs: tuple[str, ...] = key_or(
        (), ListOf(NAME), "environments without which the part is not measured", ["container-ovs"]
    )
    ranks: RankChoice | None = key_or(
        None, one_of(RankChoice), "for this part, instead of narrow: ranks", "every"
    )
    sizes_from: str = key_or(
        "",
        NAME,
        "an earlier part, which measures the baseline alone with several classes and links: those for which"
        " its share of computation is nearest that in the published table are used when this part begins",
        "sizes",
    )
    not_asked: tuple[ExcludedQuestion, ...] = key_or(
        (),
        Named(ExcludedQuestion),
        "what belongs to the part and no study file can ask; it is named among what is left out",
        {"a pool of jobs": {"reason": "it needs a batch system"}},
    )
    figures: tuple[Figure, ...] = key_or(
        (Figure.OVERHEADS,),
        ListOf(one_of(Figure)),
        "charts: overheads; relative, with bars of times and rates relative to the baseline; packing,"
        " which shows the places called '<n> per node'; curve, a line for each environment over a"
        " parameter that differs between workloads; ranks, the same over the number of ranks; steps, the"
        " seconds of each step of an event",
        ["overheads"],
    )


@dataclass(frozen=True, kw_only=True)
class SeriesFile:
    """The contents of a series file.

    published: key of a paper that comes with nearmetal, or name of a TOML file with published numbers in the
        same directory; '' for none.
    time: default duration of all parts together, in seconds.
    """

    name: str = field(
        metadata=key(NAME, "name of the series; results are written to results/<name>-<time>", "memory-2024")
    )
    title: str = field(metadata=key(SOME_TEXT, "the headline of the report", "What does memory cost here?"))
    scale: Scale | None = key_or(
        None, one_of(Scale), "problem sizes of a published study, shown in the report", "small"
    )
    published: str = key_or(
        "",
        _TABLE,
        "what a paper printed: a table that comes with nearmetal, or a TOML file in the same directory",
        "published.toml",
    )
    time: float = key_or(
        900.0, SECONDS, "usual duration of all parts; --time replaces it", "15 min", usual="15 min"
    )
    notes: tuple[str, ...] = key_or(
        (), ListOf(SOME_TEXT), "sentences for the reader", ["Kernels are boot states."]
    )
    narrow: Narrowing = key_made(
        Narrowing, Narrowing, "how a machine that lacks something narrows the parts", {"ranks": "largest"}
    )
    parts: tuple[PartEntry, ...] = field(
        metadata=key(
            Named(PartEntry), "the parts, in the order in which they run", {"q1": {"title": "Packing"}}
        )
    )


@dataclass(frozen=True, kw_only=True)
class SeriesFiles:
    """A series file with the studies of its parts, as read.

    studies: the study of each part, by key of the part.
    table: text of the TOML file with published numbers beside the series file; '' if there is none.
    """

    head: SeriesFile
    studies: Mapping[str, Study]
    table: str = ""
