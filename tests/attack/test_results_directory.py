"""What writes into a results directory of somebody else writes nothing through planted links."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nearmetal.errors import NearmetalError
from nearmetal.records import Claims, NewTrials, Orders, ResultsDirectory
from nearmetal.records.claims import claimed_attempts
from nearmetal.samplers.frames import FrameWriter
from nearmetal.testing.simulate import PLAIN

pytestmark = pytest.mark.attack


@pytest.fixture
def results(tmp_path: Path) -> ResultsDirectory:
    """A results directory in which every directory and file that a run writes leads outside."""
    made = ResultsDirectory.create(tmp_path / "results", "s", study_yaml="name: s\n")
    made.freeze(seed=1, arms=("a",), provenance={})
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("1.json", "1.1.json", "local.jsonl", "w.json", "stop", "local.jsonl.zst"):
        (outside / name).write_text("{}\n")
    for name in ("claims", "orders", "nodes", "trials", "samples"):
        if (made.path / name).exists():
            (made.path / name).rmdir()
        (made.path / name).symlink_to(outside)
    return made


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda r: Claims(r.path / "claims", "w").take(2, 1), id="claim"),
        pytest.param(lambda r: Claims(r.path / "claims", "w").now(), id="clock"),
        pytest.param(lambda r: claimed_attempts(r.path / "claims"), id="claims"),
        pytest.param(lambda r: Orders(r.path).stop(), id="stop"),
        pytest.param(lambda r: Orders(r.path).withdraw(1), id="withdraw"),
        pytest.param(lambda r: list(Orders(r.path).read()), id="orders"),
        pytest.param(lambda r: r.node_files.write("w", {}), id="node"),
        pytest.param(lambda r: r.writer().append(PLAIN), id="trial"),
        pytest.param(lambda r: NewTrials(r.path / "trials").read(), id="new trials"),
        pytest.param(lambda r: FrameWriter(r.path / "samples" / "local.jsonl.zst"), id="samples"),
    ],
)
def test_a_run_follows_no_link(
    results: ResultsDirectory, write: Callable[[ResultsDirectory], object]
) -> None:
    outside = results.path.parents[1] / "outside"
    before = {path: path.read_text() for path in outside.iterdir()}
    with pytest.raises((NearmetalError, OSError), match="leads out of the directory"):
        write(results)
    assert {path: path.read_text() for path in outside.iterdir()} == before


def test_a_directory_is_opened_again_by_its_own_files(results: ResultsDirectory) -> None:
    outside = results.path.parents[1] / "outside"
    (results.path / "SHA256SUMS").symlink_to(outside / "1.json")
    results.reopen()
    assert not os.path.lexists(results.path / "SHA256SUMS") and (outside / "1.json").read_text() == "{}\n"
