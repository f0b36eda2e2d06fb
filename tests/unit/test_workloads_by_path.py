"""OSU, Intel MPI benchmarks, McCalpin's STREAM, perftest: their documented output, whole or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmetal.host.cgroups import EffectiveLimits
from nearmetal.node.machine import Hardware, hardware_of
from nearmetal.testing.fake_host import FakeHost
from nearmetal.workloads.applications.contract import Application, Output, Parsed, Place
from nearmetal.workloads.applications.hpc_challenge.output import solved
from nearmetal.workloads.applications.imb import Imb
from nearmetal.workloads.applications.mccalpin import McCalpinStream
from nearmetal.workloads.applications.osu import Osu
from nearmetal.workloads.applications.perftest import Perftest
from nearmetal.workloads.parameter import Choices, Value

OSU_LATENCY = """
# OSU MPI Latency Test v7.3
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                       0.22
8                       0.23
4096                    1.02
1048576                98.70
"""
OSU_BANDWIDTH = """# OSU MPI Bandwidth Test v5.6.2
# Size      Bandwidth (MB/s)
8                      33.64
4096                 5601.75
1048576             11018.34
"""
OSU_ALL = """# OSU MPI Allreduce Latency Test v5.9
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
8                       1.17              1.10              1.24        1000
"""
OSU_RATES = """# OSU MPI Multiple Bandwidth / Message Rate Test v5.6.2
# [ pairs: 1 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
8                      35.50        4437500.00
"""
OSU_OVERLAP = """# OSU MPI Non-blocking Allreduce Latency Test v7.3
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait
# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
8                       9.59              4.51              4.42              0.00
"""
OSU_BARRIER = """# OSU MPI Barrier Latency Test v5.9
# Avg Latency(us)
             0.62
"""
IMB_PINGPONG = """#----------------------------------------------------------------
#    Intel(R) MPI Benchmarks 2019 Update 6, MPI-1 part
#----------------------------------------------------------------
# List of Benchmarks to run:
# PingPong
#---------------------------------------------------
# Benchmarking PingPong
# #processes = 2
#---------------------------------------------------
       #bytes #repetitions      t[usec]   Mbytes/sec
            0         1000         1.66         0.00
            8         1000         1.66         4.81
         4096         1000         3.10      1321.29
      1048576           40       150.40      6971.91


# All processes entering MPI_Finalize
"""
IMB_EXCHANGE = """#    Intel (R) MPI Benchmark Suite V3.2.3, MPI-1 part
# Benchmarking Exchange
# #processes = 2
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]   Mbytes/sec
            8         1000         2.12         2.14         2.13        14.26
"""
IMB_BARRIER = """# Benchmarking Barrier
# #processes = 4
 #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
         1000         0.71         0.73         0.72
"""
STREAM = """-------------------------------------------------------------
STREAM version $Revision: 5.10 $
-------------------------------------------------------------
Array size = 80000000 (elements), Offset = 0 (elements)
-------------------------------------------------------------
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:           27430.3     0.046851     0.046664     0.047194
Scale:          18235.5     0.070344     0.070193     0.070528
Add:            20502.0     0.093946     0.093649     0.094287
Triad:          20560.8     0.093730     0.093381     0.094234
-------------------------------------------------------------
Solution Validates: avg error less than 1.000000e-13 on all three arrays
-------------------------------------------------------------
"""
WRITE_BANDWIDTH = """
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Device         : mlx5_0
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             92.57              92.50              0.176430
---------------------------------------------------------------------------------------
"""
WRITE_LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
99% percentile[usec]   99.9% percentile[usec]
 2       1000          1.76           6.12         1.79                1.80             0.06            \
1.88                    6.12
"""
DEVICE = ("mlx5_0",)


def choices(known: Application, **values: Value) -> Choices:
    return Choices(values={p.name: p.default for p in known.parameters} | values)


def place(*, tasks: int = 2, rdma: tuple[str, ...] = DEVICE) -> Place:
    here = Path("/run/x")
    return Place(nodes=1, instances=1, tasks=tasks, directory=here, storage=None, memory=1 << 30, rdma=rdma)


