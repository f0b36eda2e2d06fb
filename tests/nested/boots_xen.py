"""The system booted without Xen against the same booted with it, and against a guest of its: several boots of
each, one study, compared unpaired. For function alone; minutes long, so not among the usual tests."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest
from tests.conftest import NEARMETAL
from tests.nested.inside import booted, built_image, carried_disk, nearmetal, whole_kernel
from tests.nested.machine import Outer

pytestmark = [pytest.mark.more, pytest.mark.timeout(7200)]  # everything is emulated

IMAGE = "debian-mpi"
BOOTS = 2
RESULTS = "/written/results"
STUDY = """\
name: boots
question: does it work? (every figure is of an emulator)
environments:
  bare: {{backend: native, image: debian-mpi}}
  pv:
    backend: xen
    image: debian-mpi
    attachment: none
    guest: {{memory: 256 MiB, vcpus: 1, kernel: {kernel}, boot_timeout: 30 min}}
    xen: {{type: pv}}
placements:
  1x1: {{instances: 1, tasks: 1}}
workloads:
  cg: {{kernel: cg, class: S}}
design:
  baseline: bare
  min_blocks: 6
  max_blocks: 6
  max_time: 10 min
  slices: 2
  seed: 5
"""


def fetched(outer: Outer, machine: Path) -> Path:
    """The results of a run there, here."""
    kept, archive = machine / "results", machine / "results.tar"
    kept.mkdir()
    outer.do("tar", "-C", RESULTS, "-cf", "/written/results.tar", ".")
    archive.write_bytes(b64decode(outer.do("base64", "/written/results.tar")))
    subprocess.run(["tar", "-C", str(kept), "-xf", str(archive)], check=True, timeout=600)
    return kept


def test_the_system_without_xen_is_compared_with_that_under_it(tmp_path: Path) -> None:
    image = built_image(IMAGE)
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(kernel=whole_kernel()))
    (tmp_path / "carry").mkdir()
    disk = carried_disk(tmp_path / "carry", image, {"study.yaml": study})
    found: dict[bool, list[Path]] = {False: [], True: []}
    for number in range(BOOTS):
        for xen in (number % 2 == 0, number % 2 == 1):
            machine = tmp_path / f"machine-{number}-{xen}"
            machine.mkdir()
            with booted(machine, disk, image, xen=xen) as outer:
                words = ["run", "/carried/study.yaml", "--results", RESULTS, "--max-blocks", "1", "--json"]
                told = json.loads(nearmetal(outer, words, timeout=900))
                kept = fetched(outer, machine)
            arms = {c["arm"].partition("~")[0] for c in told["cells"]}
            assert ("pv/1x1" in arms) is xen, arms
            found[xen].append(next(kept.iterdir()))
    without, under = found[False], found[True]
    argv = [NEARMETAL, "compare", "--before", *map(str, without), "--after", *map(str, under), "--json"]
    argv += ["--pair", "bare=bare", "--pair", "bare=pv"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)
    cells = compared["cells"]
    assert compared["answer"] == "impossible" and compared["least_boots"]["any_verdict"] > BOOTS
    assert {c["other"] for c in cells} == {"bare/1x1", "pv/1x1"}
    assert all(c["boots"] == [BOOTS, BOOTS] and c["arm"] == "bare/1x1" for c in cells)
    assert all(c["verdict"] and c["guest"].startswith(("Xen in TCG: ", "TCG: ")) for c in cells)
