"""BLAST (ncbi-blast+): a search in a database of sequences, divided into fragments among MPI ranks as in
mpiBLAST. The merged hits are compared with those of an unsplit search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...model.record import JsonValue
from ...model.study import Better
from ..json_text import first_object, number_at
from ..numbers import number
from ..parameter import AUTO, Choices, Kind, Parameter
from .contract import Application, Invocation, Needs, Output, Parsed, Place, metrics_of

#: By program: whether its queries, and its database, are protein sequences.
PROGRAMS = {
    "blastp": (True, True),
    "blastn": (False, False),
    "blastx": (False, True),
    "tblastn": (True, False),
    "tblastx": (False, False),
}
#: Every hit is reported: a search that keeps only the best hits cannot be merged from its fragments.
EVERY_HIT = "1000000000"
#: Most bytes of generated sequences, as text and as a database.
MOST_DRAWN = 16 << 30
#: Unless this is set, BLAST sends usage reports to NCBI.
ENV = {"BLAST_USAGE_REPORT": "false"}
FRAGMENT_SECONDS, PAIR_SECONDS = 0.1, 3e-6
"""For estimates: seconds that one rank needs to start the search of a fragment, and further seconds for each
pair of a query and a sequence. For a database of the user, the size of the generated one is assumed."""
#: Not allowed in paths: makeblastdb and alias files separate names by these characters.
DIVIDERS = (" ", "\t", "\n", '"', "'")
SEQUENCES, QUERY, INFO, WHOLE, MERGED = (
    "sequences.fasta",
    "query.fasta",
    "whole.info",
    "whole.tsv",
    "merged.tsv",
)

PARAMETERS = (
    Parameter("program", Kind.WORD, "blastp", "which of BLAST's searches", words=tuple(PROGRAMS)),
    Parameter(
        "fragments",
        Kind.WHOLE,
        12,
        "pieces of the database, given out to ranks as these become free; alike for every placement",
        most=4096,
    ),
    Parameter("sequences", Kind.WHOLE, 20_000, "of the database that is drawn", most=1 << 30),
    Parameter("length", Kind.WHOLE, 350, "letters of one, in the mean", least=100, most=1 << 24),
    Parameter("queries", Kind.WHOLE, 32, "sequences that are searched", most=1 << 20),
    Parameter("seed", Kind.WHOLE, 1, "of database and queries", least=0),
    Parameter(
        "fasta",
        Kind.TEXT,
        AUTO,
        "path of sequences of your own, from which a database is made; auto: drawn from the seed",
    ),
    Parameter(
        "database",
        Kind.TEXT,
        AUTO,
        "path of a database of your own, as makeblastdb made it; auto: made of the sequences",
    ),
    Parameter("query", Kind.TEXT, AUTO, "path of queries of your own, in FASTA; auto: drawn from the seed"),
    Parameter("evalue", Kind.TEXT, "10", "hits of a higher e-value are not reported"),
    Parameter(
        "verify",
        Kind.WORD,
        "yes",
        "whether the hits are compared with those of an unsplit search before the measurement",
        words=("yes", "no"),
    ),
)


class Blast(Application):
    """Debian's ncbi-blast+, run by nm-blast."""

    name = "blast"
    doc = "sequence search: fragments of a database over MPI ranks, time of the whole search"
    parameters = PARAMETERS

    def needs(self, choices: Choices) -> Needs:
        made = () if _own(choices, "database") else ("makeblastdb",)
        return Needs(programs=(choices.word("program"), *made, "blastdbcmd"), packages=("ncbi-blast+",))

    def problem(self, choices: Choices, place: Place) -> str | None:
        for key in ("fasta", "database", "query"):
            path = _own(choices, key)
            if path and (not path.startswith("/") or any(c in path for c in DIVIDERS)):
                return f"{key}: a path from / on, without blanks and quotes, is needed, not {path!r}"
        if _own(choices, "fasta") and _own(choices, "database"):
            return "fasta and database are both given; one of them is searched"
        if (number(choices.word("evalue")) or 0) <= 0:
            return f"evalue: a number above 0 is needed, not {choices.word('evalue')!r}"
        if _own(choices, "fasta") or _own(choices, "database"):
            return None if _own(choices, "query") else "a database of your own needs a query of your own"
        return _too_much(choices)

    def prepare(self, choices: Choices, place: Place) -> tuple[Invocation, ...]:
        kind = "prot" if PROGRAMS[choices.word("program")][1] else "nucl"
        database = _database(choices, place)
        steps: list[Invocation] = []
        if not (_own(choices, "fasta") or _own(choices, "database")):
            steps.append(_drawn(choices, place))
        if not _own(choices, "database"):
            fasta = _own(choices, "fasta") or str(_room(place) / SEQUENCES)
            steps.append(_made("makeblastdb", "-in", fasta, "-dbtype", kind, "-out", database))
        steps.append(_made("blastdbcmd", "-db", database, "-dbtype", kind, "-info", "-out", INFO))
        if choices.word("verify") == "yes":
            search = ("-db", database, "-query", _query(choices, place))
            result = ("-evalue", choices.word("evalue"), "-max_target_seqs", EVERY_HIT, "-outfmt", "6")
            threads = ("-num_threads", str(place.tasks))
            steps.append(_made(choices.word("program"), *search, *result, *threads, "-out", WHOLE))
        return tuple(steps)

    def seconds(self, choices: Choices, ranks: int = 1) -> float:
        pairs = (choices.whole("queries") or 0) * (choices.whole("sequences") or 0)
        return (FRAGMENT_SECONDS * (choices.whole("fragments") or ranks) + pairs * PAIR_SECONDS) / ranks

    def command(self, choices: Choices, place: Place) -> Invocation:
        checked = ("--reference", WHOLE) if choices.word("verify") == "yes" else ()
        return Invocation(
            argv=(
                "nm-blast",
                *("--program", choices.word("program"), "--database", _database(choices, place)),
                *("--info", INFO, "--query", _query(choices, place)),
                *("--fragments", choices.word("fragments"), "--evalue", choices.word("evalue")),
                *("--out", MERGED, *checked),
            ),
            own=True,
            mpi=True,
            env=ENV,
        )

    def metrics(self, choices: Choices) -> tuple[tuple[str, str, Better], ...]:
        return (("search", "s", Better.LOWER),)

    def parse(self, choices: Choices, place: Place, output: Output) -> Parsed:
        result = first_object(output.stdout, "search_s")
        search = number_at(result, "search_s")
        if search is not None and search <= 0:
            search = None
        ok, expected, found = None, "", ""
        if choices.word("verify") == "yes":
            ok, expected, found = _verified(result)
        return Parsed(
            metrics=metrics_of(
                self.metrics(choices),
                {"search": search},
                lambda _: "nm-blast did not report how long the search took",
            ),
            ok=ok,
            expected=expected,
            found=found,
            parts=_parts(result, search),
            facts=_facts(result),
        )


