"""HPCC and HPL: sizes of the 2009 paper, the input file, and what the output gives, whole or not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.model.record import unmeasurable
from nearmetal.workloads.applications.contract import Output, Parsed, Place
from nearmetal.workloads.applications.hpc_challenge import blas
from nearmetal.workloads.applications.hpc_challenge.input import GIB, grid, problem_size
from nearmetal.workloads.applications.hpcc import Hpcc
from nearmetal.workloads.applications.hpl import Hpl
from nearmetal.workloads.applications.several import whole_numbers
from nearmetal.workloads.parameter import Choices, Value

DATA = Path(__file__).with_name("data")
#: What Debian's HPCC 1.5.0 wrote on two ranks, without the parts that nobody reads.
PRINTED = (DATA / "hpccoutf.txt").read_text()
#: Its HPL section of a run over five block sizes.
SWEPT = (DATA / "hpl_sweep.txt").read_text()
SAID = "Core: SkylakeX\nCore: SkylakeX\n"
AVX512 = frozenset({"avx", "avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"})


def hpcc(**values: Value) -> Choices:
    return Choices(values={p.name: p.default for p in Hpcc.parameters} | {"n": 1000} | values)


def hpl(**values: Value) -> Choices:
    return Choices(values={p.name: p.default for p in Hpl.parameters} | {"nb": "32..512"} | values)


def place(
    *,
    nodes: int = 1,
    instances: int = 1,
    tasks: int = 2,
    memory: int = GIB,
    cpu_flags: frozenset[str] = AVX512,
) -> Place:
    return Place(
        nodes=nodes,
        instances=instances,
        tasks=tasks,
        directory=Path("/run/x"),
        storage=None,
        memory=memory,
        cpu_flags=cpu_flags,
    )


def parsed(text: str, stderr: str = SAID, **values: Value) -> Parsed:
    return Hpcc().parse(
        hpcc(**values), place(), Output(stdout="", stderr=stderr, files={"hpccoutf.txt": text})
    )


def swept(text: str, stderr: str = SAID, **values: Value) -> Parsed:
    return Hpl().parse(hpl(**values), place(), Output(stdout="", stderr=stderr, files={"hpccoutf.txt": text}))


def test_problem_sizes_are_those_that_the_paper_of_2009_prints() -> None:
    """One CPU of 1 GiB: 10300; 16 nodes with two, as 16 x 2 or 32 x 1: 58600."""
    assert problem_size(GIB, 0.8) == 10300
    assert problem_size(32 * GIB, 0.8) == 58600
    for nodes, instances, tasks in ((16, 1, 2), (16, 2, 1)):
        here = place(nodes=nodes, instances=instances, tasks=tasks, memory=4 * GIB)
        sized = Hpcc().command(hpcc(n="auto", memory=GIB), here).files["hpccinf.txt"]
        assert sized.splitlines()[5].startswith("58600 ")


def test_a_size_from_what_the_instances_may_use() -> None:
    sized = Hpcc().command(hpcc(n="auto", share=0.5), place(instances=2, memory=GIB)).files["hpccinf.txt"]
    assert sized.splitlines()[5].startswith(f"{problem_size(2 * GIB, 0.5)} ")


@pytest.mark.parametrize(
    ("ranks", "p", "q", "expected"),
    [
        (1, None, None, (1, 1)),
        (2, None, None, (1, 2)),
        (12, None, None, (3, 4)),
        (13, None, None, (1, 13)),
        (32, None, None, (4, 8)),
        (32, 7, 4, (7, 4)),  # as printed in 2009: 28 of 32 processes
        (8, 2, None, (2, 4)),
        (8, None, 8, (1, 8)),
    ],
)
def test_process_grids(ranks: int, p: int | None, q: int | None, expected: tuple[int, int]) -> None:
    assert grid(ranks, p, q) == expected


def test_the_input_has_its_lines_where_hpl_reads_them() -> None:
    lines = Hpl().command(hpl(nb="64 96"), place()).files["hpccinf.txt"].splitlines()
    first = [line.split(" ", 1)[0] for line in lines]
    assert first[4:7] == ["1", "2000", "2"] and lines[7].startswith("64 96 ")
    assert first[9:12] == ["1", "1", "2"] and len(lines) == 36
    assert all(len(line) < 80 for line in lines)


@pytest.mark.parametrize(
    ("values", "there", "words"),
    [
        ({"p": 3, "q": 2}, place(), "a grid of 3 x 2 needs 6 ranks, the placement has 2"),
        ({"n": 20000}, place(), "n 20000 needs 3.0 GiB, the instances may use 1.0 GiB"),
        ({"n": 2000}, place(), None),
        ({"p": 7, "q": 4}, place(nodes=16), None),
    ],
)
def test_options_that_do_not_fit_are_refused_before_the_start(
    values: dict[str, Value], there: Place, words: str | None
) -> None:
    assert Hpcc().problem(hpcc(**values), there) == words


@pytest.mark.parametrize("nb", ["", "x", "0", "0..8", "64,128", "8..4", "1.5", "-1"])
def test_block_sizes_that_are_none(nb: str) -> None:
    assert "nb is a block size" in (Hpl().problem(hpl(nb=nb), place()) or "")
    assert Hpl().metrics(hpl(nb=nb)) == () and Hpl().command(hpl(nb=nb), place()).argv == ("hpcc",)


def test_block_sizes() -> None:
    assert whole_numbers("32..512") == (32, 64, 128, 256, 512)
    assert whole_numbers("32..400") == (32, 64, 128, 256)
    assert whole_numbers(" 64 48  64 ") == (64, 48)
    assert "at most 20" in (Hpl().problem(hpl(nb=" ".join(map(str, range(1, 22)))), place()) or "")
    assert "on PATH or an absolute path" in (Hpl().problem(hpl(program="./xhpl"), place()) or "")
    assert Hpl().problem(hpl(), place()) is None


def test_every_figure_of_the_summary_in_base_units() -> None:
    found = parsed(PRINTED)
    assert {m.name: m.value for m in found.metrics} == {
        "G-HPL": pytest.approx(4.08342e9),
        "G-PTRANS": pytest.approx(0.180035e9),
        "G-RandomAccess": pytest.approx(1.36072e6),
        "G-FFTE": pytest.approx(6.93134e9),
        "EP-STREAM-copy": pytest.approx(91.0961e9),
        "EP-STREAM-scale": pytest.approx(58.2901e9),
        "EP-STREAM-add": pytest.approx(73.4468e9),
        "EP-STREAM-triad": pytest.approx(72.356e9),
        "EP-DGEMM": pytest.approx(6.93522e9),
        "Single-STREAM-triad": pytest.approx(73.1245e9),
        "Single-DGEMM": pytest.approx(45.1661e9),
        "RandomRing-bandwidth": pytest.approx(6.88895e9),
        "RandomRing-latency": pytest.approx(0.124282e-6),
    }
    assert [(m.name, m.unit, m.better) for m in found.metrics] == list(Hpcc().metrics(hpcc()))
    assert found.ok, found.found
    assert found.facts == {
        "n": 1000,
        "nb": [128],
        "grid": "1x2",
        "n_by_memory": 10300,
        "n_by_cpus": None,
        "blas": "openblas",
        "openblas_core": "SkylakeX",
        "version": "1.5.0",
        "DGEMM_N": 407.0,
        "PTRANS_n": 500.0,
        "MPIRandomAccess_N": 524288.0,
        "STREAM_VectorSize": 166666.0,
        "FFT_N": 65536.0,
        "MPIFFT_N": 65536.0,
    }


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("...... PASSED", "...... FAILED", "HPL's residual is not passed for NB 128"),
        ("WR11C2R4        1000   128", "WR11C2R4        1000   96", "no line of its table for NB 128"),
        ("    5 tests completed and passed", "    4 tests completed and passed", ""),
        ("    0 tests completed and failed", "    1 tests completed and failed", "PTRANS: 5 tests passed, 1"),
        ("    0 tests skipped", "    2 tests skipped", "2 were skipped"),
        ("Access_ErrorsFraction=0\n", "Access_ErrorsFraction=0.02\n", "2 % of the table is wrong"),
        ("Access_ErrorsFraction=0\n", "Access_ErrorsFraction=nan\n", "does not report its errors"),
        ("MPIFFT_maxErr=1.29948e-15", "MPIFFT_maxErr=1e-12", "MPIFFT: an error of 1e-12"),
        ("Solution Validates", "Failed Validation", "STREAM does not report"),
        ("Success=1", "Success=0", "does not report success"),
        ("Begin of StarDGEMM", "Begin of DGEMM", "StarDGEMM does not report"),
    ],
)
def test_a_wrong_result_is_not_verified(old: str, new: str, words: str) -> None:
    assert old in PRINTED
    found = parsed(PRINTED.replace(old, new))
    assert words in found.found
    assert found.ok is (not words)


def test_ranks_with_errors_are_counted() -> None:
    at = PRINTED.index("Node(s) with error 0", PRINTED.index("Begin of StarFFT"))
    found = parsed(PRINTED[:at] + PRINTED[at:].replace("error 0", "error 2", 1))
    assert found.ok is False and "StarFFT: errors on 2 ranks" in found.found


def test_the_last_of_several_runs_in_one_file_counts() -> None:
    again = PRINTED.replace("StarDGEMM_Gflops=6.93522", "StarDGEMM_Gflops=7")
    assert {m.name: m.value for m in parsed(PRINTED + again).metrics}["EP-DGEMM"] == 7e9


def test_one_rank_has_no_ring() -> None:
    alone = re.sub(r"(?m)^((?:Random|Natural)\w+Ring\w+)=.*$", r"\1=-1", PRINTED)
    found = Hpcc().parse(
        hpcc(), place(tasks=1), Output(stdout="", stderr=SAID, files={"hpccoutf.txt": alone})
    )
    rings = [m for m in found.metrics if m.name.startswith("RandomRing")]
    assert found.ok and [m.value for m in rings] == [None, None]
    assert {m.reason for m in rings} == {"a ring needs two ranks"}
    assert all(unmeasurable(m.reason) for m in rings), "nothing failed"


def test_missing_and_incomplete_output_have_different_reasons() -> None:
    nothing = Hpcc().parse(hpcc(), place(), Output(stdout="", stderr=""))
    assert nothing.ok is False and nothing.found == "there is no hpccoutf.txt"
    half = parsed(PRINTED[: len(PRINTED) // 2])
    assert half.ok is False and "has no summary; the output ends in" in half.found
    assert all(m.value is None and m.reason for m in half.metrics)


def test_a_sweep_gives_its_curve_and_the_best_point() -> None:
    found = swept(SWEPT)
    assert {m.name: m.value for m in found.metrics} == {
        "nb32": pytest.approx(8.565e9),
        "nb64": pytest.approx(13.16e9),
        "nb128": pytest.approx(15.68e9),
        "nb256": pytest.approx(11.96e9),
        "nb512": pytest.approx(13.53e9),
        "best": pytest.approx(15.68e9),
    }
    assert found.ok, found.found
    assert found.facts["best_nb"] == 128 and found.facts["nb"] == [32, 64, 128, 256, 512]


def test_a_point_that_is_missing_or_wrong_is_not_verified() -> None:
    cut = SWEPT[: SWEPT.index("WR11C2R4        2000   512")] + "End of HPL section.\n"
    found = swept(cut)
    assert found.ok is False and "no line of its table for NB 512" in found.found
    assert {m.name: m.value is None for m in found.metrics}["nb512"]
    assert swept(SWEPT.replace("0.0032136 ...... PASSED", "32.1 ...... FAILED")).ok is False


def test_an_own_xhpl_reads_the_same_input_and_prints_the_same_table() -> None:
    own = hpl(program="/opt/hpl/xhpl")
    invocation = Hpl().command(own, place())
    assert invocation.argv == ("/opt/hpl/xhpl",) and invocation.outputs == ()
    assert "HPL.dat" in invocation.files and "LD_LIBRARY_PATH" not in invocation.env
    assert Hpl().needs(own).programs == ("/opt/hpl/xhpl",) and Hpl().needs(own).packages == ()
    found = Hpl().parse(own, place(), Output(stdout=SWEPT, stderr=""))
    assert found.ok and found.facts["best_nb"] == 128


def test_openblas_is_pinned_to_kernels_by_name() -> None:
    assert blas.core_for(AVX512) == "SkylakeX"
    assert blas.core_for(frozenset({"avx", "avx2", "fma", "avx512f"})) == "Haswell"
    assert blas.core_for(frozenset()) is None
    env = Hpcc().command(hpcc(), place()).env
    directory = f"/usr/lib/{os.uname().machine}-linux-gnu/openblas-pthread"
    assert env == {
        "LD_LIBRARY_PATH": directory,
        "OPENBLAS_NUM_THREADS": "1",
        "OPENBLAS_VERBOSE": "2",
        "OPENBLAS_CORETYPE": "SkylakeX",
    }
    assert Hpcc().needs(hpcc()).programs == ("hpcc", f"{directory}/libblas.so.3")
    assert Hpcc().needs(hpcc()).packages == ("hpcc", "libopenblas0-pthread")
    chosen = Hpcc().command(hpcc(core="Haswell"), place()).env
    assert chosen["OPENBLAS_CORETYPE"] == "Haswell"
    assert "OPENBLAS_CORETYPE" not in Hpcc().command(hpcc(), place(cpu_flags=frozenset())).env
    found = Hpcc().command(hpcc(blas="as-found"), place()).env
    assert "LD_LIBRARY_PATH" not in found and found["OPENBLAS_CORETYPE"] == "SkylakeX"
    assert list(Hpcc().command(hpcc(blas="reference"), place()).env) == ["LD_LIBRARY_PATH"]


@pytest.mark.parametrize(
    ("values", "stderr", "words"),
    [
        ({}, "", "another BLAS was loaded"),
        ({"blas": "reference"}, SAID, "OpenBLAS was loaded"),
        ({"core": "Haswell"}, SAID, "used those for SkylakeX"),
        ({}, "Core: SkylakeX\nCore: Zen\n", "used those for Zen"),
        ({"blas": "reference"}, "", ""),
        ({"blas": "as-found"}, "", ""),
        ({"core": "SkylakeX"}, "mpirun says something\nCore: skylakex\n", ""),
    ],
)
def test_another_blas_than_the_one_asked_for_is_no_result(
    values: dict[str, Value], stderr: str, words: str
) -> None:
    found = parsed(PRINTED, stderr, **values)
    assert words in found.found and found.ok is (not words)


@given(st.text() | st.binary().map(lambda b: b.decode(errors="replace")))
def test_any_text_is_read(text: str) -> None:
    for found in (parsed(text, text), swept(text, text)):
        assert found.ok is False and all(m.value is None and m.reason for m in found.metrics)


@given(st.integers(0, len(PRINTED)), st.text(max_size=5), st.integers(0, 40))
def test_any_truncation_and_damage_is_read(at: int, other: str, length: int) -> None:
    for text in (PRINTED[:at], PRINTED[:at] + other + PRINTED[at + length :]):
        for found in (parsed(text), swept(text, nb="128")):
            assert all((m.value is None) == bool(m.reason) for m in found.metrics)
            assert all(m.value is None or 0 < m.value < float("inf") for m in found.metrics)


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "6,93522", "1e999", "1_0", "", "-1", "0x1p3"])
def test_values_that_are_none(word: str) -> None:
    text = PRINTED.replace("StarDGEMM_Gflops=6.93522", f"StarDGEMM_Gflops={word}")
    found = {m.name: m for m in parsed(text).metrics}["EP-DGEMM"]
    assert found.value is None and "has no EP-DGEMM" in found.reason


def test_the_estimate_knows_the_size_and_which_part_of_it_is_vector_code() -> None:
    """An emulator slows vector code down far more than other work."""
    small, large = hpcc(n=400), hpcc(n="auto", memory=GIB)
    assert Hpcc().messages(small) == 0 < Hpcc().messages(small, 2) < Hpcc().seconds(small, 2)
    assert Hpcc().seconds(small) < 1.1 and Hpcc().seconds(large) > 40
    assert Hpcc().seconds(hpcc(n=4000), 4) < Hpcc().seconds(hpcc(n=4000)) / 2
    assert 0 < Hpcc().vectorised(large) < Hpcc().seconds(large)
    reference = hpcc(n="auto", memory=GIB, blas="reference")
    assert Hpcc().vectorised(reference) == 0 and Hpcc().seconds(reference) > Hpcc().seconds(large)
    swept = hpl(n="auto", memory=GIB)
    assert Hpl().vectorised(swept) == pytest.approx(5 * Hpcc().vectorised(large)), "five block sizes"
    own = hpl(n="auto", memory=GIB, program="/opt/xhpl")
    assert Hpl().seconds(own) == Hpl().vectorised(own) < Hpl().seconds(swept)
