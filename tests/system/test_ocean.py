"""Ocean models and their way of writing, for real: veros by a Python of its own, a run directory of the form
that MITgcm has, and the kernel records in the storage of instances."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.more

NEARMETAL = str(Path(sys.executable).parent / "nearmetal")
PYTHON = Path(__file__).parents[2] / ".venv-veros" / "bin" / "python"
#: Prints as MITgcm does, from what stands in its run directory; ends with an error where an earlier run was.
MODEL = """\
#!/bin/sh -e
test ! -e pickup.0000000002
read theta <data
exec >STDOUT.0000
say() { echo "(PID.TID 0000.0001) $1"; }
say "%MON dynstat_theta_mean           =   $theta"
for section in ALL INITIALISE_FIXED FORWARD_STEP THERMODYNAMICS DYNAMICS SOLVE_FOR_PRESSURE \\
    BLOCKING_EXCHANGES DO_THE_MODEL_IO; do
    say "  Seconds in section \\"$section   [THE_MODEL_MAIN]\\":"
    say "    Wall clock time:  1.5"
    say "         No. starts: 3"
done
echo >pickup.0000000002
"""
STUDY = """\
name: oceans
environments:
  native: {{backend: native, storage: {{kind: overlay}}}}
  namespaces: {{backend: namespaces, attachment: veth-bridge, storage: {{kind: overlay}}}}
placements:
  one: {{instances: 1, tasks: 1}}
workloads:
  veros: {{application: veros, python: '{python}', nx: 18, ny: 10, nz: 5, steps: 4, checkpoint: 2}}
  gcm: {{application: mitgcm, executable: '{here}/model', run: '{here}/run', theta: '3.6196'}}
  records: {{kernel: records, files: 2, checkpoint: 100 kB}}
design: {{baseline: native, mode: plain, runs: 2, warm_up: 0, min_blocks: 6, max_blocks: 6}}
"""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_oceans_run_in_a_container_as_on_the_machine(tmp_path: Path) -> None:
    (tmp_path / "model").write_text(MODEL)
    (tmp_path / "model").chmod(0o755)
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "data").write_text("3.6196D+00\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data").symlink_to("../input/data")
    (tmp_path / "s.yaml").write_text(STUDY.format(python=PYTHON, here=tmp_path))
    argv = [NEARMETAL, "run", "s.yaml", "--seed", "1", "--max-blocks", "1", "--json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    directory = tmp_path / json.loads(done.stdout)["results_dir"]
    rehearsed, records = (lines(directory / name) for name in ("rehearsal.jsonl", "trials/local.jsonl"))
    for record in rehearsed:  # which verifies every kernel; a block does in its turn
        (row,) = [r for r in record["rows"] if (r["workload"], r["metric"]) == ("records", "records")]
        assert row["verification"]["found"]["wrong_records"] == 0
    for trials in (rehearsed, records):
        assert {r["arm"] for r in trials} == {"native/one", "namespaces/one"}
    for record in records:
        rows = {(r["workload"], r["metric"]): r for r in record["rows"]}
        assert record["status"] == "ok", record["reason"]
        for name in ("run", "main", "steps", "momentum", "thermodynamics", "output"):
            assert len(rows["veros", name]["values"]) == 2, rows["veros", name]
        assert rows["veros", "run"]["verification"]["ok"] is True
        assert record["facts"]["veros"]["written"] > 100_000
        assert rows["gcm", "all"]["values"] == [1.5, 1.5] and rows["gcm", "steps"]["values"] == [2.0, 2.0]
        assert rows["gcm", "all"]["verification"]["found"] == "3.6196"
        assert rows["records", "checkpoint"]["ticks"]
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["data"], "the user's own is untouched"