def _own(choices: Choices, key: str) -> str:
    """Return the path given by the user; empty if there is none."""
    return "" if choices.word(key) == AUTO else choices.word(key)


def _too_much(choices: Choices) -> str | None:
    sequences, length = choices.whole("sequences") or 0, choices.whole("length") or 0
    if (choices.whole("queries") or 0) > sequences or (choices.whole("fragments") or 0) > sequences:
        return "queries and fragments are at most as many as the sequences"
    if 2 * sequences * length > MOST_DRAWN:
        return (
            f"{sequences:,} sequences of {length:,} letters take more than {MOST_DRAWN >> 30} GiB; "
            "take fewer, or a database of your own"
        )
    return None


def _room(place: Place) -> Path:
    """Return a directory for large files that all ranks see.

    The storage can be used only if there is one instance, since each instance has its own storage.
    """
    alone = place.nodes * place.instances == 1
    return place.storage if alone and place.storage is not None else place.directory


def _database(choices: Choices, place: Place) -> str:
    return _own(choices, "database") or str(_room(place) / "whole")


def _query(choices: Choices, place: Place) -> str:
    return _own(choices, "query") or str(_room(place) / QUERY)


def _drawn(choices: Choices, place: Place) -> Invocation:
    queries, database = (
        "protein" if protein else "nucleotide" for protein in PROGRAMS[choices.word("program")]
    )
    words = {
        "--seed": choices.word("seed"),
        "--database": database,
        "--queries": queries,
        "--sequences": choices.word("sequences"),
        "--length": choices.word("length"),
        "--searched": choices.word("queries"),
        "--directory": str(_room(place)),
    }
    return Invocation(argv=("nm-sequences", *(w for pair in words.items() for w in pair)), own=True)


def _made(*argv: str) -> Invocation:
    return Invocation(argv=argv, env=ENV)


def _verified(result: Mapping[str, JsonValue]) -> tuple[bool, str, str]:
    unsplit, hits = number_at(result, "unsplit"), number_at(result, "hits")
    if unsplit is None or hits is None:
        return False, "the hits of an unsplit search", "none reported"
    missing, extra = number_at(result, "missing"), number_at(result, "extra")
    found = f"{hits:.0f} hits"
    if missing or extra:
        found += (
            f", {missing or 0:.0f} missing, {extra or 0:.0f} beside, the first: {result.get('first')!s:.200}"
        )
    # A search without hits verifies nothing.
    ok = result.get("ok") is True and not missing and not extra and unsplit == hits and hits > 0
    return ok, f"{unsplit:.0f} hits, those of an unsplit search", found


def _pieces(result: Mapping[str, JsonValue]) -> list[tuple[int, float]]:
    """Return (rank, seconds) of each fragment that nm-blast reported."""
    listed = result.get("fragments")
    pairs = (
        (number_at(f, "rank"), number_at(f, "seconds")) for f in (listed if isinstance(listed, list) else ())
    )
    return [(int(r), s) for r, s in pairs if r is not None and s is not None and r >= 0 and s >= 0]


def _parts(result: Mapping[str, JsonValue], search: float | None) -> dict[str, float]:
    """Return the seconds of the search by kind: the means over ranks of the time spent searching, and of the
    rest (waiting)."""
    ranks = number_at(result, "ranks")
    if search is None or not ranks or ranks < 1:
        return {}
    busy = sum(seconds for _, seconds in _pieces(result)) / ranks
    return {"compute": busy, "comm": max(0.0, search - busy)}


def _facts(result: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the size of the database, the hits, and how many fragments each rank searched."""
    facts: dict[str, JsonValue] = {
        key: int(value)
        for key in ("sequences", "letters", "hits")
        if (value := number_at(result, key)) is not None
    }
    by_rank: dict[int, int] = {}
    for rank, _ in _pieces(result):
        by_rank[rank] = by_rank.get(rank, 0) + 1
    if by_rank:
        facts["fragments_by_rank"] = {str(rank): by_rank[rank] for rank in sorted(by_rank)}
    if (merge := number_at(result, "merge_s")) is not None:
        facts["merge_s"] = merge
    return facts
