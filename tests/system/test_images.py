"""A real image from the command line: killed, built, run in by several backends, compared with the host."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import NAME, RealImage, nearmetal
from tests.system.conftest import the_machine

from nearmetal.images.digest import tree_digest

# Runs take the machine themselves: while the image is built, others may run.
pytestmark = [pytest.mark.more, pytest.mark.beside, pytest.mark.no_run]

STUDY = """\
name: imaged
environments:
  native: {backend: native, image: debian-mpi, placements: [1x2]}
  namespaces: {backend: namespaces, image: debian-mpi, attachment: veth-bridge, placements: [1x2, 2x1]}
  lxc: {backend: lxc, image: debian-mpi, attachment: veth-bridge, placements: [2x1]}
  machine: {backend: native, placements: [1x2], workloads: [ep]}
placements:
  1x2: {instances: 1, tasks: 2}
  2x1: {instances: 2, tasks: 1}
workloads:
  ep: {kernel: ep, class: S}
  latency: {kernel: pingpong, bytes: 8 B}
  where:
    command: [grep, -c, "", /var/lib/dpkg/status]
    metrics: {lines: {regex: '(\\d+)', unit: lines, better: lower}}
design: {baseline: native, margin: 3 %, slices: 2, seed: 5}
"""


def test_a_build_that_is_killed_leaves_nothing_that_counts(debian_mpi: RealImage) -> None:
    assert debian_mpi.busy.returncode == 3, debian_mpi.busy.stderr
    assert f"image {NAME} is being made" in debian_mpi.busy.stderr
    assert debian_mpi.left == ()
    assert debian_mpi.half
    assert re.search(rf"^{NAME} +not built", debian_mpi.listed, re.MULTILINE)


def test_built_image_matches_its_facts(debian_mpi: RealImage) -> None:
    facts = debian_mpi.facts
    tree = Path(facts["tree"])
    assert tree_digest(tree) == facts["digest"]
    assert {p.split()[0] for p in facts["packages"]} >= {"gcc", "cmake", "openmpi-bin", "libopenmpi-dev"}
    assert not (tree / "etc" / "resolv.conf").exists() and list((tree / "dev").iterdir()) == []
    listed = json.loads(nearmetal(debian_mpi.env, "image", "list", "--json").stdout)
    assert [i for i in listed if i["name"] == NAME] == [facts]
    again = nearmetal(debian_mpi.env, "image", "build", NAME, timeout=600)
    assert again.returncode == 0 and again.stderr == ""


def test_a_run_in_the_image(debian_mpi: RealImage, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STUDY)
    words = ("--max-blocks", "1", "--json", "--results", str(tmp_path / "results"))
    with the_machine():
        done = nearmetal(debian_mpi.env, "run", str(tmp_path / "s.yaml"), *words)
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "results").iterdir()
    known = json.loads((directory / "provenance.json").read_text())
    assert known["images"][NAME]["digest"] == debian_mpi.facts["digest"]
    assert known["images"][NAME]["packages"] == debian_mpi.facts["packages"]
    records = [json.loads(line) for line in (directory / "trials" / "local.jsonl").read_text().splitlines()]
    assert {r["status"] for r in records} == {"ok"}, [r["reason"] for r in records]
    arms = {r["arm"]: r for r in records}
    assert set(arms) == {"native/1x2", "namespaces/1x2", "namespaces/2x1", "lxc/2x1", "machine/1x2"}
    assert arms["namespaces/2x1"]["transport"]["btl"] == "tcp,self"
    in_image = [values_of(arms[a], "where", "lines") for a in arms if a != "machine/1x2"]
    dpkg = (Path(debian_mpi.facts["tree"]) / "var/lib/dpkg/status").read_text().count("\n")
    assert {v for values in in_image for v in values} == {float(dpkg)}
    same, differing = differences(known["parity"]["differences"])
    assert not same, same
    assert "binary nm-micro" in known["parity"]["facts"]["machine/1x2"]
    assert differing <= {"machine/1x2"}
    # The tree is as it was, and the next run finds its kernels compiled.
    assert tree_digest(Path(debian_mpi.facts["tree"])) == debian_mpi.facts["digest"]
    with the_machine():
        again = nearmetal(debian_mpi.env, "resume", str(directory), "--max-blocks", "2", "--json")
    assert again.returncode == 0 and "compiling" not in again.stderr, again.stderr


def values_of(record: dict[str, Any], workload: str, metric: str) -> list[float]:
    return [
        v for r in record["rows"] if (r["workload"], r["metric"]) == (workload, metric) for v in r["values"]
    ]


def differences(found: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], set[str]]:
    """Those of binaries and libraries between arms in the image; the arms that differ from the native one."""
    software = [d for d in found if d["name"].startswith(("binary", "library"))]
    within = [
        d for d in software if len({v for a, v in d["values"].items() if not a.startswith("machine")}) > 1
    ]
    return within, {a for d in software for a, v in d["values"].items() if v != d["values"]["native/1x2"]}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("image", "build", "no-such"), 2, "no image called no-such comes with nearmetal"),
        (("image", "build", "../../etc"), 2, "is not a name for an image"),
        (("image", "export", "trixie-mpi", "--form", "tar"), 3, "nearmetal image build trixie-mpi"),
        (("image", "export", NAME, "--form", "zip"), 2, "unknown form zip"),
        (("image", "remove", "no-such"), 2, "no image no-such"),
        (
            ("weigh", "native", "namespaces", "--image", "debian-mpl", "-w", "ep"),
            3,
            'did you mean "debian-mpi"?',
        ),
    ],
)
def test_mistakes_on_the_command_line(
    debian_mpi: RealImage, words: tuple[str, ...], code: int, said: str
) -> None:
    done = nearmetal(debian_mpi.env, *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_dry_run_builds_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    plan = json.loads(nearmetal(env, "image", "build", NAME, "--dry-run", "--json").stdout)
    assert plan["name"] == NAME and plan["archives"] and plan["suite"] != "host"
    shown = nearmetal(env, "image", "build", "debian-ocean", "--dry-run").stdout
    assert "pip       veros==1.7.0" in shown and "python3-pip" in shown
    assert not (tmp_path / "nearmetal").exists()


def test_a_program_that_only_the_machine_has_is_refused_by_name(debian_mpi: RealImage) -> None:
    words = ("weigh", "native", "namespaces", "--image", NAME, "--time", "5s", "--", "git", "--version")
    with the_machine():
        done = nearmetal(debian_mpi.env, *words)
    assert done.returncode == 4, done.stderr
    assert "git cannot be started: No such file or directory" in done.stderr
    assert f"this machine has it, the image does not: add its package to image {NAME}" in done.stderr
