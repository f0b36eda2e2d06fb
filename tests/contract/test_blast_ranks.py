"""nm-blast and nm-sequences, built from this tree, with the BLAST of this machine: hits of fragments over
ranks are those of an unsplit search; faults are told, and nothing is left running."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE, one_fits, until

from nearmetal.host import Completed, LocalHost
from nearmetal.workloads.applications.blast import MERGED, PROGRAMS, WHOLE, Blast
from nearmetal.workloads.applications.contract import Invocation, Output, Place
from nearmetal.workloads.parameter import Choices, Value

pytestmark = [pytest.mark.more, pytest.mark.beside]

KERNELS = Path(__file__).parents[2] / "kernels"
OWN = ("nm-blast", "nm-sequences")
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
#: Of SIZE below; the same on every machine.
DRAWN = {
    "sequences.fasta": "78e7562d4a90d20d5246396a3575307d8d09463e4f4f98c0299f47e80a1b87c9",
    "query.fasta": "6c2f0c41a07d4311bbf49e7b16de34d0428a262f6db71e1c5d16fa26adca3331",
}
SIZE: Mapping[str, Value] = {"sequences": 600, "length": 200, "queries": 6, "fragments": 5}


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("blast")
    for step in (
        ["cmake", "-S", str(KERNELS), "-B", str(build), "-DBUILD_TESTING=OFF"],
        ["cmake", "--build", str(build), "--target", *OWN],
    ):
        subprocess.run(step, check=True, timeout=600, capture_output=True)
    return build / "bin"


def run(own: Path, directory: Path, invocation: Invocation, ranks: int = 1) -> Completed:
    """The invocation as the orchestrator starts it, without what pins and measures."""
    argv = list(invocation.argv)
    if invocation.own:
        argv[0] = str(own / argv[0])
    if invocation.mpi:
        head = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "-n", str(ranks)]
        argv = [*head, *argv]
    return LocalHost().run(argv, timeout=PATIENCE, env=ENVIRONMENT | dict(invocation.env), cwd=directory)


def place(directory: Path, ranks: int = 2) -> Place:
    return Place(nodes=1, instances=1, tasks=ranks, directory=directory, storage=None, memory=1 << 30)


def choices(**values: Value) -> Choices:
    return Choices(values={p.name: p.default for p in Blast.parameters} | dict(SIZE) | values)


def prepared(own: Path, directory: Path, given: Choices) -> None:
    for step in Blast().prepare(given, place(directory)):
        done = run(own, directory, step)
        assert done.ok, done.failure()


def told(done: Completed) -> Mapping[str, Any]:
    assert done.ok, done.stderr
    (line,) = (json.loads(text) for text in done.stdout.splitlines() if text.startswith("{"))
    assert isinstance(line, dict)
    return line


@pytest.mark.parametrize(("program", "ranks"), list(zip(PROGRAMS, (2, 1, 3, 2, 2), strict=True)))
def test_hits_of_fragments_are_those_of_the_whole(
    own: Path, tmp_path: Path, program: str, ranks: int
) -> None:
    given = choices(program=program)
    prepared(own, tmp_path, given)

    def searching() -> set[int]:
        """Return the ranks that have searched."""
        done = run(own, tmp_path, Blast().command(given, place(tmp_path)), ranks)
        line = told(done)
        assert line["ok"] and line["hits"] == line["unsplit"] >= SIZE["queries"], line
        assert line["ranks"] == ranks and len(line["fragments"]) == SIZE["fragments"]
        merged, whole = ((tmp_path / name).read_text().splitlines() for name in (MERGED, WHOLE))
        assert sorted(merged) == sorted(whole)
        assert [text.split("\t")[0] for text in merged] == [text.split("\t")[0] for text in whole]
        found = Blast().parse(given, place(tmp_path), output_of(done))
        assert found.ok and found.metrics[0].value == pytest.approx(line["search_s"])
        return {f["rank"] for f in line["fragments"]}

    # With as many fragments as these, nobody is left without one who does not have to wait for a CPU.
    one_fits(searching, lambda found: found == set(range(ranks)), attempts=10)


def test_the_same_seed_draws_the_same_bytes_and_another_others(own: Path, tmp_path: Path) -> None:
    def drawn(name: str, **values: Value) -> dict[str, str]:
        directory = tmp_path / name
        directory.mkdir()
        step = Blast().prepare(choices(**values), place(directory))[0]
        assert run(own, directory, step).ok
        files = sorted(directory.iterdir())
        return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}

    assert drawn("a") == DRAWN
    assert drawn("b", seed=2)["sequences.fasta"] != DRAWN["sequences.fasta"]
    assert drawn("c", program="blastx")["sequences.fasta"] == DRAWN["sequences.fasta"]


def test_hits_that_differ_from_the_unsplit_search_are_reported(own: Path, tmp_path: Path) -> None:
    given = choices()
    prepared(own, tmp_path, given)
    whole = (tmp_path / WHOLE).read_text().splitlines()
    (tmp_path / WHOLE).write_text("\n".join([*whole[1:], whole[1], ""]))
    done = run(own, tmp_path, Blast().command(given, place(tmp_path)), 2)
    line = told(done)
    assert not line["ok"] and (line["missing"], line["extra"]) == (1, 1)
    found = Blast().parse(given, place(tmp_path), output_of(done))
    assert found.ok is False and "1 missing, 1 beside" in found.found


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "ended with 3"),
        ("kill -9 $$", "was ended by signal 9"),
        ("echo q0 s0 1e-3", "fewer than 12 fields"),
        (None, "is not there"),
    ],
)
def test_a_search_that_fails_ends_all_with_words(
    own: Path, tmp_path: Path, script: str | None, words: str
) -> None:
    done = run(own, tmp_path, searching_by(own, tmp_path, script), 2)
    assert not done.ok and words in done.stderr, done.stderr


def test_searches_end_when_the_launcher_is_killed(own: Path, tmp_path: Path) -> None:
    """The rest dies with the ranks, and these with the launcher."""
    note = tmp_path / "children"
    search = searching_by(own, tmp_path, f"echo $$ >>{note}\nexec sleep 3600")
    argv = ["mpirun", "--oversubscribe", "-n", "2", str(own / "nm-blast"), *search.argv[1:]]
    with subprocess.Popen(
        argv, cwd=tmp_path, env=os.environ | ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as launcher:
        until(lambda: note.exists() and len(note.read_text().split()) == 2)
        launcher.send_signal(signal.SIGKILL)
    until(lambda: all(ended(pid) for pid in note.read_text().split()))


def ended(pid: str) -> bool:
    """Whether a process is no more, or only waits to be fetched."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def searching_by(own: Path, directory: Path, script: str | None) -> Invocation:
    """nm-blast over a small database with another program in the place of BLAST; none: one that is not
    there."""
    given = choices(verify="no")
    prepared(own, directory, given)
    program = directory / "search"
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    argv = list(Blast().command(given, place(directory)).argv)
    argv[argv.index("--program") + 1] = str(program)
    return Invocation(argv=tuple(argv), own=True, mpi=True)


