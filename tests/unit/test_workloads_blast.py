"""BLAST: what is prepared and started, and what nm-blast's line gives, whole or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.workloads.applications.blast import PROGRAMS, Blast
from nearmetal.workloads.applications.contract import Output, Parsed, Place
from nearmetal.workloads.parameter import Choices, Value

#: What nm-blast printed on two ranks, of fewer fragments.
LINE: dict[str, Any] = {
    "event": "blast",
    "ranks": 2,
    "sequences": 20000,
    "letters": 6935383,
    "hits": 113,
    "search_s": 1.380856227,
    "merge_s": 0.000269701,
    "fragments": [
        {"rank": 0, "seconds": 0.169668},
        {"rank": 1, "seconds": 0.351369},
        {"rank": 0, "seconds": 0.180621},
    ],
    "ok": True,
    "unsplit": 113,
    "missing": 0,
    "extra": 0,
    "first": "",
}
PRINTED = "a warning\n" + json.dumps(LINE) + "\n"


def choices(**values: Value) -> Choices:
    return Choices(values={p.name: p.default for p in Blast.parameters} | values)


def place(*, instances: int = 1, tasks: int = 2, storage: bool = False, memory: int = 4 << 30) -> Place:
    here = Path("/run/x")
    return Place(
        nodes=1,
        instances=instances,
        tasks=tasks,
        directory=here,
        storage=Path("/var/tmp/s") if storage else None,
        memory=memory,
    )


def parsed(text: str, **values: Value) -> Parsed:
    return Blast().parse(choices(**values), place(), Output(stdout=text))


def line(**changed: object) -> str:
    return json.dumps({**LINE, **changed})


def programs(place: Place, **values: Value) -> list[str]:
    return [step.argv[0] for step in Blast().prepare(choices(**values), place)]


def test_the_time_of_the_search_and_what_it_is_made_of() -> None:
    found = parsed(PRINTED)
    (search,) = found.metrics
    assert (search.name, search.unit, search.value) == ("search", "s", 1.380856227)
    assert [(m.name, m.unit, m.better) for m in found.metrics] == list(Blast().metrics(choices()))
    assert found.ok and "113 hits" in found.expected
    assert found.parts["compute"] == pytest.approx((0.169668 + 0.351369 + 0.180621) / 2)
    assert sum(found.parts.values()) == pytest.approx(1.380856227)
    assert found.facts["fragments_by_rank"] == {"0": 2, "1": 1} and found.facts["letters"] == 6935383


@pytest.mark.parametrize(
    "changed",
    [
        {"ok": False, "missing": 1, "hits": 112},
        {"ok": False, "extra": 1, "first": "q0\ts1"},
        {"ok": True, "missing": 2},
        {"ok": "true"},
        {"hits": 112},
        {"hits": 0, "unsplit": 0},
        {"unsplit": None},
        {"unsplit": float("nan")},
    ],
)
def test_other_hits_are_not_verified(changed: dict[str, object]) -> None:
    assert parsed(line(**changed)).ok is False


def test_without_a_reference_nothing_is_verified() -> None:
    assert parsed(line(ok=None, unsplit=None), verify="no").ok is None
    steps = Blast().prepare(choices(verify="no"), place())
    assert all(step.argv[0] != "blastp" for step in steps)
    assert "--reference" not in Blast().command(choices(verify="no"), place()).argv


@pytest.mark.parametrize("told", [0, -1, None, "1.5", float("inf"), float("nan"), [1], 10**400])
def test_text_that_is_no_time_gives_no_value(told: object) -> None:
    (search,) = parsed(line(search_s=told)).metrics
    assert search.value is None and search.reason


@given(st.text() | st.binary().map(lambda b: b.decode(errors="replace")))
def test_any_text_is_read(text: str) -> None:
    found = parsed(text)
    assert found.ok is False and found.metrics[0].value is None


@given(st.integers(0, len(PRINTED)), st.text(max_size=5), st.integers(0, 40))
def test_any_truncation_and_damage_is_read(at: int, other: str, length: int) -> None:
    for text in (PRINTED[:at], PRINTED[:at] + other + PRINTED[at + length :]):
        found = parsed(text)
        assert all((m.value is None) == bool(m.reason) for m in found.metrics)
    assert parsed(PRINTED[:at]).ok is (at >= len(PRINTED) - 1)


_ANY = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@given(
    st.dictionaries(st.sampled_from(sorted(LINE)), _ANY | st.lists(_ANY)),
    st.lists(_ANY | st.dictionaries(st.sampled_from(["rank", "seconds"]), _ANY)),
)
def test_any_line_is_read(changed: dict[str, Any], fragments: list[Any]) -> None:
    for given_line in ({**LINE, **changed}, {**LINE, "fragments": fragments}):
        found = parsed(json.dumps(given_line))
        assert (found.metrics[0].value is None) == bool(found.metrics[0].reason)


def test_a_database_is_drawn_made_and_searched_whole_before() -> None:
    assert programs(place()) == ["nm-sequences", "makeblastdb", "blastdbcmd", "blastp"]
    drawn, made, _, whole = Blast().prepare(choices(program="tblastn", sequences=100), place())
    assert drawn.own and "nucleotide" in drawn.argv and "protein" in drawn.argv
    assert made.argv[made.argv.index("-dbtype") + 1] == "nucl"
    assert whole.argv[whole.argv.index("-num_threads") + 1] == "2"
    assert not any(step.mpi for step in (drawn, made, whole))
    command = Blast().command(choices(), place())
    assert command.mpi and command.own and command.env["BLAST_USAGE_REPORT"] == "false"
    assert "--reference" in command.argv


def test_a_database_of_ones_own() -> None:
    own: dict[str, Value] = {"database": "/data/nr", "query": "/data/q.fa"}
    assert programs(place(), **own) == ["blastdbcmd", "blastp"]
    assert "/data/nr" in Blast().command(choices(**own), place()).argv
    assert Blast().needs(choices(**own)).programs == ("blastp", "blastdbcmd")
    fasta: dict[str, Value] = {"fasta": "/data/nr.fa", "query": "/data/q.fa"}
    assert programs(place(), **fasta) == ["makeblastdb", "blastdbcmd", "blastp"]


def test_large_files_stand_in_the_storage_of_one_instance_alone() -> None:
    """Ranks of two instances share the working directory, and no storage."""
    for at, root in (
        (place(storage=True), "/var/tmp/s/"),
        (place(storage=True, instances=2, tasks=1), "/run/x/"),
        (place(), "/run/x/"),
    ):
        words = Blast().command(choices(), at).argv
        assert words[words.index("--database") + 1] == f"{root}whole"
        assert words[words.index("--query") + 1] == f"{root}query.fasta"
        assert f"{root}sequences.fasta" in Blast().prepare(choices(), at)[1].argv


def test_impossible_search_is_refused_before_the_start() -> None:
    def told(**values: Value) -> str:
        return Blast().problem(choices(**values), place()) or ""

    assert not told() and not told(evalue="1e-5")
    assert "query of your own" in told(database="/data/nr")
    assert "both given" in told(database="/data/nr", fasta="/data/x", query="/q")
    assert "evalue" in told(evalue="ten") and "evalue" in told(evalue="nan") and "evalue" in told(evalue="0")
    assert "blanks" in told(query="/my query", database="/d") and "from / on" in told(
        query="q", database="/d"
    )
    assert "at most as many" in told(sequences=10)
    assert "take fewer" in told(sequences=100_000_000)


def test_programs() -> None:
    for name in PROGRAMS:
        assert Blast().needs(choices(program=name)).programs[0] == name


def test_the_estimate_is_within_a_factor_of_two_of_what_searches_took() -> None:
    small = {"fragments": 4, "sequences": 400, "queries": 2}
    for ranks, took, given_ in ((2, 1.38, {}), (1, 0.25, small), (2, 0.17, small)):
        assert took / 2 <= Blast().seconds(choices(**given_), ranks) <= 2 * took
