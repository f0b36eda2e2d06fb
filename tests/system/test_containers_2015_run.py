"""The 2015 study from the command line: every part for real with one block, its report, how it goes on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.test_quick import left_behind, nearmetal

from nearmetal.analysis.papers.claims import NEAR
from nearmetal.analysis.papers.sizes import distance, printed_shares
from nearmetal.cli.view import analysed
from nearmetal.published import published
from nearmetal.records import ResultsDirectory
from nearmetal.report.record_index import RecordIndex
from nearmetal.report.tables.profile import computation_shares

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(os.geteuid() != 0, reason="lxc and named network namespaces need root"),
]
RUN = ("run", "containers-2015", "--scale", "small", "--seed", "7")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert left_behind(tmp_path) == []


@pytest.mark.timeout(3600)  # longer than the time budget, which a slow machine may use up
def test_every_part_runs_and_stands_beside_the_paper(here: Path) -> None:
    keys = ["q1", "q2", "q3", "rto", "cures", "nodes", "ovs", "appendix"]  # kernels need an image
    only = ("--only", ",".join(keys))
    done = nearmetal(*RUN, *only, "--time", "20m", "--max-blocks", "1", "--json", cwd=here, timeout=3000)
    assert done.returncode == 0, done.stderr
    form: dict[str, Any] = json.loads(done.stdout)
    parts = {p["part"]: p for p in form["parts"]}
    assert list(parts) == keys
    for key, p in parts.items():
        assert p["why"] == "1 round is done, too few for an interval", (key, p["why"], done.stderr)
        assert p["result"]["blocks"] == 1 and p["result"]["failed_trials"] == 0, key
        assert p["result"]["cells"], key
    assert parts["q1"]["emulated"] and not parts["cures"]["emulated"]
    times = [b for b in parts["q2"]["published"] if b["where"] == "Table 1" and b["ours"]]
    assert len(times) == 2 * 54, "every printed time has ours beside it"
    waits = [b for b in parts["rto"]["published"] if b["quantity"] == "count"]
    assert waits[0]["ours"], "time-outs were counted"
    html = (here / form["report"]).read_text().replace("\u00a0", " ")
    assert "2 emulated nodes instead of 8" in html, "the report names how the machine narrowed it"
    for p in parts.values():
        inside = Path(p["result"]["results_dir"])
        assert f'href="{inside.name}/report.html"' in html and (here / inside / "report.html").is_file()
        network = json.loads((here / inside / "provenance.json").read_text())["network"]
        links = [n["link"] for n in network.values() if "link" in n]
        assert bool(links) is p["emulated"], p["part"]
        assert all(k["measured"]["round_trip"] > 2 * k["delay"] for k in links)


def own_shares(results: Path) -> dict[str, float]:
    """The share of its time for which the baseline of a part computes, by kernel."""
    found = analysed(ResultsDirectory.open(results))
    arm = next(a.name for a in found.study.arms() if a.environment.name == "native")
    kernels = {w.name: w.kernel for w in found.study.kernels}
    shares = computation_shares([arm], RecordIndex(found.trials))
    return {kernels[workload]: share for (_, workload), share in shares.items()}


@pytest.mark.apart
def test_bare_nodes_choose_the_classes_and_links_before_anything_is_packed(here: Path) -> None:
    argv = (*RUN, "--only", "sizes,q1", "--time", "10m", "--max-blocks", "1", "--json")
    done = nearmetal(*argv, cwd=here, timeout=3000)
    assert done.returncode == 0, done.stderr
    form: dict[str, Any] = json.loads(done.stdout)
    sizes, packing = form["parts"]
    (said,) = [note for note in packing["notes"] if note.startswith("Classes and links: Chosen")]
    assert said in done.stderr or said.partition(": ")[2] in done.stderr
    study = (here / packing["result"]["results_dir"] / "study.yaml").read_text()
    chosen = dict(re.findall(r"(\w+) class (\w)", said))
    assert chosen.keys() == {"cg", "ep", "ft", "is", "lu", "mg"} and set(chosen.values()) <= {"W", "A"}
    for kernel, size in chosen.items():
        assert re.search(rf"kernel: {kernel}\s+class: {size}\b", study), (kernel, size, study)
    asked = {c["what"]: c for c in packing["claims"]}
    overhead = asked["8 containers on each machine against as many bare machines"]
    own = own_shares(here / packing["result"]["results_dir"])
    printed = printed_shares(published("containers-2015"), "q1")
    assert own.keys() == printed.keys()
    far = {kernel for kernel, share in own.items() if distance(share, printed[kernel]) > NEAR}
    assert set(re.findall(r"(\w+) computes for", overhead["reason"])) == far, (own, overhead["reason"])
    assert sizes["result"]["blocks"] == packing["result"]["blocks"] == 1


def test_study_in_parts_resumes_and_reports_its_progress(here: Path) -> None:
    done = nearmetal(*RUN, "--only", "appendix", "--time", "3m", "--max-blocks", "1", cwd=here, timeout=3000)
    assert done.returncode == 0, done.stderr
    assert "Appendix" in done.stdout and "no verdict yet" in done.stdout
    again = nearmetal("resume", "--time", "3m", "--max-blocks", "2", cwd=here, timeout=3000)
    assert again.returncode == 0, again.stderr
    told = json.loads(nearmetal("status", "--json", cwd=here).stdout)
    assert [(p["part"], p["blocks"]) for p in told["parts"]] == [("appendix", 2)]
    (series,) = (here / "results").iterdir()
    refused = nearmetal("export", str(series), cwd=here)
    assert refused.returncode == 2 and "name a part" in refused.stderr
    files = json.loads(nearmetal("report", "--json", cwd=here).stdout)
    assert all((here / f).is_file() for f in files) and len(files) == 6
    assert nearmetal("run", "quick", "--only", "q1", cwd=here).returncode == 2
