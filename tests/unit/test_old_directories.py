"""Results directories made before November 2026: they keep their schedule, and with it their verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.small_study import RATE, small_study

from nearmetal.api.results import analysed
from nearmetal.model.result import Analysis, Cell, Verdict
from nearmetal.plan import make_plan
from nearmetal.records import ResultsDirectory
from nearmetal.records.codec import to_line
from nearmetal.testing.simulate import Spread, simulate

NAMES = ("native", "near", "slow")
TEXT = """\
name: s
environments:
  native: {backend: native}
  near: {backend: native}
  slow: {backend: native}
placements:
  one: {instances: 1, tasks: 1}
workloads:
  ep: {kernel: ep, class: S}
design: {baseline: native, margin: 3 %, seed: 2, MORE}
"""
STUDY = small_study(*NAMES)


def old_directory(path: Path, *, blocks: int, expected: int, more: str) -> ResultsDirectory:
    """As nearmetal wrote it then: plan.json of schema 1 with the number of blocks that was expected."""
    directory = ResultsDirectory(path=path)
    (path / "trials").mkdir(parents=True)
    (path / "study.yaml").write_text(TEXT.replace("MORE", more))
    arms = [f"{n}/one" for n in NAMES]
    plan = {"schema": 1, "study": "s", "seed": 2, "expected_blocks": expected, "arms": arms, "created": 1.0}
    (path / "plan.json").write_text(json.dumps({**plan, "slices": {"ep": 8}, "rehearsed_blocks": None}))
    (path / "provenance.json").write_text("{}")
    records = simulate(
        STUDY,
        make_plan(STUDY, blocks=blocks),
        metrics=(RATE,),
        overheads={"slow/one": 0.1},
        spread=Spread(instance=0.02),
    )
    (path / "trials" / "local.jsonl").write_bytes(b"".join(to_line(r) for r in records))
    return directory


def cells(analysis: Analysis) -> list[Cell]:
    return [*analysis.cells, *analysis.noise_floor.cells]


@pytest.mark.parametrize(
    ("blocks", "expected", "looks", "found"),
    [
        (
            10,
            12,
            [8],
            [
                (Verdict.NONE, -0.03705888177349612, 0.0389954085011995),
                (Verdict.NONE, 0.04961490867454018, 0.14257761735351654),
                (Verdict.NONE, -0.03885253186293393, 0.07727181563001798),
            ],
        ),
        (
            20,
            12,
            [8, 12, 18],
            [
                (Verdict.EQUIVALENT, -0.020538807176530515, 0.016240355963487503),
                (Verdict.SLOWER, 0.07260652794875835, 0.11918927694812993),
                (Verdict.NONE, -0.0050165930467579644, 0.033877067081558424),
            ],
        ),
        (
            30,
            33,
            [22],
            [
                (Verdict.EQUIVALENT, -0.01376963643340161, 0.016240355963487503),
                (Verdict.SLOWER, 0.07828679893826512, 0.1148406245527354),
                (Verdict.EQUIVALENT, -0.01096265861725489, 0.023949788642637877),
            ],
        ),
    ],
)
@pytest.mark.parametrize("more", ["max_blocks: 100", "min_blocks: 12", "expected_blocks: 40"])
def test_an_old_directory_says_what_it_said(
    tmp_path: Path,
    blocks: int,
    expected: int,
    looks: list[int],
    found: list[tuple[Verdict, float, float]],
    more: str,
) -> None:
    """The figures are those that nearmetal gave for these records before its schedule changed."""
    directory = old_directory(tmp_path / "s", blocks=blocks, expected=expected, more=more)
    now = analysed(directory)
    assert len(now.trials) == 4 * blocks
    for cell, (verdict, low, high) in zip(cells(now.analysis), found, strict=True):
        assert [look.n for look in cell.looks] == looks
        assert cell.verdict is verdict
        assert (cell.low, cell.high) == pytest.approx((low, high), rel=1e-9)


def test_minimum_of_blocks_in_an_old_study_still_applies(tmp_path: Path) -> None:
    directory = old_directory(tmp_path / "s", blocks=10, expected=12, more="min_blocks: 6")
    analysis = analysed(directory).analysis
    assert [c.verdict for c in analysis.cells] == [Verdict.NONE, Verdict.SLOWER]