def output_of(done: Completed) -> Output:
    return Output(stdout=done.stdout, stderr=done.stderr)


def test_wrong_arguments_are_reported_by_name(own: Path, tmp_path: Path) -> None:
    def said(*words: str) -> str:
        done = run(own, tmp_path, Invocation(argv=words, own=True))
        assert not done.ok
        return done.stderr

    prepared(own, tmp_path, choices(verify="no"))
    whole = list(Blast().command(choices(verify="no"), place(tmp_path)).argv)

    def but(option: str, value: str) -> Sequence[str]:
        at = whole.index(option)
        return (*whole[: at + 1], value, *whole[at + 2 :])

    assert "--fragments" in said(*but("--fragments", "0")) and "--fragments" in said(
        *but("--fragments", "2x")
    )
    assert "601 fragments" in said(*but("--fragments", "601"))
    assert "cannot be read" in said(*but("--info", "nothing"))
    assert "does not tell" in said(*but("--info", "query.fasta"))
    assert "--out is missing" in said(*whole[: whole.index("--out")])
    assert "unknown option" in said(*whole, "--more", "1")
    assert "without its value" in said(*whole, "--reference")
    assert "usage" in said("nm-sequences", "--seed", "1")
    assert "a whole number" in said("nm-sequences", "--seed", "-1")
    assert "protein or nucleotide" in said("nm-sequences", "--database", "dna")
