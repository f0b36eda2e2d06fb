"""HPCC, HPL and benchmarks by path through the whole tool: natively, in a container, refused, and failing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import NAME, NEARMETAL, RealImage, nearmetal

from nearmetal.host import LocalHost
from nearmetal.host.facts.provenance import cpu_flags
from nearmetal.workloads.applications.contract import Output, Place
from nearmetal.workloads.applications.hpc_challenge.blas import core_for
from nearmetal.workloads.applications.perftest import Perftest
from nearmetal.workloads.parameter import Choices

pytestmark = pytest.mark.more

STUDY = """\
name: linpack
environments:
  native: {backend: native}
  box: {backend: namespaces, attachment: veth-bridge}
placements:
  1x2: {instances: 1, tasks: 2}
workloads:
  hpcc: {application: hpcc, n: 300, nb: 32}
  curve: {application: hpl, n: 300, nb: 16..64, blas: reference}
  osu: {application: osu, program: PROGRAM, sizes: 8}
design: {baseline: native, warm_up: 0, mode: plain, seed: 3}
"""
#: Every rank spends time that the system's clock can see; rank 0 prints what osu_latency prints.
FAKE_OSU = """\
#!/bin/sh
i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); done
dd if=/dev/zero of=/dev/null bs=64k count=6000 2>/dev/null
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
[ "$1 $2" = "-m 8:8" ] || exit 9
printf '# OSU MPI Latency Test v7.3\\n# Size       Avg Latency(us)\\n8                       0.50\\n'
"""
#: Dies in the second of three systems, and says nothing of it.
FAKE_HPCC = """\
#!/bin/sh
i=0; while [ $i -lt 60000 ]; do i=$((i + 1)); done
dd if=/dev/zero of=/dev/null bs=64k count=6000 2>/dev/null
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
cat >hpccoutf.txt <<END
Begin of HPL section.
WR11C2R4         300    16     1     2               0.01              1.692e+00
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0029086 ...... PASSED
WR11C2R4         300    3
END
"""
#: A server that listens after a while; a client that fails until then, as perftest does.
FAKE_PERFTEST = """\
#!/bin/sh
for word; do last=$word; done
if [ "$last" = --report_gbits ]; then
    sleep 0.4; : >listening; sleep 0.6; echo "the server's table"; exit 0