def parsed(known: Application, text: str, **values: Value) -> Parsed:
    output = Output(stdout=text, files={"client.txt": text})
    return known.parse(choices(known, **values), place(), output)


def values_of(found: Parsed) -> dict[str, float | None]:
    return {m.name: m.value for m in found.metrics}


@pytest.mark.parametrize(
    ("program", "text", "expected"),
    [
        (
            "osu_latency",
            OSU_LATENCY,
            {"latency-8": 0.23e-6, "latency-4096": 1.02e-6, "latency-1048576": 98.7e-6},
        ),
        (
            "/opt/osu/osu_bw",
            OSU_BANDWIDTH,
            {"bandwidth-8": 33.64e6, "bandwidth-4096": 5601.75e6, "bandwidth-1048576": 11018.34e6},
        ),
        # The heading counts, not the name of the program.
        (
            "osu_bw_persistent",
            OSU_BANDWIDTH,
            {"bandwidth-8": 33.64e6, "bandwidth-4096": 5601.75e6, "bandwidth-1048576": 11018.34e6},
        ),
        ("my_bw", OSU_LATENCY, {"latency-8": 0.23e-6, "latency-4096": 1.02e-6, "latency-1048576": 98.7e-6}),
        ("mine", OSU_RATES, {"bandwidth-8": 35.5e6, "bandwidth-4096": None, "bandwidth-1048576": None}),
        ("mine", OSU_OVERLAP, {"latency-8": 9.59e-6, "latency-4096": None, "latency-1048576": None}),
        ("osu_allreduce", OSU_ALL, {"latency-8": 1.17e-6, "latency-4096": None, "latency-1048576": None}),
        ("osu_barrier", OSU_BARRIER, {"latency": 0.62e-6}),
    ],
)
def test_osu_by_size(program: str, text: str, expected: dict[str, float | None]) -> None:
    found = parsed(Osu(), text, program=program)
    assert values_of(found) == {k: v if v is None else pytest.approx(v) for k, v in expected.items()}
    assert all(bool(m.reason) == (m.value is None) for m in found.metrics)
    assert str(found.facts["benchmark"]).startswith("OSU MPI")


@pytest.mark.parametrize(
    ("heading", "told"),
    [
        ("# Size       Messages/s", "the last one is '# Size       Messages/s'"),
        ("# Size       Min Latency(us)", "the last one is '# Size       Min Latency(us)'"),
        ("# Size       Latency (MB/s)", "the last one is '# Size       Latency (MB/s)'"),
        ("", "the last one is '# Datatype: MPI_CHAR.'"),
    ],
)
def test_a_table_of_osu_with_another_heading_is_refused(heading: str, told: str) -> None:
    found = parsed(Osu(), OSU_LATENCY.replace("# Size       Avg Latency(us)", heading))
    assert len(found.metrics) == 7 and all(m.value is None and told in m.reason for m in found.metrics)


def test_stream_and_hpl_in_another_unit_or_without_a_heading() -> None:
    giga = parsed(McCalpinStream(), STREAM.replace("MB/s", "GB/s"))
    assert values_of(giga)["copy"] == pytest.approx(27430.3e9)
    for heading in ("Best Rate furlongs", "Best Rate"):
        found = parsed(McCalpinStream(), STREAM.replace("Best Rate MB/s", heading))
        assert values_of(found)["copy"] is None and "no heading" in found.metrics[0].reason
    line = "WR11C2R4 2000 32 1 2 0.62 8.565e+00\n"
    for unit, flops in (("Gflops", 8.565e9), ("Tflops", 8.565e12), ("Watt", None)):
        assert solved(f"T/V N NB P Q Time {unit}\n{line}")[0].flops == pytest.approx(flops)
    assert solved(line)[0].flops is None


def test_osu_is_asked_for_its_sizes_alone() -> None:
    argv = Osu().command(choices(Osu(), sizes="8..64", program="/opt/osu_bw"), place()).argv
    assert argv == ("/opt/osu_bw", "-m", "8:64", "-i", "1000")
    for program in ("osu_barrier", "osu_ibarrier", "osu_barrier_persistent"):
        assert Osu().command(choices(Osu(), program=program), place()).argv == (program, "-i", "1000")


