"""What other packages add, installed as they would install it, and used from the command line."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.system.test_quick import left_behind, nearmetal

pytestmark = pytest.mark.more

DOCS = Path(__file__).parents[2] / "docs"
STUDY = """\
name: ending
environments:
  native: {backend: native}
  box: {backend: namespaces}
  slow: {backend: handicap, extra_work: 10 %}
placements:
  1x2: {instances: 1, tasks: 2}
workloads:
  ending: {subject: ending, count: 5}
  cg: {kernel: cg, class: S}
design: {baseline: native, slices: 2}
"""


def installed(place: Path, page: str, module: str, group: str, point: str) -> None:
    """Install the first Python example of a page of docs as a package of its own.

    point: the entry point, '<name> = <class>'.
    """
    example = re.search(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert example is not None
    (place / f"{module}.py").write_text(example[1])
    known = place / f"{module}-1.0.dist-info"
    known.mkdir()
    (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    name, _, what = point.partition(" = ")
    (known / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:{what}\n")


def test_a_subject_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "packages"
    place.mkdir()
    installed(place, "add-a-subject.md", "ending_subject", "nearmetal.subjects", "ending = Ending")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "study.yaml").write_text(STUDY)
    planned = nearmetal("plan", "study.yaml", "--json", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    done = nearmetal("run", "study.yaml", "--max-blocks", "2", "--seed", "5", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    cells = {(c["environment"], c["workload"], c["metric"]): c for c in result["cells"]}
    assert cells["box", "ending", "ending"]["n"] == 2
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
