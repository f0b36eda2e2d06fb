"""A user's own NAS benchmarks from the command line, by programs that print what NPB prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.more

NEARMETAL = str(Path(sys.executable).parent / "nearmetal")
STUDY = """\
name: theirs
question: What does a container cost our NAS benchmarks?
environments:
  native: {backend: native}
  box: {backend: namespaces}
placements: {1x2: {instances: 1, tasks: 2}}
workloads:
  cg-theirs:
    npb: {bin: ./bin, benchmark: cg, class: S}
  is-theirs:
    npb: {bin: ./bin, benchmark: is, class: S}
design: {baseline: native, warm_up: 0, seed: 3}
"""
#: Rank 0 alone prints, as in NPB.
PROGRAM = """\
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
cat <<END


 $0 Benchmark Completed.
 Class           =                        S
 Iterations      =                       15
 Time in seconds =                     0.25
 Total processes =                        2
 Mop/s total     =                  {rate}
 Mop/s/process   =                    70.00
 Verification    =             {state}
END
"""


def put(program: Path, rate: str, state: str) -> None:
    program.parent.mkdir(exist_ok=True)
    program.write_text(PROGRAM.format(rate=rate, state=state))
    program.chmod(0o755)


def nearmetal(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NEARMETAL, *words], cwd=cwd, capture_output=True, text=True, timeout=600, check=False
    )


def test_old_and_new_naming_and_a_wrong_result(tmp_path: Path) -> None:
    """cg as NPB 3.4 names it, right; is as 3.3 does, wrong: its values are kept and used by nobody."""
    put(tmp_path / "bin" / "cg.S.x", "140.00", "  SUCCESSFUL")
    put(tmp_path / "bin" / "is.S.2", "35.50", "UNSUCCESSFUL")
    (tmp_path / "npb.yaml").write_text(STUDY)
    done = nearmetal("run", "npb.yaml", "--max-blocks", "2", "--json", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert "is-theirs: verification failed: expected SUCCESSFUL, found UNSUCCESSFUL" in done.stderr
    result = json.loads(done.stdout)
    cells = {(c["arm"], c["workload"], c["metric"]): c for c in result["cells"]}
    assert {w for _, w, _ in cells} == {"cg-theirs"}
    assert cells["box/1x2", "cg-theirs", "rate"]["n"] == 2
    directory = tmp_path / result["results_dir"]
    lines = "".join(p.read_text() for p in (directory / "trials").glob("*.jsonl")).splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == 6
    for record in records:
        rows = {(r["workload"], r["metric"]): r for r in record["rows"]}
        right, wrong = rows["cg-theirs", "rate"], rows["is-theirs", "rate"]
        assert (right["values"], right["status"], right["unit"]) == ([140e6], "ok", "op/s")
        assert rows["cg-theirs", "seconds"]["values"] == [0.25]
        assert (wrong["values"], wrong["status"]) == ([35.5e6], "failed")
        assert wrong["verification"] == {"ok": False, "expected": "SUCCESSFUL", "found": "UNSUCCESSFUL"}
    frozen = (directory / "study.yaml").read_text()
    assert f'"{tmp_path}/bin/is.S.{{ranks}}"' in frozen


def test_run_with_only_wrong_results_ends_in_the_rehearsal(tmp_path: Path) -> None:
    put(tmp_path / "bin" / "is.S.2", "35.50", "UNSUCCESSFUL")
    start, end = STUDY.index("  cg-theirs:"), STUDY.index("  is-theirs:")
    (tmp_path / "npb.yaml").write_text(STUDY[:start] + STUDY[end:])
    done = nearmetal("run", "npb.yaml", cwd=tmp_path)
    assert done.returncode == 4
    wanted = "every environment failed in the rehearsal: is-theirs: verification failed: expected SUCCESSFUL"
    assert wanted in done.stderr


def test_ranks_that_do_not_fit_start_nothing(tmp_path: Path) -> None:
    put(tmp_path / "bin" / "cg.S.x", "140.00", "SUCCESSFUL")
    put(tmp_path / "bin" / "is.S.4", "35.50", "SUCCESSFUL")
    (tmp_path / "npb.yaml").write_text(STUDY)
    done = nearmetal("plan", "npb.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "npb.yaml:11:34  workloads.is-theirs.npb.benchmark: no is.S.2 in" in done.stderr


def test_a_placeholder_without_its_program_is_named(tmp_path: Path) -> None:
    text = STUDY[: STUDY.index("workloads:")] + "workloads:\n  own: {command: ['./app.{ranks}']}\n"
    (tmp_path / "own.yaml").write_text(text + STUDY[STUDY.index("design:") :])
    done = nearmetal("run", "own.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "workload own: there is no ./app.2" in done.stderr