@pytest.mark.parametrize(
    ("values", "tasks", "words"),
    [
        ({"sizes": "many"}, 2, "sizes is a number of bytes"),
        ({"program": "./osu_bw"}, 2, "it runs in another directory"),
        ({}, 1, "at least two ranks"),
    ],
)
@pytest.mark.parametrize("known", [Osu(), Imb()])
def test_options_that_do_not_fit_the_program_are_refused(
    known: Application, values: dict[str, Value], tasks: int, words: str
) -> None:
    assert words in (known.problem(choices(known, **values), place(tasks=tasks)) or "")
    assert known.problem(choices(known), place()) is None


def test_imb_of_two_ranks() -> None:
    found = parsed(Imb(), IMB_PINGPONG)
    assert values_of(found) == {
        "latency-8": pytest.approx(1.66e-6),
        "latency-4096": pytest.approx(3.1e-6),
        "latency-1048576": pytest.approx(150.4e-6),
        "bandwidth-8": pytest.approx(4.81e6),
        "bandwidth-4096": pytest.approx(1321.29e6),
        "bandwidth-1048576": pytest.approx(6971.91e6),
    }
    command = Imb().command(choices(Imb(), sizes="8 64"), place(tasks=4))
    assert command.argv[1:4] == ("PingPong", "-npmin", "2") and command.files == {"lengths.txt": "8\n64\n"}


def test_mega_is_binary_in_the_older_imb_and_unknown_without_a_version() -> None:
    """8 B in 2.13 us, four times: 14.26 x 2^20 B/s were moved, not 14.26 x 10^6."""
    found = values_of(parsed(Imb(), IMB_EXCHANGE, benchmark="Exchange", sizes="8"))
    assert found == {"latency-8": pytest.approx(2.13e-6), "bandwidth-8": pytest.approx(14.26 * 2**20)}
    nameless = parsed(Imb(), IMB_EXCHANGE.partition("\n")[2], benchmark="Exchange", sizes="8")
    assert values_of(nameless)["bandwidth-8"] is None and "version" in nameless.metrics[1].reason


def test_another_benchmark_of_imb_is_not_taken_for_the_one_asked_for() -> None:
    both = IMB_BARRIER + IMB_EXCHANGE
    assert values_of(parsed(Imb(), both, benchmark="Barrier")) == {"latency": pytest.approx(0.72e-6)}
    assert values_of(parsed(Imb(), both, benchmark="Bcast", sizes="8")) == {"latency-8": None}


def test_stream_and_its_verification() -> None:
    found = parsed(McCalpinStream(), STREAM)
    expected = {"copy": 27430.3e6, "scale": 18235.5e6, "add": 20502.0e6, "triad": 20560.8e6}
    assert values_of(found) == {k: pytest.approx(v) for k, v in expected.items()}
    assert found.ok and found.facts == {"elements": 80_000_000}
    wrong = parsed(McCalpinStream(), STREAM.replace("Solution Validates", "Failed Validation on array a[]"))
    assert wrong.ok is False and wrong.found == "Failed Validation"
    half = parsed(McCalpinStream(), STREAM[: STREAM.index("Triad:")])
    assert half.ok is False and values_of(half)["triad"] is None


def test_rdma_bandwidth_and_latency() -> None:
    found = parsed(Perftest(), WRITE_BANDWIDTH)
    assert values_of(found) == {
        "bandwidth": pytest.approx(92.5e9 / 8),
        "messages": pytest.approx(176430.0),
    }
    binary = WRITE_BANDWIDTH.replace("Gb/sec", "MB/sec")
    assert values_of(parsed(Perftest(), binary))["bandwidth"] == pytest.approx(92.5 * 2**20)
    found = parsed(Perftest(), WRITE_LATENCY, test="ib_write_lat")
    assert values_of(found) == {
        "latency": pytest.approx(1.79e-6),
        "latency-mean": pytest.approx(1.8e-6),
        "latency-p99": pytest.approx(1.88e-6),
    }


