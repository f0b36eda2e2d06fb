"""A series from files alone: the example, on this machine; and how it goes on after it was killed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import until
from tests.system.test_quick import ENDLESS, left_behind, nearmetal, started

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(os.geteuid() != 0, reason="named network namespaces need root"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "boxes"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A directory with the files of the example below mine/."""
    shutil.copytree(EXAMPLE, tmp_path / "mine")
    files = {p.name for p in (tmp_path / "mine").iterdir()}
    assert files == {"series.yaml", "compute.yaml", "messages.yaml", "published.toml"}
    yield tmp_path
    nearmetal("clean", cwd=tmp_path)
    assert left_behind(tmp_path) == []


def test_the_series_of_the_examples_runs_beside_its_table(here: Path) -> None:
    done = nearmetal(
        *("run", "mine/", "--backend", "namespaces", "--seed", "7", "--time", "5m", "--max-blocks", "1"),
        "--json",
        cwd=here,
    )
    assert done.returncode == 0, done.stderr
    form: dict[str, Any] = json.loads(done.stdout)
    assert (form["study"], form["scale"], form["notes"][-1]) == ("boxes", None, "Containers by namespaces.")
    assert form["paper"]["title"] == "Containers on our last machine"
    compute, messages = form["parts"]
    assert all(p["result"]["blocks"] == 1 and not p["result"]["failed_trials"] for p in (compute, messages))
    ranks = 4 if len(os.sched_getaffinity(0)) >= 4 else 2
    assert messages["places"]["box"] == f"box/{ranks}x1"
    left_out = {o["what"]: o for o in messages["left_out"]}
    assert ("macvlan" in messages["places"]) != ("box-macvlan" in left_out)
    assert all(o["reason"] and o["remedy"] for o in left_out.values())
    (cg,) = messages["published"]
    assert cg["published"]["text"] == "12 to 19 %" and [o["what"] for o in cg["ours"]] == ["cg"]
    html = (here / form["report"]).read_text().replace("\u00a0", " ")
    assert "Containers on our last machine" in html and "12 to 19 %" in html
    text = nearmetal("analyze", "--all", cwd=here).stdout
    for part in form["parts"]:
        own = text[text.index(f"All of part {part['part']}: {part['title']}") :]
        assert "figures (there is no interval yet; the first comes after 8 rounds)" in own
    plan = here / compute["result"]["results_dir"] / "plan.json"
    plan.write_text(plan.read_text().replace('"schema": ', '"schema": 99'))
    done = nearmetal("analyze", "--json", cwd=here)
    gap, whole = json.loads(done.stdout)["parts"]
    assert done.returncode == 4 and gap["result"] is None and whole == messages
    assert gap["why"].startswith("its results cannot be read: ") and "schema" in gap["why"]


def test_a_series_that_was_killed_goes_on_where_it_was(here: Path) -> None:
    run = started("run", "mine/", "--backend", "namespaces", "--time", "30m", *ENDLESS, cwd=here)
    until(lambda: any(p.stat().st_size for p in here.glob("results/*/boxes-compute-*/trials/*.jsonl")))
    run.kill()
    run.communicate()
    nearmetal("clean", cwd=here)
    before = json.loads(nearmetal("status", "--json", cwd=here).stdout)["parts"]
    assert [p["results_dir"] is None for p in before] == [False, True]
    plan = json.loads(nearmetal("resume", "--dry-run", "--max-blocks", "9", "--json", cwd=here).stdout)
    compute, messages = plan["parts"]
    assert compute["blocks_done"] == before[0]["blocks"]
    assert messages["blocks_done"] == 0 and 1 <= messages["estimated_blocks"] <= 9
    done = nearmetal("resume", "--time", "4m", "--max-blocks", "1", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    form: dict[str, Any] = json.loads(done.stdout)
    assert form["paper"]["title"] == "Containers on our last machine", "the table is kept with the results"
    assert [p["result"]["blocks"] >= 1 for p in form["parts"]] == [True, True]


def test_a_part_that_cannot_run_is_a_named_gap_and_the_others_go_on(here: Path) -> None:
    """An image that cannot be built: no archive has its package."""
    file = here / "mine" / "compute.yaml"
    image = "images:\n  odd: {suite: host, packages: [no-such-package-anywhere]}\n"
    file.write_text(file.read_text().replace("backend: podman,", "backend: podman, image: odd,") + image)
    done = nearmetal(
        *("run", "mine/", "--backend", "namespaces", "--time", "5m", "--max-blocks", "1", "--json"), cwd=here
    )
    assert done.returncode == 4, done.stderr
    compute, messages = json.loads(done.stdout)["parts"]
    assert compute["result"] is None and compute["why"].startswith("did not run: ")
    assert "no-such-package-anywhere" in compute["why"]
    assert messages["result"]["blocks"] == 1