fi
[ -e listening ] || exit 1
echo " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
echo " 65536      5000             92.57              80.00              0.1"
"""


def program(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o755)
    return file


def run(
    tmp_path: Path, text: str, *words: str
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    (tmp_path / "s.yaml").write_text(text)
    results = tmp_path / "results"
    # From here: an instance has a /tmp of its own, but sees the directory that the tool was started in.
    done = subprocess.run(
        [NEARMETAL, "run", "s.yaml", "--json", "--results", str(results), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    files = results.glob("*/trials/*.jsonl")
    return done, [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_hpcc_hpl_and_osu_natively_and_in_a_container(tmp_path: Path) -> None:
    fake = program(tmp_path / "osu_latency", FAKE_OSU)
    done, records = run(tmp_path, STUDY.replace("PROGRAM", str(fake)), "--max-blocks", "1")
    assert done.returncode == 0, done.stderr
    assert {r["arm"] for r in records} == {"native/1x2", "box/1x2"}
    for record in records:
        rows = {(r["workload"], r["metric"]): r for r in record["rows"]}
        assert {r["status"] for r in rows.values()} == {"ok"}, [r["reason"] for r in rows.values()]
        # In flop/s, unlike HPCC's own output. It works for some milliseconds, which a busy machine prolongs.
        assert 1e6 < rows["hpcc", "G-HPL"]["values"][0] < 1e12
        assert 0 < rows["hpcc", "RandomRing-latency"]["values"][0] < 1
        assert rows["hpcc", "EP-DGEMM"]["verification"]["ok"] is True
        best = rows["curve", "best"]["values"][0]
        assert best == max(rows["curve", f"nb{nb}"]["values"][0] for nb in (16, 32, 64))
        assert rows["osu", "latency-8"]["values"] == [5e-7]
        told = record["facts"]
        assert told["hpcc"]["grid"] == "1x2" and told["hpcc"]["blas"] == "openblas"
        assert told["curve"]["blas"] == "reference" and told["curve"]["openblas_core"] is None
        assert told["curve"]["nb"] == [16, 32, 64]
    # OpenBLAS's kernels by the same name on both sides: those that suit this machine.
    (core,) = {r["facts"]["hpcc"]["openblas_core"] for r in records}
    assert core.lower() == (core_for(cpu_flags(LocalHost())) or core).lower()


def test_a_program_that_stops_half_way_fails_and_leaves_what_it_wrote(tmp_path: Path) -> None:
    fake = program(tmp_path / "hpcc", FAKE_HPCC)
    text = STUDY.replace("blas: reference", f"blas: as-found, program: {fake}")
    start, middle, end = (text.index(word) for word in ("  hpcc:", "  curve:", "  osu:"))
    done, records = run(tmp_path, text[:start] + text[middle:end] + text[text.index("design:") :])
    assert done.returncode == 4 and not records, done.stderr
    assert "HPL has no line of its table for NB 32, 64" in done.stderr
    kept = list((tmp_path / "results").glob("*/logs/*/curve.hpccoutf.txt"))
    assert kept and "WR11C2R4         300    16" in kept[0].read_text()


def test_a_grid_that_does_not_fit_starts_nothing(tmp_path: Path) -> None:
    text = STUDY.replace("nb: 32}", "p: 3}").replace("PROGRAM", "osu_latency")
    done, records = run(tmp_path, text)
    assert done.returncode == 2 and not records
    assert "a grid of 3 x 1 needs 3 ranks, the placement has 2 (placement 1x2)" in done.stderr


def test_rdma_without_a_device_starts_nothing() -> None:
    if Path("/sys/class/infiniband").is_dir():
        pytest.skip("this machine has RDMA devices")
    done = nearmetal(dict(os.environ), "weigh", "native", "namespaces", "-w", "perftest")
    assert done.returncode == 2 and "no RDMA device: /sys/class/infiniband is empty" in done.stderr


@pytest.mark.beside
def test_an_image_without_hpcc_names_the_packages(debian_mpi: RealImage, tmp_path: Path) -> None:
    text = STUDY.replace("{backend: native}", f"{{backend: native, image: {NAME}}}")
    text = text[: text.index("  curve:")] + text[text.index("design:") :]
    (tmp_path / "s.yaml").write_text(text)
    done = nearmetal(debian_mpi.env, "run", str(tmp_path / "s.yaml"), "--results", str(tmp_path / "results"))
    assert done.returncode == 3, done.stderr
    assert f"are not in image {NAME}" in done.stderr and "hpcc libopenblas0-pthread" in done.stderr


def test_perftest_server_and_client_find_each_other(tmp_path: Path) -> None:
    known = Perftest()
    choices = Choices(values={p.name: p.default for p in known.parameters} | {"test": "ib_write_bw"})
    place = Place(
        nodes=1, instances=2, tasks=1, directory=tmp_path, storage=None, memory=1 << 30, rdma=("mlx5_0",)
    )
    invocation = known.command(choices, place)
    (script,) = invocation.files.items()
    (tmp_path / script[0]).write_text(script[1])
    fake = program(tmp_path / "ib_write_bw", FAKE_PERFTEST)
    argv = [str(fake) if word == "ib_write_bw" else word for word in invocation.argv]
    ranks = [
        subprocess.Popen(
            argv, cwd=tmp_path, env={**os.environ, "PMI_RANK": str(rank)}, stderr=subprocess.PIPE
        )
        for rank in (0, 1, 2)
    ]
    assert [rank.communicate(timeout=600)[1] for rank in ranks] == [b"", b"", b""]
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert (tmp_path / "server").read_text().strip() != ""
    written = (tmp_path / "client.txt").read_text()
    found = known.parse(choices, place, Output(stdout="", files={"client.txt": written}))
    assert {m.name: m.value for m in found.metrics} == {"bandwidth": 1e10, "messages": pytest.approx(1e5)}