def test_rdma_without_a_device_is_refused_before_anything_starts(tmp_path: Path) -> None:
    known = Perftest()
    assert known.problem(choices(known), place(rdma=())) == "no RDMA device: /sys/class/infiniband is empty"
    assert known.problem(choices(known, device="mlx4_0"), place()) == "no RDMA device mlx4_0; there is mlx5_0"
    assert known.problem(choices(known), place(tasks=1)) == "perftest needs two ranks"
    assert known.problem(choices(known), place()) is None
    argv = known.command(choices(known), place()).argv
    assert argv[2:] == (
        "ib_write_bw",
        "client.txt",
        "-F",
        "-d",
        "mlx5_0",
        "-s",
        "65536",
        "-n",
        "5000",
        "--report_gbits",
    )
    latency = known.command(choices(known, test="ib_write_lat", size=64), place()).argv
    assert latency[4:] == ("-F", "-d", "mlx5_0", "-s", "64", "-n", "5000")


def test_hardware_of_the_machine_is_read(tmp_path: Path) -> None:
    host = FakeHost(
        files={
            "/proc/meminfo": b"MemTotal: 2048 kB\n",
            "/proc/cpuinfo": b"processor: 0\nflags : fpu avx2\n\n",
        }
    )
    (tmp_path / "mlx5_1").mkdir()
    (tmp_path / "mlx5_0").mkdir()
    found = hardware_of(host, tmp_path)
    assert found == Hardware(memory=2 << 20, cpu_flags=frozenset({"fpu", "avx2"}), rdma=("mlx5_0", "mlx5_1"))
    assert hardware_of(host, tmp_path / "none").rdma == ()


@pytest.mark.parametrize(("limit", "memory"), [(1500, 1244), (300, 150), (5000, 4096), (None, 4096)])
def test_instances_may_use_what_the_job_may_use_less_what_nearmetal_takes(
    limit: int | None, memory: int
) -> None:
    host = FakeHost(files={"/proc/meminfo": b"MemTotal: 4194304 kB\n"}, absent=("/proc/cpuinfo",))
    limits = EffectiveLimits(memory=None if limit is None else limit << 20)
    assert hardware_of(host, limits=limits).memory == memory << 20


SAMPLES: list[tuple[Application, str, dict[str, Value]]] = [
    (Osu(), OSU_LATENCY, {}),
    (Osu(), OSU_BARRIER, {"program": "osu_barrier"}),
    (Imb(), IMB_PINGPONG, {}),
    (McCalpinStream(), STREAM, {}),
    (Perftest(), WRITE_BANDWIDTH, {}),
    (Perftest(), WRITE_LATENCY, {"test": "ib_read_lat"}),
]


def sound(found: Parsed) -> bool:
    return all(
        (m.value is None) == bool(m.reason) and (m.value is None or 0 < m.value < float("inf"))
        for m in found.metrics
    )


@given(st.sampled_from(SAMPLES), st.text() | st.binary().map(lambda b: b.decode(errors="replace")))
def test_any_text_is_read(sample: tuple[Application, str, dict[str, Value]], text: str) -> None:
    known, _, values = sample
    found = parsed(known, text, **values)
    assert sound(found) and {m.name for m in found.metrics} <= {
        n for n, *_ in known.metrics(choices(known, **values))
    }


@given(st.sampled_from(SAMPLES), st.integers(0, 1200), st.text(max_size=5), st.integers(0, 40))
def test_any_truncation_and_damage_is_read(
    sample: tuple[Application, str, dict[str, Value]], at: int, other: str, length: int
) -> None:
    known, whole, values = sample
    for text in (whole[:at], whole[:at] + other + whole[at + length :]):
        assert sound(parsed(known, text, **values))


@pytest.mark.parametrize("word", ["nan", "inf", "0,23", "1e999", "-0.23", "0", "0_23"])
def test_values_that_are_none(word: str) -> None:
    found = parsed(Osu(), OSU_LATENCY.replace("0.23", word))
    assert values_of(found)["latency-8"] is None
