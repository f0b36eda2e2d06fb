"""nearmetal compare: results directories of one boot are one replicate, arms are set against others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.golden import sample_analysis as sample

from nearmetal.cli import results
from nearmetal.errors import UsageError
from nearmetal.model.result import Analysis
from nearmetal.model.study import Study


@dataclass
class Directory:
    """Of a results directory what compare looks at."""

    path: Path
    provenance: dict[str, Any]


@dataclass
class Found:
    """Of analysed results what compare looks at."""

    study: Study
    analysis: Analysis


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """compare() of directories by the number of the boot that their names begin with ('-': not known)."""

    def opened(path: Path, *_: object) -> Directory:
        boot = path.name[0]
        return Directory(path, {"boot": {"unavailable": "no"} if boot == "-" else f"boot {boot}"})

    monkeypatch.setattr(results, "open_results", opened)
    monkeypatch.setattr(results, "analysed", lambda _: Found(sample.study(), sample.analysis()))

    def run(first: str, second: str, *against: str) -> tuple[list[dict[str, Any]], str]:
        one, two = ([Path(n) for n in names.split()] for names in (first, second))
        results.compare(one[0], two[0], one[1:], two[1:], list(against), json=True)
        said = capsys.readouterr()
        return json.loads(said.out), said.err

    return run


def test_boots_are_counted_by_what_the_kernel_drew(compared: Any) -> None:
    cells, said = compared("1a 2a 2b", "3a 4a")
    assert all(c["boots"] == [2, 2] for c in cells)
    assert "3 results directories are of 2 boots: those of one boot count as one" in said
    cells, said = compared("1a 1b", "2a 3a")
    assert all(c["boots"] == [1, 2] and "no verdict" in c["reason"] and c["high"] is None for c in cells)
    assert "are of 1 boot:" in said
    # Older directories do not tell theirs: each is taken for one.
    cells, said = compared("-a -b", "-c -d")
    assert all(c["boots"] == [2, 2] for c in cells) and said == ""


def test_arms_are_set_against_others(compared: Any) -> None:
    cells, _ = compared("1a 2a", "3a 4a", "native=container", "native/one=container/two")
    assert {(c["arm"], c["other"]) for c in cells} == {
        ("native/one", "container/one"),
        ("native/one", "container/two"),
    }
    with pytest.raises(UsageError, match="no arm and metric in common"):
        compared("1a", "2a", "native=nothing")
    for wrong in ("native", "=a", "a=", "a=b=c"):
        with pytest.raises(UsageError, match="is not FIRST=SECOND"):
            compared("1a", "2a", wrong)
