"""What other packages add, installed as they would install it, and used from the command line."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE, one_fits
from tests.system.test_quick import left_behind, nearmetal

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PACKAGES = Path(__file__).parent / "packages"
GROUP = "nearmetal.environments"
HIVE = """\
name: hive
environments:
  native: {backend: native}
  vm:
    backend: hive
    image: debian-mpi
    attachment: ATTACHMENT
    guest: {memory: 512 MiB}
    hive: {loader: uefi, buffer: 2 MiB}
  box: {backend: namespaces, inside: vm}
placements:
  1x1: {instances: 1, tasks: 1}
workloads:
  ep: {kernel: ep, class: S}
design: {baseline: native}
"""
ENDING = "  ending: {subject: ending, count: 5, sleeps: 30 ms}\n"
STUDY = """\
name: ending
environments:
  native: {backend: native}
  box: {backend: namespaces}
  slow: {backend: handicap, extra_work: 10 %}
placements:
  1x2: {instances: 1, tasks: 2}
workloads:
  cg: {kernel: cg, class: S}
"""
STUDY += ENDING + "design: {baseline: native, slices: 2}\n"


def install_example(place: Path, name: str) -> None:
    """Install a package of the examples, with the entry point of its project file."""
    project = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text())["project"]
    ((group, points),) = project["entry-points"].items()
    ((point, target),) = points.items()
    module, _, what = target.partition(":")
    installed(place, (EXAMPLES / name / f"{module}.py").read_text(), module, group, f"{point} = {what}")


def installed(place: Path, code: str, module: str, group: str, point: str) -> None:
    """Install a module as a package of its own.

    point: the entry point, '<name> = <class>'.
    """
    (place / f"{module}.py").write_text(code)
    known = place / f"{module}-1.0.dist-info"
    known.mkdir()
    (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    name, _, what = point.partition(" = ")
    (known / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:{what}\n")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory where the tool finds packages."""
    found = tmp_path / "packages"
    found.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(found), os.environ.get("PYTHONPATH", "")]))
    return found


def test_a_subject_of_another_package(tmp_path: Path, place: Path) -> None:
    install_example(place, "ending")
    (tmp_path / "study.yaml").write_text(STUDY)
    planned = nearmetal("plan", "study.yaml", "--json", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    (tmp_path / "wrong.yaml").write_text(STUDY.replace("subject: ending,", "subject: start,"))
    wrong = nearmetal("plan", "wrong.yaml", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "workloads.ending.sleeps: subject start has no such key; leave it out" in wrong.stderr
    done = nearmetal("run", "study.yaml", "--max-blocks", "2", "--seed", "5", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    cells = {(c["environment"], c["workload"], c["metric"]): c for c in result["cells"]}
    assert cells["box", "ending", "ending"]["n"] == 2
    assert min(cells["box", "ending", "ending"]["baseline_values"]) > 0.03, (
        "each command sleeps as the study says"
    )
    assert ("slow", "cg", "rate") in cells
    assert ("slow", "ending", "ending") not in cells, "it says that it cannot measure this backend"
    assert "slow does not run ending: it runs commands more slowly on purpose" in done.stderr
    floors = json.dumps(result["noise_floor"])
    assert "ending" in floors
    (directory,) = (tmp_path / "results").iterdir()
    again = nearmetal("resume", str(directory), "--max-blocks", "3", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "ending" in again.stdout
    assert left_behind(tmp_path) == []


def weighed(cwd: Path, backend: str) -> dict[str, Any]:
    """The result of at least two rounds, for which a busy machine may need more time."""

    def result(time: str) -> dict[str, Any]:
        done = nearmetal("weigh", "native", backend, "-w", "ep", "--time", time, "--json", cwd=cwd)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    times = iter(("20s", "2m", "10m"))
    return one_fits(lambda: result(next(times)), lambda found: found["blocks"] >= 2, attempts=3)


def checks(cwd: Path) -> dict[str, dict[str, str]]:
    """What `nearmetal check` says about each backend."""
    done = nearmetal("check", "--json", cwd=cwd)
    found = (c for c in json.loads(done.stdout)["checks"] if c["group"] == "environment")
    return {c["what"].partition(" ")[0]: c for c in found}


def test_the_example_of_a_backend_measures(tmp_path: Path, place: Path) -> None:
    install_example(place, "fixed_layout")
    assert {c["environment"] for c in weighed(tmp_path, "fixed-layout")["cells"]} == {"fixed-layout"}
    assert left_behind(tmp_path) == []


def test_the_example_of_a_kernel_runs(tmp_path: Path) -> None:
    """Two files beside the others: nothing else of nearmetal is changed."""
    for part in ("src", "kernels"):
        shutil.copytree(ROOT / part, tmp_path / part)
    shutil.copy(EXAMPLES / "broadcast" / "broadcast.c", tmp_path / "kernels" / "micro")
    kernels = tmp_path / "src" / "nearmetal" / "workloads" / "kernels"
    shutil.copy(EXAMPLES / "broadcast" / "broadcast.py", kernels)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "nearmetal",
            "kernel",
            "broadcast",
            "--ranks",
            "2",
            "--oversubscribe",
            "--json",
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src"), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verified"] and found["metrics"]["broadcast"]["value"] > 0


def test_a_container_backend_of_another_package(tmp_path: Path, place: Path) -> None:
    """One file, and the line that names it: nothing of nearmetal is changed."""
    code = (PACKAGES / "unshared.py").read_text()
    installed(place, code, "unshared", GROUP, "unshared = Unshared")
    assert checks(tmp_path)["unshared"]["state"] in ("works", "works partly")
    found = weighed(tmp_path, "unshared")["cells"]
    assert [(c["environment"], c["workload"]) for c in found] == [("unshared", "ep")]
    assert found[0]["n"] >= 2
    study = STUDY.replace(
        "{backend: handicap, extra_work: 10 %}", "{backend: unshared, unshare: {time: true}}"
    )
    (tmp_path / "study.yaml").write_text(study.replace(ENDING, ""))
    done = nearmetal("run", "study.yaml", "--max-blocks", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {c["environment"] for c in json.loads(done.stdout)["cells"]} == {"box", "slow"}
    assert left_behind(tmp_path) == []


def test_a_backend_of_virtual_machines_of_another_package(tmp_path: Path, place: Path) -> None:
    code = (PACKAGES / "hive.py").read_text()
    installed(place, code, "hive", GROUP, "hive = Hive")
    answer = checks(tmp_path)["hive"]
    assert (answer["state"], answer["why"], answer["remedy"]) == (
        "not here",
        "this machine has no hive",
        "apt-get install hive",
    )
    refused = nearmetal("weigh", "native", "hive", "-w", "ep", "--time", "20s", cwd=tmp_path)
    assert refused.returncode == 3
    assert "hive cannot run here: this machine has no hive. Next: apt-get install hive" in refused.stderr
    (tmp_path / "hive.yaml").write_text(HIVE.replace("ATTACHMENT", "user"))
    wrong = nearmetal("plan", "hive.yaml", cwd=tmp_path)
    assert (
        wrong.returncode == 2 and "the hive has no network of users; write attachment: none" in wrong.stderr
    )
    assert "environments.vm.hive" not in wrong.stderr and "environments.box" not in wrong.stderr
    explained = nearmetal("init", "--explain", cwd=tmp_path).stdout
    assert re.search(r"^ +loader +what boots it\.  Example: uefi  \(default bios\)$", explained, re.MULTILINE)
