"""The profile from the command line: one kernel by itself, and a study whose arms all run with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import one_fits
from tests.system.test_quick import left_behind, nearmetal, trial_lines

from nearmetal.host import LocalHost
from nearmetal.node.machine import prepare_machine
from nearmetal.node.progress import NullProgress

pytestmark = pytest.mark.more

STUDY = """\
name: profiled
question: Where does the time go?
environments:
  native: {{backend: native, attachment: host, placements: [1x2]}}
  namespaces: {{backend: namespaces, attachment: veth-bridge, placements: [1x2, 2x1]}}
placements:
  1x2: {{instances: 1, tasks: 2}}
  2x1: {{instances: 2, tasks: 1}}
workloads:
  cg: {{kernel: cg, class: S}}
  ep: {{kernel: ep, class: S}}
  whole: {{command: [{program}, --once, "cg:class=S"], mpi: true}}
design: {{baseline: native, margin: 3 %, slices: 1, profile: true}}
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    # Seen in every instance at the same place, as /tmp is not.
    program = prepare_machine(LocalHost(), NullProgress()).tools / "nm-micro"
    (tmp_path / "profiled.yaml").write_text(STUDY.format(program=program))
    yield tmp_path
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("name", ["cg", "is"])
def test_the_parts_of_a_kernel_agree_with_wall_time(here: Path, name: str) -> None:
    """Class A: at shorter ones the end of the process, which no profile sees, is a larger share."""
    # A busy machine parts the two clocks at the begin and at the end; a part that is not counted always does.
    one_fits(lambda: uncounted(here, name), lambda share: share < 0.04, attempts=20)


def uncounted(here: Path, name: str) -> float:
    """The largest part of a rank's wall time that its profile does not hold, beyond 20 ms, as a share."""
    done = nearmetal("kernel", name, "--class", "A", "--ranks", "2", "--profile", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    ranks = json.loads(done.stdout)["profile"]
    assert [r["rank"] for r in ranks] == [0, 1]
    missing = []
    for r in ranks:
        parts = [r[part] for part in ("before", "init", "compute", "communication", "finalize")]
        assert all(seconds > 0 for seconds in parts)
        missing.append((abs(r["wall"] - sum(parts)) - 0.02) / r["wall"])
        assert 0 < r["kernel"]["communication"] <= r["communication"]
        sent = [(p["rank"], p["messages"] > 100) for p in r["kernel"]["peers"]]
        assert sent == ([(1 - r["rank"], True)] if name == "cg" else [])
    return float(max(missing))


def test_every_arm_of_a_study_is_profiled_alike(here: Path) -> None:
    done = nearmetal("run", "profiled.yaml", "--max-blocks", "1", "--json", "--seed", "5", cwd=here)
    assert done.returncode == 0, done.stderr
    records = trial_lines(here)
    assert len(records) == 4
    for record in records:
        profile = record["profile"]
        assert list(profile) == ["cg", "ep", "whole"]
        # What CG sends follows from its definition, wherever it runs; EP sends nothing to a single peer.
        assert [[(p["rank"], p["messages"] > 100) for p in r["peers"]] for r in profile["cg"]] == [
            [(1, True)],
            [(0, True)],
        ]
        assert profile["cg"][0]["peers"] == records[0]["profile"]["cg"][0]["peers"]
        assert all(r["peers"] == [] and r["compute"] > 0 for r in profile["ep"])
        wall = next(r for r in record["rows"] if (r["workload"], r["metric"]) == ("whole", "wall"))
        parts = wall["parts"]
        assert set(parts) == {"comm", "compute", "init"}
        assert 0 < sum(v[0] for v in parts.values()) < wall["values"][0]
    cells = json.loads(done.stdout)["cells"]
    names = {p["name"] for c in cells if c["metric"] == "wall" for p in c["attribution"]["parts"]}
    assert names == {"communication", "computation", "start of MPI"}
    page = (here / json.loads(done.stdout)["results_dir"] / "report.html").read_text()
    assert "Where the time went" in page and 'id="time-spent"' in page
